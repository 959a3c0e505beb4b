"""Traces of runs with a GPU timeline: the GPU's work is where it was, and nothing overlaps."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import recordings
from tests.rundir import Writer
from tests.traces import Item, traced
from ttanalyze.format.activities import OWN
from ttanalyze.verbs.trace import FORMATS, calls, rows, trace, work

KERNEL = "_Z4stepPf"
CUPTI = {"asked": "cupti", "source": "cupti", "reason": None, "missed": 0, "clock_error_ns": 1500}


@pytest.fixture(params=list(FORMATS))
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def spans(items: list[Item]) -> list[tuple[str, int, int]]:
    return [(i.name, i.begin, i.end) for i in items]


def test_work_is_drawn_at_its_time_with_an_arrow_from_its_call(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    w.function(0, KERNEL)
    w.event("launch", "cuLaunchKernel", id=0, stream=16)
    w.event("copy", "cuMemcpyHtoD_v2", stream=16, bytes=64, flags=16)
    w.event("launch", "cuLaunchKernel", id=0, stream=17)
    w.activity("copy", 2, 90_000, 95_000, bytes=64)
    w.activity("launch", 3, 10_000, 12_345, KERNEL)
    w.activity("launch", 1, 50_000, 90_000, KERNEL)
    w.close(timeline=CUPTI)
    seen, done = traced(run_path, form)
    assert spans(seen.of("stream 16")) == [
        ("step", 50_000, 90_000),
        ("copy from host", 90_000, 95_000),
    ]
    assert spans(seen.of("stream 17")) == [("step", 10_000, 12_345)]
    assert [(i.name, i.begin) for i in seen.calls] == [
        ("step", 1000),
        ("cuMemcpyHtoD_v2", 2000),
        ("step", 3000),
    ]
    came_from = {i.flow_out: i.args["seq"] for i in seen.calls}
    assert all(came_from[i.flow_in] == i.args["seq"] for i in seen.of("stream"))
    assert done.arrows == 3 and done.lanes == 3


def test_calls_without_times_have_their_own_lane(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    w.function(0, KERNEL)
    for _ in range(2):
        w.event("launch", "cuLaunchKernel", id=0, stream=16)
    w.event("event-record", stream=16, src=5)
    w.activity("launch", 1, 900, 90_000, KERNEL)
    w.close()
    seen, done = traced(run_path, form)
    (known,) = [i for i in seen.of("stream 16") if "no GPU time" not in i.lane]
    assert (known.begin, known.end) == (1000, 90_000), "not before its call"
    unknown, record = seen.of("stream 16, no GPU time")
    assert (unknown.begin, unknown.args["GPU time"]) == (2000, "unknown")
    assert record.category == "event-record" and "GPU time" not in record.args
    assert all("GPU time" not in i.args for i in seen.calls)
    assert done.arrows == 3


def test_waits_have_their_duration(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    w.event("sync", "cuCtxSynchronize")
    w.event("copy", "cuMemcpyHtoD_v2", flags=4 + 8)
    w.event("sync", "cuCtxSynchronize", thread=7)
    w.activity("sync", 1, 1100, 1900, stream=0)
    w.activity("copy", 2, 3000, 50_000)
    w.activity("sync", 3, 3500, 70_000, stream=0)
    w.close()
    seen, _ = traced(run_path, form)
    assert {i.args["seq"]: (i.begin, i.end) for i in seen.calls} == {
        1: (1000, 1900),
        2: (2000, 50_000),
        3: (3000, 70_000),
    }
    assert spans(seen.of("stream")) == [("copy to host", 3000, 50_000)]


def test_graph_nodes_lie_within_the_graph(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    w.event("graph-launch", stream=16)
    w.event("graph-launch", stream=16)
    w.activity("launch", 1, 10_000, 20_000, KERNEL, node=7, stream=90)
    w.activity("copy", 1, 20_000, 30_000, node=8, stream=91, bytes=5)
    w.activity("launch", 1, 22_000, 40_000, "scale", node=9)
    w.activity("graph-launch", 2, 50_000, 80_000)
    w.activity("set", 2, 49_000, 60_000, bytes=9, node=3)
    w.close()
    seen, done = traced(run_path, form)
    first, second, *inside = [i for i in seen.of("stream 16") if "(2)" not in i.lane]
    assert spans([first, second]) == [
        ("graph-launch", 10_000, 40_000),
        ("graph-launch", 49_000, 80_000),
    ]
    assert spans(inside) == [
        ("step", 10_000, 20_000),
        ("copy", 20_000, 30_000),
        ("set", 49_000, 60_000),
    ]
    (beside,) = seen.of("stream 16 (2)")
    assert spans([beside]) == [("scale", 22_000, 40_000)]
    assert [i.args["node"] for i in [*inside, beside]] == [7, 8, 3, 9]
    assert inside[0].args["kernel"] == "step(float*)" and inside[1].args["bytes"] == 5
    assert [i.args["seq"] for i in [*inside, beside]] == [1, 1, 2, 1]
    assert done.arrows == 2 and first.flow_in and second.flow_in


def test_stream_waits_are_drawn(run_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = Writer(run_path)
    w.event("launch", "cuLaunchKernel", stream=16)  # 1
    w.event("event-record", stream=16, src=5)
    w.event("launch", "cuLaunchKernel", stream=17)  # 3
    w.event("event-wait", stream=17, src=5)  # 4
    w.event("launch", "cuLaunchKernel", stream=17)  # 5
    w.event("event-record", stream=17, src=6)
    w.event("event-wait", stream=18, src=6)  # 7
    w.event("event-wait", stream=16, src=99)  # 8, never recorded
    w.event("event-wait", stream=17, src=5)  # 9, which is over by then
    w.event("event-wait", stream=18, src=6, result=400)
    w.event("event-record", stream=16, src=5, flags=1)
    for seq, begin, end in ((1, 10_000, 30_000), (3, 11_000, 15_000), (5, 30_100, 40_000)):
        w.activity("launch", seq, begin, end)
    w.close()
    for _ in range(2):
        seen, done = traced(run_path, form)
        waits = {i.args["seq"]: i for i in seen.of("stream") if i.category == "event-wait"}
        assert {seq: "no GPU time" in i.lane for seq, i in waits.items()} == {
            4: False,
            7: False,
            8: True,
            9: True,
        }
        assert (waits[4].begin, waits[4].end) == (15_000, 30_000)
        assert (waits[7].begin, waits[7].end) == (7000, 40_000)
        assert not seen.of("(2)") and done.arrows == 9
        monkeypatch.setattr(calls, "PIECE", 2)


def test_recorder_work_and_unattributed_work(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    w.function(0, "tt_of_the_program")
    w.event("launch", "cuLaunchKernel", id=0)
    w.epoch()
    w.activity("launch", 1, 5000, 6000, "tt_of_the_program")
    w.activity("launch", 0, 7000, 8000, "tt_capture_digest", stream=0, flags=OWN)
    w.activity("launch", 0, 7500, 8500, "tt_capture_digest", stream=0, device=1, flags=OWN)
    w.activity("launch", 0, 7600, 8600, "tt_capture_gather", stream=0, flags=OWN)
    w.activity("copy", 0, 8600, 8700, stream=0, bytes=7, flags=OWN)
    w.activity("set", 0, 8700, 8800, stream=0, bytes=7, flags=OWN)
    w.activity("copy", 0, 9000, 9100, stream=0)
    w.activity("launch", 0, 9200, 9300, "tt_of_the_program", stream=0)
    w.activity("launch", 77, 9000, 9100, KERNEL)
    w.activity("sync", 0, 9000, 9100)
    w.close()
    seen, done = traced(run_path, form)
    assert spans(seen.of("default stream")) == [("tt_of_the_program", 5000, 6000)]
    assert sorted((i.lane, i.name) for i in seen.of("recorder")) == [
        ("GPU 0: recorder", "copy"),
        ("GPU 0: recorder", "set"),
        ("GPU 0: recorder", "tt_capture_digest"),
        ("GPU 0: recorder (2)", "tt_capture_gather"),
        ("GPU 1: recorder", "tt_capture_digest"),
    ]
    assert sorted(spans(seen.of("unattributed work"))) == [
        ("copy", 9000, 9100),
        ("step", 9000, 9100),
        ("tt_of_the_program", 9200, 9300),
    ]
    assert done.calls == 2 and done.arrows == 2


def test_epoch_window_limits_the_work(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    for _ in range(3):
        seq = w.event("launch", "cuLaunchKernel")
        w.activity("launch", seq, seq * 1000 + 200, seq * 1000 + 400, KERNEL)
        w.activity("launch", 0, seq * 1000 + 500, seq * 1000 + 600, "tt_digest", flags=OWN)
        w.epoch()
    w.close()
    seen, _ = traced(run_path, form, epochs=(1, 1))
    assert [i.args["seq"] for i in seen.of("stream")] == [3]
    assert [i.begin for i in seen.of("recorder")] == [3500]


def test_time_precision_is_stated(run_path: Path) -> None:
    w = Writer(run_path)
    w.event("launch", "cuLaunchKernel")
    w.activity("launch", 1, 2000, 3000, flags=1)
    w.close(timeline={**CUPTI, "source": "events"})
    out = io.BytesIO()
    trace(tt.open(run_path), out)
    (labels,) = [
        event["args"]["labels"]
        for event in json.loads(out.getvalue())["traceEvents"]
        if event["name"] == "process_labels"
    ]
    assert labels == "p0, Test Device, GPU times by events, ±1,500 ns"
    (item,) = traced(run_path)[0].of("stream")
    assert item.args["coarse"] is True


def crowded(path: Path, seed: int, count: int = 300) -> Writer:
    """Streams and graphs whose work overlaps, comes in any order, or is of no call."""
    random = np.random.default_rng(seed)
    w = Writer(path)
    w.function(0, KERNEL)
    made = []
    now = 1000
    for _ in range(count):
        kind = str(random.choice(["launch", "copy", "graph-launch", "sync", "event-wait"]))
        stream = int(random.integers(16, 19))
        flags = int(random.choice([0, 4]))
        seq = w.event(kind, stream=stream, thread=70 + int(random.integers(3)), id=0, flags=flags)
        now = max(now, seq * 1000) + int(random.choice([0, 10, 5000]))
        if kind == "event-wait" or random.random() < 0.1:
            continue
        for _ in range(int(random.integers(1, 9)) if kind == "graph-launch" else 1):
            begin = now + int(random.choice([-2000, 0, 0, 700]))
            end = begin + int(random.choice([0, 500, 500, 9000]))
            what = kind if kind != "graph-launch" else str(random.choice(["launch", "set"]))
            made.append((what, seq, max(begin, 0), max(end, 0), kind == "graph-launch"))
            now += int(random.choice([0, 200]))
        if kind == "graph-launch" and random.random() < 0.5:
            made.append(("graph-launch", seq, now, now + 3000, False))
        if random.random() < 0.1:
            made.append(("launch", seq * 1000, now, now + 100, False))
    random.shuffle(made)
    for kind, seq, begin, end, of_graph in made:
        name = KERNEL if kind == "launch" else None
        w.activity(kind, seq, begin, end, name, node=int(of_graph), stream=0)
    w.close(timeline=CUPTI)
    return w


@pytest.mark.parametrize("layers", [128, 2])
@pytest.mark.parametrize("seed", range(3))
def test_overlapping_work_is_drawn_once_and_nests(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, seed: int, layers: int
) -> None:
    monkeypatch.setattr(work, "LAYERS", layers)
    crowded(run_path, seed)
    process = tt.open(run_path).processes[0]
    done = [a for a in process.activities.between(-1, 1 << 60) if a["kind"] not in (3, 12)]
    for pieces in (False, True):
        if pieces:
            monkeypatch.setattr(calls, "PIECE", 7)
            monkeypatch.setattr(rows, "TEMPLATES", 5)
            monkeypatch.setattr(work, "PIECE", 7)
        seen, _ = traced(run_path, form)
        shown = [i for i in seen.of(": ") if i.category in ("launch", "copy", "set")]
        shown = [i for i in shown if "no GPU time" not in i.lane]
        assert len(shown) == len(done)
        if layers == 2:
            continue
        made = {int(e["seq"]): int(e["time_ns"]) for e in process.events}
        threads = {i.args["seq"]: i.begin for i in seen.calls}
        expected: Counter[tuple[int, int]] = Counter()
        for a in done:
            since = threads.get(int(a["seq"]), 0)
            assert since >= made.get(int(a["seq"]), 0)
            begin = max(int(a["begin_ns"]), since)
            expected[begin, max(int(a["end_ns"]), begin)] += 1
        assert Counter((i.begin, i.end) for i in shown) == expected


def test_both_formats_are_equivalent(run_path: Path) -> None:
    crowded(run_path, 9)
    assert traced(run_path, "chrome")[0] == traced(run_path, "perfetto")[0]


def test_absurd_times_are_accepted(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    for _ in range(5):
        w.event("launch", "cuLaunchKernel")
    for seq, begin, end in ((1, 0, 0), (2, 0, (1 << 63) - 1), (3, 1 << 62, (1 << 63) - 1)):
        w.activity("launch", seq, begin, end)
    w.activity("launch", (1 << 64) - 1, 5, 6, stream=(1 << 64) - 1, context=(1 << 32) - 1)
    w.activity("launch", 0, 5, 6, device=(1 << 32) - 1)
    w.close()
    seen, _ = traced(run_path, form)
    assert len(seen.of(": ")) == 7
    assert {i.lane for i in seen.of("unattributed")} == {
        "GPU 0: unattributed work",
        "unknown GPU: unattributed work",
    }


# ---- recorded programs ----


@pytest.mark.native
@pytest.mark.parametrize("source", ["cupti", "events"])
@pytest.mark.parametrize("name", ["training", "pipeline", "graph", "async"])
def test_traces_of_recorded_programs(built: Path, tmp_path: Path, name: str, source: str) -> None:
    run = tt.open(recordings.record_example(name, built, tmp_path / "run", "--timeline", source))
    assert run.process(0).info["timeline"]["source"] == source
    for form in FORMATS:
        seen, _ = traced(run.path, form)
        threads = {i.args["seq"]: i for i in seen.calls}
        in_streams = [i for i in seen.of("stream") if "no GPU time" not in i.lane]
        work = [i for i in in_streams if i.category in ("launch", "copy", "set")]
        known = run.activities
        asked = known[known["seq"].notna() & known["kind"].isin(["launch", "copy", "set"])]
        columns = (asked[name].tolist() for name in ("seq", "begin_ns", "end_ns"))
        assert Counter((i.args["seq"], i.begin, i.end) for i in work) == Counter(
            (seq, *(max(time, threads[seq].begin) for time in times))
            for seq, *times in zip(*columns, strict=True)
        )
        graphs = {i.args["seq"]: i for i in in_streams if i.category == "graph-launch"}
        assert len(graphs) == (run.events["kind"] == "graph-launch").sum()
        for item in work:
            graph = graphs.get(item.args["seq"])
            assert graph is None or graph.begin <= item.begin <= item.end <= graph.end
        if source == "cupti":
            own = Counter(i.category for i in seen.of("recorder"))
            assert own == Counter(known["kind"][known["own"]]) and own["launch"] > 0
        events = run.events[run.events["kind"].isin(["launch", "copy", "set"])]
        unseen = set(events[events["flags"] & 1 == 0]["seq"]) - {i.args["seq"] for i in work}
        assert unseen <= {i.args["seq"] for i in seen.of("no GPU time")}
