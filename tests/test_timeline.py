"""The GPU's times: timeline.bin read, asked, and told of."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ttanalyze as tt
from tests.rundir import Writer, seal
from tests.support import Cli
from ttanalyze.core import run_tables
from ttanalyze.format import activities, files, layout
from ttanalyze.format.digest import checks_of
from ttanalyze.output.times import as_nanoseconds
from ttanalyze.tui.timeline import Timeline
from ttanalyze.verbs.info import info
from ttanalyze.verbs.info.show import info_text
from ttanalyze.verbs.query import Query, query

KERNEL = "_Z4stepPf"
LAST = (1 << 64) - 1


def work_run(path: Path) -> Writer:
    """Two launches, a graph with three kernels, a wait; a launch without times; the recorder."""
    w = Writer(path)
    w.function(0, KERNEL)
    w.stack(1, [("fit", "train.py", 7)])
    for _ in range(2):
        w.event("launch", "cuLaunchKernel", id=0, stream=16, stack=1)  # 1, 2
    w.event("graph-launch", stream=17)  # 3
    w.event("sync", "cuCtxSynchronize", stack=1)  # 4
    w.event("launch", "cuLaunchKernel", id=0, stream=16)  # 5
    w.event("launch", "cuLaunchKernel", id=0, stream=16, flags=1)  # 6, recorded into a graph
    w.activity("sync", 4, 4100, 9000, stream=0)
    w.activity("launch", 2, 6000, 8000, KERNEL, stream=0)
    w.activity("launch", 3, 8200, 9900, "scale", node=12, stream=0, flags=1)
    w.activity("launch", 3, 8000, 8500, "scale", node=11, stream=0)
    w.activity("copy", 3, 8100, 8400, node=13, bytes=64, stream=0)
    w.activity("launch", 1, 5000, 6000, stream=0)
    w.activity("", 0, 0, 0)
    own = {"flags": activities.OWN, "context": layout.NO_ID}
    w.activity("launch", 0, 100, 101, "tt_digest", stream=0, **own)
    w.close()
    return w


# ---- read ----


@pytest.mark.parametrize("kind", [layout.ACTIVITY, layout.EVENT, layout.GRAPH_RECORD])
def test_batch_checks_equal_single_checks(kind: np.dtype[Any]) -> None:
    raw = np.random.default_rng(0).bytes(kind.itemsize * 2001)
    records = np.frombuffer(raw, kind).copy()
    seal(records)
    assert (checks_of(records) == records["check"]).all()
    assert (checks_of(records[::3]) == records["check"][::3]).all()


@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_activities_are_ordered_by_call_and_start(run_path: Path, size: int) -> None:
    work_run(run_path)
    found = tt.open(run_path).process(0).activities
    assert len(found) == 7 and found.there
    every = np.concatenate([p.copy() for p in found.by_seq(size)])
    assert every["seq"].tolist() == [0, 1, 2, 3, 3, 3, 4]
    assert every["begin_ns"].tolist() == [100, 5000, 6000, 8000, 8100, 8200, 4100]
    assert sum(len(p) for p in found.pieces(size)) == 7
    assert found.between(2, 4)["node"].tolist() == [11, 13, 12, 0]
    records, rows = found.of_calls(np.array([1, 3, 5], "u8"))
    assert rows.tolist() == [0, 1, 1, 1] and records["seq"].tolist() == [1, 3, 3, 3]


@pytest.mark.parametrize("order", ["forwards", "backwards", "random"])
def test_many_activities_are_read_in_pieces(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(activities, "PIECE", 50)
    w = Writer(run_path)
    random = np.random.default_rng(1)
    seqs = np.sort(random.integers(0, 300, 1000)).astype("u8")
    seqs = {"forwards": seqs, "backwards": seqs[::-1], "random": random.permutation(seqs)}[order]
    records = np.zeros(1500, layout.ACTIVITY)
    used = np.sort(random.permutation(1500)[:1000])
    records["kind"][used], records["seq"][used] = 1, seqs
    records["begin_ns"] = random.integers(0, 1 << 40, 1500)
    records["end_ns"] = records["begin_ns"] + random.integers(0, 999, 1500).astype("u8")
    w.append("timeline.bin", seal(records) + b"torn")
    w.close()
    found = tt.open(run_path).process(0).activities
    mine = records[used]
    wanted = mine[np.lexsort((mine["begin_ns"], mine["seq"]))]
    for size in (7, 100, 5000):
        pieces = [p.copy() for p in found.by_seq(size)]
        got = np.concatenate(pieces)
        assert (got["seq"] == wanted["seq"]).all()
        for piece, follows in itertools.pairwise(pieces):
            assert piece["seq"][-1] < follows["seq"][0] or follows["seq"][0] == 0
    calls = np.arange(310, dtype="u8")[::-1]
    begins, ends, known = found.spans(calls)
    for seq, begin, end, there in zip(calls, begins, ends, known, strict=True):
        own = mine[(mine["seq"] == seq) & (seq != 0)]
        assert there == (len(own) > 0)
        if there:
            assert (begin, end) == (own["begin_ns"].min(), own["end_ns"].max())


def test_older_runs_have_no_activities(run_path: Path) -> None:
    w = Writer(run_path)
    w.event("launch", "cuLaunchKernel")
    w.close()
    (w.path / "timeline.bin").unlink()
    run = tt.open(run_path)
    assert len(run.process(0).activities) == 0 and not run.process(0).activities.there
    assert len(run.activities) == 0
    frame = query(run, Query(fields=["gpu_time", "wait_time"]))
    assert len(frame) == 1 and frame.isna().to_numpy().all()
    assert "GPU  " not in info_text(info(run))


def test_holes_in_the_file_are_skipped(run_path: Path) -> None:
    w = work_run(run_path)
    with (w.path / "timeline.bin").open("r+b") as file:
        file.truncate(64 + 80 * (1 << 26))  # 5 GiB
    found = tt.open(run_path).process(0).activities
    assert len(found) == 7


def test_record_completed_while_reading(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that goes on, a record may be read while it is written."""
    work_run(run_path)
    read = files.RecordFile.read_into

    def half(self: files.RecordFile, first: int, out: Any) -> None:
        read(self, first, out)
        if self.path.name == "timeline.bin" and len(out) > 1:
            out["end_ns"][2] = 0

    monkeypatch.setattr(files.RecordFile, "read_into", half)
    assert len(tt.open(run_path).activities) == 7


