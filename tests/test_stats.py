"""The summaries that `ttanalyze stats` prints."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import recordings
from tests.rundir import Writer, small_run
from tests.support import Cli
from ttanalyze.format import layout
from ttanalyze.verbs.stats import SUMMARIES, stats
from ttanalyze.verbs.stats.show import to_object


def rows(run: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = to_object(stats(tt.open(run), [name]), None)[name]["rows"]
    return found


def notes(run: Path, name: str) -> str:
    return " ".join(stats(tt.open(run), [name])[0].notes)


@pytest.fixture
def timed(run_path: Path) -> Path:
    """Two kernels with times, of which one launch has none; copies; a graph; ranges."""
    w = Writer(run_path)
    w.function(0, "_ZN3lib4fillIfEEvPT_i")
    w.function(1, "scale")
    message = w.string("step")
    inner = w.string("forward")
    none: dict[str, Any] = {"dst": layout.NO_ID, "thread": 5}
    for step in range(2):
        w.event("range-push", id=message, time_ns=1000 * step, **none)
        w.event("range-push", id=inner, time_ns=1000 * step, **none)
        for function, took in ((0, 100), (1, 700)):
            seq = w.event("launch", "cuLaunchKernel", id=function, thread=5)
            w.activity("launch", seq, 10_000, 10_000 + took)
        w.event("range-pop", id=inner, time_ns=1000 * step + 10, **none)
        w.event("range-pop", id=message, time_ns=1000 * step + 300 * (step + 1), **none)
    w.event("launch", "cuLaunchKernel", id=0, thread=5)
    w.event("launch", "cuLaunchKernel", id=0, thread=5, result=1)
    for flags, size, took in ((16, 4000, 50), (16, 96, 10), (8, 8, 20), (0, 1, 1)):
        seq = w.event("copy", "cuMemcpyHtoD_v2", bytes=size, flags=flags)
        w.activity("copy", seq, 20_000, 20_000 + took, bytes=size)
    wait = w.event("sync", "cuCtxSynchronize")
    w.activity("sync", wait, 30_000, 30_500, stream=0)
    nodes: list[dict[str, Any]] = [
        {"function": 1},
        {"kind": "copy", "dst": 1, "src": 2, "bytes": 16, "reach": 16},
    ]
    graph = w.graph(nodes)
    launch = w.event("graph-launch", "cuLaunchKernel", id=graph)
    w.activity("launch", launch, 40_000, 40_200, "scale", node=7)
    w.activity("copy", launch, 40_000, 40_003, bytes=16, node=8)
    w.close()
    return run_path


def test_kernels_with_the_most_gpu_time_come_first(timed: Path) -> None:
    assert rows(timed, "kernels") == [
        {
            "share_percent": pytest.approx(100 * 1600 / 1800),
            "time_ns": 1600,
            "mean_ns": 533,
            "min_ns": 200,
            "max_ns": 700,
            "launches": 3,
            "kernel": "scale",
        },
        {
            "share_percent": pytest.approx(100 * 200 / 1800),
            "time_ns": 200,
            "mean_ns": 100,
            "min_ns": 100,
            "max_ns": 100,
            "launches": 2,
            "kernel": "void lib::fill<float>(float*, int)",
        },
    ]
    assert "1 launch without a recorded time" in notes(timed, "kernels")


def test_without_times_kernels_are_ranked_by_count(timed: Path) -> None:
    (timed / "p0" / "timeline.bin").unlink()
    assert rows(timed, "kernels") == [
        {"launches": 3, "in_graphs": 0, "kernel": "void lib::fill<float>(float*, int)"},
        {"launches": 2, "in_graphs": 1, "kernel": "scale"},
    ]
    assert "no GPU times" in notes(timed, "kernels")
    copies = rows(timed, "copies")
    assert [(row["direction"], row["bytes"]) for row in copies] == [
        ("host to device", 4096),
        ("device to host", 8),
        ("device to device", 1),
    ]
    assert "time_ns" not in copies[0]
    assert "in graphs are not counted" in notes(timed, "copies")


def test_copies_are_summed_by_direction(timed: Path) -> None:
    found = {row["direction"]: row for row in rows(timed, "copies")}
    assert {name: (row["count"], row["bytes"], row["time_ns"]) for name, row in found.items()} == {
        "host to device": (2, 4096, 60),
        "device to host": (1, 8, 20),
        "copy in graphs": (1, 16, 3),
        "device to device": (1, 1, 1),
    }
    assert sum(row["share_percent"] for row in found.values()) == pytest.approx(100)
    assert found["host to device"]["bytes_max"] == 4000


def test_calls_count_failures_and_waits(timed: Path) -> None:
    found = rows(timed, "calls")
    assert found[0]["call"] == "cuCtxSynchronize" and found[0]["wait_time_ns"] == 500
    by_call = {row["call"]: row for row in found}
    assert by_call["cuLaunchKernel"]["failed"] == 1
    assert by_call["cuMemcpyHtoD_v2"]["count"] == 4
    assert by_call["cuMemcpyHtoD_v2"]["wait_time_ns"] is None


def test_ranges_have_the_work_inside_them(timed: Path) -> None:
    shown = [
        (r["range"], r["count"], r["time_ns"], r["launches"], r["gpu_time_ns"])
        for r in rows(timed, "ranges")
    ]
    assert shown == [("step", 2, 900, 4, 1600), ("forward", 2, 20, 4, 1600)]


def test_memory_is_summed_by_site(run_path: Path) -> None:
    small_run(run_path)
    found = rows(run_path, "memory")
    assert {"site", "kind", "bytes", "largest_bytes", "allocations", "freed"} <= {*found[0]}
    sizes = [row["bytes"] for row in found]
    assert sizes == sorted(sizes, reverse=True)


def test_summaries_of_a_run_without_calls(cli: Cli, run_path: Path) -> None:
    Writer(run_path).close()
    outcome = cli("stats", run_path)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.count("none recorded") == len(SUMMARIES)


def test_each_summary_as_csv_and_json(cli: Cli, timed: Path, tmp_path: Path) -> None:
    asked = json.loads(cli("stats", timed, "--json").stdout)
    assert [*asked] == [*SUMMARIES]
    for name in SUMMARIES:
        out = tmp_path / f"{name}.csv"
        assert cli("stats", timed, name, "--format", "csv", "-o", out).status == 0
        lines = list(csv.DictReader(io.StringIO(out.read_text())))
        assert len(lines) == asked[name]["count"] == len(asked[name]["rows"])
        assert not lines or [*lines[0]] == [*asked[name]["rows"][0]]


def test_only_the_first_rows_are_printed(cli: Cli, timed: Path) -> None:
    outcome = cli("stats", timed, "kernels", "copies", "--top", "1")
    assert outcome.stdout.count("… and") == 2
    assert "scale" in outcome.stdout and "fill" not in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kernel"], "kernel: no such summary; there are: kernels, copies"),
        (["--format", "csv"], "--format csv: needs one summary"),
        (["--format", "xml"], "--format xml: must be one of"),
        (["--process", "3"], "process 3"),
    ],
)
def test_wrong_options_are_one_line(cli: Cli, timed: Path, arguments: list[str], said: str) -> None:
    outcome = cli("stats", timed, *arguments)
    assert outcome.status == 2
    assert said in outcome.stderr and outcome.stderr.count("\n") == 1


@pytest.mark.long
@pytest.mark.native
def test_recorded_graph_kernels_are_counted_with_and_without_times(
    built: Path, tmp_path: Path
) -> None:
    found = []
    for name, options in (("plain", []), ("timed", ["--timeline", "cupti"])):
        run = recordings.record_example("graph", built, tmp_path / name, *options)
        found.append(
            {
                r["kernel"]: int(r["launches"]) + int(r.get("in_graphs", 0))
                for r in rows(run, "kernels")
            }
        )
    assert found[0] == found[1] == {"step": 10, "energy": 5}
