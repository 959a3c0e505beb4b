"""Ranges, marks and names in the tables, in queries and in traces, of artificial runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ttanalyze as tt
from tests import support, traces
from tests.recordings import record
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.format import layout
from ttanalyze.format.layout import NO_ID
from ttanalyze.output.times import as_nanoseconds
from ttanalyze.tui.timeline import Timeline
from ttanalyze.verbs.query import Query, query

PER_THREAD = ("range-push", "range-pop", "mark")


class Talker(Writer):
    """Writes annotations as well."""

    def say(
        self, kind: str, message: str | None = None, domain: str | None = None, **more: Any
    ) -> int:
        members = {"id": self.string(message), "dst": self.string(domain), **more}
        return self.event(kind, **members)


@pytest.fixture
def talker(run_path: Path) -> Talker:
    return Talker(run_path)


def nulls(frame: pd.DataFrame) -> list[list[Any]]:
    """Rows, with None for what is missing."""
    return [[None if pd.isna(v) else v for v in row] for row in frame.astype("O").values.tolist()]


def ranges_of(path: Path, *columns: str) -> list[list[Any]]:
    return nulls(as_nanoseconds(tt.open(path).ranges)[list(columns)])


# ---- tables ----


def test_ranges_have_paths_levels_and_times(talker: Talker, run_path: Path) -> None:
    w = talker
    w.say("range-push", "train")
    w.say("range-push", "step 0", shared=0xFF112233, grid=[2, 5, 0], bytes=(1 << 64) - 3)
    w.say("mark", "half", grid=[6, 0, 0], bytes=0x3FC00000)
    w.say("range-pop", "step 0")
    w.say("range-start", "io", "disk", src=9)
    w.say("range-pop", "train")
    w.say("range-end", "io", "disk", src=9, thread=4712)
    w.say("range-push", None)
    w.close()
    columns = ("kind", "annotation", "domain", "path", "level", "seq", "end_seq", "time")
    assert ranges_of(run_path, *columns) == [
        ["push", "train", None, "train", 0, 1, 6, 5000],
        ["push", "step 0", None, "train/step 0", 1, 2, 4, 2000],
        ["mark", "half", None, "train/step 0/half", 2, 3, 3, 0],
        ["start", "io", "disk", "io", 0, 5, 7, 2000],
        ["push", None, None, "?", 0, 8, None, None],
    ]
    assert ranges_of(run_path, "color", "category", "payload")[1:3] == [
        [0xFF112233, 5, -3.0],
        [0, 0, 1.5],
    ]
    assert ranges_of(run_path, "begin_ns", "end_ns")[-1] == [8000, None]


@pytest.mark.parametrize(
    ("kind", "bits", "number"),
    [
        (1, (1 << 64) - 1, float((1 << 64) - 1)),
        (2, (1 << 64) - 1, -1.0),
        (3, 0x4004000000000000, 2.5),
        (4, 0xFFFFFFFF, float(0xFFFFFFFF)),
        (5, 0xFFFFFFFF, -1.0),
        (6, 0xBF800000, -1.0),
        (0, 5, None),
    ],
)
def test_ranges_have_payloads(
    kind: int, bits: int, number: Any, talker: Talker, run_path: Path
) -> None:
    talker.say("mark", "m", bytes=bits, grid=[kind, 0, 0])
    talker.close()
    assert ranges_of(run_path, "payload") == [[number]]


def test_pop_ends_a_range_of_its_own_domain(talker: Talker, run_path: Path) -> None:
    w = talker
    for name, domain in (("a", None), ("b", "D"), ("c", "E"), ("d", "D")):
        w.say("range-push", name, domain)
    for domain in ("D", "E", "E", None, "D"):
        w.say("range-pop", None, domain)
        w.event("launch", "cuLaunchKernel", id=0)
    w.close()
    assert ranges_of(run_path, "path", "seq", "end_seq") == [
        ["a", 1, 11],
        ["a/b", 2, 13],
        ["a/b/c", 3, 7],
        ["a/b/c/d", 4, 5],
    ]
    asked = Query(filter='kind == "launch"', fields=["range"])
    found = nulls(query(tt.open(run_path), asked))
    assert found == [["a/b/c"], ["a/b"], ["a/b"], ["b"], [None]]


def test_range_ends_without_a_start_are_ignored(talker: Talker, run_path: Path) -> None:
    w = talker
    w.say("range-pop", "before")
    w.say("range-end", "before", src=4)
    w.say("range-push", "a", thread=1)
    w.say("range-pop", "a", thread=2)
    w.close()
    assert ranges_of(run_path, "path", "end_seq") == [["a", None]]


def test_run_without_annotations_has_empty_tables(small: Writer, run_path: Path) -> None:
    run = tt.open(run_path)
    assert len(run.ranges) == 0
    assert query(run, Query(fields=["seq", "range", "annotation", "domain"]))["range"].isna().all()
    assert run.processes[0].annotations.threads == {}


def test_streams_and_threads_have_names(talker: Talker, run_path: Path) -> None:
    w = talker
    w.say("name", "old", src=4711, dst=1)
    w.say("name", "loader", src=4712, dst=1)
    w.say("name", "boss", src=4711, dst=1)
    w.say("name", "copies", stream=17, context=1, dst=2)
    w.close()
    said = tt.open(run_path).processes[0].annotations
    assert said.threads == {4711: "boss", 4712: "loader"}
    assert said.streams == {(1, 17): "copies"}


def by_hand(process: Any) -> Iterator[tuple[int, str | None]]:
    """Each event's seq and path, one after the other."""
    stacks: dict[int, list[tuple[int, str]]] = {}
    for e in process.events:
        stack = stacks.setdefault(int(e["thread"]), [])
        kind, domain = layout.EVENT_KINDS[e["kind"]], int(e["dst"])
        if kind == "range-push":
            stack.append((domain, process.strings.get(int(e["id"]))))
        elif kind == "range-pop":
            same = [i for i, (of, _) in enumerate(stack) if of == domain]
            if same:
                del stack[same[-1]]
        yield int(e["seq"]), "/".join(name for _, name in stack) or None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("piece", [7, 1 << 18])