# ---- asked ----


def test_activities_of_a_run(run_path: Path) -> None:
    work_run(run_path)
    timed = tt.open(run_path).activities
    assert timed[["gpu_time", "wait_time"]].dtypes.tolist() == ["m8[ns]", "m8[ns]"]
    assert timed["begin_ns"].dtype == "u8"
    table = as_nanoseconds(timed)
    assert table["kernel"].astype(object).where(table["kernel"].notna(), None).tolist() == [
        *("tt_digest", KERNEL, KERNEL, "scale", None, "scale", None),
    ]
    assert table["stream"].tolist()[1:] == [16, 16, 17, 17, 17, 1]
    assert table["gpu_time"].tolist()[:6] == [1, 1000, 2000, 500, 300, 1700]
    assert table["wait_time"].dropna().tolist() == [4900]
    assert table["coarse"].tolist() == [False] * 5 + [True, False]
    assert table["own"].tolist() == [True] + [False] * 6
    assert pd.isna(table["seq"][0]) and pd.isna(table["context"][0])


@pytest.mark.parametrize("piece", [2, 1 << 18])
def test_query_sums_gpu_time_by_kernel(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(run_tables, "PIECE", piece)
    work_run(run_path)
    run = tt.open(run_path)
    kernels = Query("activities", 'kind == "launch"', ["short"], True, ["gpu_time"], ["gpu_time"])
    frame = query(run, Query(**{**vars(kernels), "sort": ["-gpu_time_sum"]}))
    assert frame["short"].tolist() == ["step", "scale", "tt_digest"]
    assert frame["gpu_time_sum"].astype("i8").tolist() == [3000, 2200, 1]
    assert frame["gpu_time_share"].round(2).tolist() == [57.68, 42.3, 0.02]
    assert frame["count"].tolist() == [2, 2, 1]
    full = query(run, Query("activities", group_by=["demangled"], max=["gpu_time"]))
    assert "step(float*)" in full["demangled"].tolist()


@pytest.mark.parametrize("piece", [2, 1 << 18])
def test_calls_have_gpu_times(run_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(run_tables, "PIECE", piece)
    work_run(run_path)
    run = tt.open(run_path)
    fields = ["gpu_begin", "gpu_end", "gpu_time", "queue_time", "wait_time"]
    rows = as_nanoseconds(query(run, Query(fields=fields))).astype(object)
    rows = rows.where(rows.notna(), None)
    assert rows.to_numpy().tolist() == [
        [5000, 6000, 1000, 4000, None],
        [6000, 8000, 2000, 4000, None],
        [8000, 9900, 1900, 5000, None],
        [None, None, None, None, 4900],
        *([None] * 5 for _ in range(2)),
    ]
    (slow,) = query(run, Query(filter="queue_time > 4500", fields=["seq"]))["seq"]
    assert slow == 3
    callers = query(run, Query(group_by=["caller"], sum=["gpu_time", "wait_time"]))
    assert as_nanoseconds(callers).iloc[0].tolist() == ["fit (train.py:7)", 3000, 4900]


def test_shares_of_an_empty_run(run_path: Path) -> None:
    Writer(run_path).close()
    frame = query(tt.open(run_path), Query(share=["bytes"], count=True))
    assert frame["count"].tolist() == [0] and frame["bytes_share"].isna().all()


def test_query_command_has_gpu_times(cli: Cli, run_path: Path) -> None:
    work_run(run_path)
    options = ("--table", "activities", "--group-by", "short", "--share", "gpu_time")
    outcome = cli("query", run_path, *options, "--filter", 'kind == "launch"', "--json")
    shares = json.loads(outcome.stdout)
    assert [row["short"] for row in shares] == ["step", "scale", "tt_digest"]
    assert sum(row["gpu_time_share"] for row in shares) == pytest.approx(100)


# ---- told of ----


def test_launch_records_have_times(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    work_run(run_path)
    out = tmp_path / "events.ndjson"
    assert cli("events", run_path, "-o", out).status == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    times = {r["seq"]: (r["gpu_begin_ns"], r["gpu_end_ns"]) for r in found if "seq" in r}
    assert times[1] == (5000, 6000) and times[3] == (8000, 9900) and times[5] == (None, None)
    rows = cli("query", out, "--group-by", "kind", "--sum", "gpu_time", "--format", "csv").stdout
    assert rows.splitlines() == ["kind,gpu_time_sum", "launch,3000", "graph-launch,1900"]


TOLD = {"asked": "cupti", "source": "cupti", "reason": None, "missed": 0, "clock_error_ns": 1500}


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (TOLD, "times of 3 of 4 launches, by cupti, ±1,500 ns"),
        (
            {**TOLD, "source": "events", "reason": "the program uses CUPTI", "missed": 1234},
            "times of 3 of 4 launches, by events, ±1,500 ns, not by cupti (the program uses CUPTI);"
            " 1,234 missed",
        ),
        ({**TOLD, "clock_error_ns": None}, "times of 3 of 4 launches, by cupti"),
    ],
)
def test_info_counts_known_times(run_path: Path, told: dict[str, Any], line: str) -> None:
    work_run(run_path).close(timeline=told)
    summary = info(tt.open(run_path))
    assert f"GPU      {line}\n" in info_text(summary)
    timeline = summary.processes[0].timeline
    assert timeline == {**told, "launches": 4, "timed_launches": 3}


def test_info_explains_missing_times(run_path: Path) -> None:
    w = Writer(run_path)
    w.event("launch", "cuLaunchKernel")
    w.close(timeline={**TOLD, "source": "none", "reason": "no \x1bCUPTI", "clock_error_ns": None})
    text = info_text(info(tt.open(run_path)))
    assert "GPU      no times, not by cupti (no \\x1bCUPTI)\n" in text
    w.close(timeline={**TOLD, "asked": "off", "source": "none", "clock_error_ns": None})
    assert "GPU  " not in info_text(info(tt.open(run_path)))


def test_browser_shows_durations(run_path: Path) -> None:
    w = work_run(run_path)
    w.epoch()
    shown = Timeline(tt.open(run_path).process(0))
    rows = shown.calls.rows(shown.calls.between(0, None), 0, 5)
    assert [(row.what, row.took) for row in rows] == [
        ("step(float*) <<<0, 0>>>", "1 µs"),
        ("step(float*) <<<0, 0>>>", "2 µs"),
        ("graph-launch", "1.9 µs"),
        ("cuCtxSynchronize", ""),
        ("step(float*) <<<0, 0>>>", ""),
    ]