def test_ranges_of_calls_equal_a_linear_scan(
    seed: int, piece: int, talker: Talker, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttanalyze.core.run_tables.PIECE", piece)
    random = np.random.default_rng(seed)
    w = talker
    for _ in range(400):
        thread, domain = int(random.integers(70, 74)), (None, "D", "E")[int(random.integers(3))]
        kind = str(random.choice(["launch", "range-push", "range-push", "range-pop", "mark"]))
        if kind == "launch":
            w.event(kind, "cuLaunchKernel", thread=thread, id=0)
        else:
            w.say(kind, f"{'abcdef'[random.integers(6)]}", domain, thread=thread)
    w.close()
    run = tt.open(run_path)
    found = query(run, Query(fields=["seq", "range"]))
    assert [tuple(row) for row in nulls(found)] == list(by_hand(run.processes[0]))
    paths = dict(by_hand(run.processes[0]))
    ranges = run.ranges
    pushes = ranges[ranges["kind"] == "push"]
    assert dict(zip(pushes["seq"], pushes["path"], strict=True)).items() <= paths.items()


def test_columns_of_annotations(talker: Talker, run_path: Path, cli: Cli) -> None:
    w = talker
    w.function(0, "_Z3addPfS_i")
    w.event("alloc", "cuMemAlloc_v2", id=0, dst=64)
    w.say("range-push", "step", "D")
    w.event("launch", "cuLaunchKernel", id=0)
    w.say("name", "boss", src=4711, dst=1)
    w.close()
    asked = ["--fields", "kind,annotation,domain,range", "--format", "ndjson"]
    rows = [json.loads(line) for line in cli("query", run_path, *asked).stdout.splitlines()]
    assert [list(row.values()) for row in rows] == [
        ["alloc", None, None, None],
        ["range-push", "step", "D", "step"],
        ["launch", None, None, "step"],
        ["name", "boss", None, "step"],
    ]
    counted = cli("query", run_path, "--group-by", "range,short", "--count", "--format", "csv")
    assert "step,add,1" in counted.stdout
    table = cli("query", run_path, "--table", "ranges", "--json")
    assert [row["path"] for row in json.loads(table.stdout)] == ["step"]


def test_time_until_the_next_call_is_assigned_to_ranges(talker: Talker, run_path: Path) -> None:
    w = talker
    w.event("launch", "cuLaunchKernel", id=0)
    w.say("range-push", "a")
    w.event("launch", "cuLaunchKernel", id=0)
    w.close()
    host = query(tt.open(run_path), Query(fields=["kind", "host_ns"]))
    assert nulls(host) == [["launch", 2000], ["range-push", None], ["launch", None]]


@pytest.mark.parametrize("what", ["id", "dst"])
def test_missing_message_is_an_error(what: str, talker: Talker, run_path: Path, cli: Cli) -> None:
    members: dict[str, Any] = {"dst": NO_ID, what: 77777}
    talker.event("mark", **members)
    talker.close()
    for verb in (["query", run_path, "--table", "ranges"], ["trace", run_path, "-o", "-"]):
        outcome = cli(*verb)
        assert outcome.status == 2
        assert re.fullmatch(r"ttanalyze: .*strings.bin: .*77777.*\n", outcome.stderr), (
            outcome.stderr
        )


def test_annotations_of_two_processes(run_path: Path) -> None:
    first, second = Talker(run_path), Talker(run_path, 1)
    for w, name in ((first, "a"), (second, "b")):
        w.say("range-push", name)
        w.event("launch", "cuLaunchKernel", id=0)
        w.close()
    run = tt.open(run_path)
    assert nulls(run.ranges[["process", "path"]]) == [[0, "a"], [1, "b"]]
    found = query(run, Query(filter='kind == "launch"', fields=["process", "range"]))
    assert nulls(found) == [[0, "a"], [1, "b"]]


def test_browser_shows_ranges_of_calls(talker: Talker, run_path: Path) -> None:
    w = talker
    w.born(0, b"x" * 100)
    w.say("range-push", "step 7 (last)")
    w.say("range-pop", "step 7 (last)")
    w.epoch("nvtx", "full", label="step 7 (last)")
    w.close()
    shown = Timeline(tt.open(run_path).processes[0])
    rows = shown.calls.rows(shown.calls.between(0, None), 0, 3)
    assert [row.what for row in rows][1:] == ["range-push step 7 (last)", "range-pop step 7 (last)"]
    assert shown.epoch_label(0) == "nvtx step 7 (last)"


def test_diff_names_the_range(run_path: Path, tmp_path: Path, cli: Cli) -> None:
    for path, value in ((run_path, b"1"), (tmp_path / "other", b"2")):
        w = Talker(path)
        w.born(0, b"x" * 100)
        w.epoch("sync", "full")
        w.say("range-push", "train")
        w.say("range-push", "step 3")
        w.event("set", dst=0x7F0000000000, bytes=100)
        w.write(0, 5, value)
        w.epoch()
        w.close()
    outcome = cli("diff", run_path, tmp_path / "other")
    assert outcome.status == 1
    assert re.search(r"set of 100 bytes +train/step 3 +writes there", outcome.stdout)
    report = json.loads(cli("diff", run_path, tmp_path / "other", "--json").stdout)
    (suspect,) = report["processes"][0]["divergences"][0]["suspects"]
    assert suspect["range"] == "train/step 3"


# ---- traces ----


def shown(seen: traces.Seen, lane: str) -> list[tuple[str, str, int, int]]:
    """Kind, name, begin and end of what is in a lane."""
    items = [i for (_, name), items in seen.lanes.items() if name == lane for i in items]
    return [(i.kind, i.name, i.begin, i.end) for i in items]


@pytest.mark.parametrize("form", ["chrome", "perfetto"])
def test_trace_draws_ranges_in_lanes(form: str, talker: Talker, run_path: Path) -> None:
    w = talker
    w.say("name", "boss", src=4711, dst=1)
    w.say("name", "loads", stream=17, dst=2)
    w.say("range-push", "train")
    w.event("launch", "cuLaunchKernel", id=0, stream=17)
    w.say("range-push", "step", "D", shared=0xFF00FF80, grid=[1, 3, 0], bytes=7)
    w.say("mark", "half", thread=4712)
    w.say("range-start", "io", src=1)
    w.say("range-start", "more io", src=2)
    w.say("range-pop", None, "D")
    w.say("range-end", src=1)
    w.say("range-start", "last", src=3)
    w.say("range-end", src=2)
    w.say("range-pop")
    w.event("launch", "cuLaunchKernel", id=0, thread=4712)
    w.close()
    seen, done = traces.traced(run_path, form)
    assert (done.calls, done.ranges) == (2, 6)
    assert shown(seen, "boss (thread 4711): ranges") == [("slice", "train", 3000, 13000)]
    assert shown(seen, "boss (thread 4711): ranges of D") == [("slice", "step", 5000, 9000)]
    assert shown(seen, "thread 4712: ranges") == [("mark", "half", 6000, 6000)]
    assert shown(seen, "ranges") == [("slice", "io", 7000, 10000), ("slice", "last", 11000, 14000)]
    assert shown(seen, "ranges (2)") == [("slice", "more io", 8000, 12000)]
    (step,) = seen.of("ranges of D")
    assert step.args == {
        "domain": "D", "path": "train/step", "category": 3, "color": "#00ff80",
        "payload": "7", "seq": 5,
    }  # fmt: skip
    assert [item.name for item in seen.of("context 0: loads (stream 17)")] == ["function 0"]


@pytest.mark.parametrize("form", ["chrome", "perfetto"])
def test_trace_window_truncates_ranges(form: str, talker: Talker, run_path: Path) -> None:
    w = talker
    w.say("range-push", "train")
    for step in range(3):
        w.say("range-push", f"step {step}")
        w.event("launch", "cuLaunchKernel", id=0)
        w.say("range-pop", f"step {step}")
        w.epoch()
    w.say("range-pop", "train")
    w.close()
    cuts = tt.open(run_path).epochs["time_ns"].tolist()
    seen, _ = traces.traced(run_path, form, epochs=(1, 1))
    ranges = seen.of("ranges")
    assert [item.name for item in ranges] == ["train", "step 1"]
    assert (ranges[0].begin, ranges[0].end) == (cuts[0], cuts[1])


def test_many_overlapping_ranges(talker: Talker, run_path: Path) -> None:
    w = talker
    random = np.random.default_rng(5)
    going: list[int] = []
    for number in range(1, 600):
        w.say("range-start", f"r{number}", src=number)
        going.append(number)
        while random.random() < 0.5 and going:
            w.say("range-end", src=going.pop(int(random.integers(len(going)))))
    w.close()
    seen, done = traces.traced(run_path)
    assert done.ranges == 599
    assert len(seen.lanes) > 2


@pytest.mark.native
@pytest.mark.parametrize("form", ["chrome", "perfetto"])
def test_recorded_program_has_its_ranges(form: str, built: Path, run_path: Path) -> None:
    program = str(support.build_program("recorder_nvtx", built))
    words = "push:train cuda thread:3 { use name:worker%d times:20 { push:step%d launch domain:D "
    words += "push:in mark:m pop domain: pop start:s end } }"
    done = record([program, *words.split()], support.simulator_environment(), run_path, "--quiet")
    assert done.status == 0, done.stderr
    seen, made = traces.traced(run_path, form)
    assert made.ranges == 1 + 3 * 20 * 4
    for worker in range(3):
        lane = [name for _, name in seen.lanes if name.startswith(f"worker{worker} (thread")]
        assert len(lane) == 3


@pytest.mark.native
def test_info_counts_annotations(built: Path, run_path: Path, cli: Cli) -> None:
    program = str(support.build_program("recorder_nvtx", built))
    words = ["cuda", "push:a", "launch", "pop", "mark:m"]
    done = record([program, *words], support.simulator_environment(), run_path, "--quiet")
    assert done.status == 0, done.stderr
    assert ", 3 annotations\n" in cli("info", run_path).stdout
    (process,) = json.loads(cli("info", run_path, "--json").stdout)["processes"]
    assert process["annotations"] == 3
