"""Runs with several epochs of one call, inside a graph's launch or of several devices: by all that
reads runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.support import Cli
from tests.traces import traced
from ttanalyze.core.values import parse
from ttanalyze.core.writers import HOW, POINTER
from ttanalyze.format import layout
from ttanalyze.format.activities import OWN
from ttanalyze.format.epoch_coverage import INSIDE
from ttanalyze.tui.timeline import Timeline
from ttanalyze.verbs.blame import Condition, blame, find_target, watch
from ttanalyze.verbs.diff import diff
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.report import report
from ttanalyze.verbs.report.data import document
from ttanalyze.verbs.trace import FORMATS

BASE = 0x7F0000000000
SIZE = 1000
CUPTI = {"asked": "cupti", "source": "cupti", "reason": None, "missed": 0, "clock_error_ns": 0}


@pytest.fixture(params=list(FORMATS))
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pointer(region: int) -> bytes:
    return (BASE + (region << 24)).to_bytes(8, "little")


def points_run(
    path: Path,
    labels: tuple[str, ...] = ("fill", "add"),
    odd: int | None = None,
    timeline: bool = False,
    waits: bool = False,
) -> Writer:
    """A graph of fill(0) and add(1, 0), launched three times, with an epoch after each of these
    kernels, which reads what it was given, and at the end. odd: the launch in which add does
    something else.
    """
    w = Writer(path)
    w.function(0, "fill")
    w.function(1, "add")
    w.born(0, bytes(SIZE))  # 1
    w.born(1, bytes(SIZE))  # 2
    w.born(2, b"left alone")  # 3
    w.graph([{"function": 0, "data": pointer(0)}, {"function": 1, "data": pointer(1)}], [(0, 1)])
    for launch in range(3):
        w.event("copy", "cuMemcpyHtoD_v2", dst=BASE + (2 << 24), bytes=4)
        w.write(2, 0, bytes([launch] * 4))
        seq = w.event("graph-launch", id=0, stream=16)
        at = seq * 1000
        cut: dict[str, Any] = {"time_ns": at, "captured_ns": at + 900, "done_ns": at + 950}
        if launch == 0 and labels:
            w.epoch("graph", "full", seq=seq, **cut)
        w.write(0, 0, bytes([launch + 1] * 8))
        if "fill" in labels:
            w.epoch("graph-node", "touched", label="fill", only=[0], seq=seq, **cut)
        w.write(1, 0, bytes([launch + 1 + 100 * (launch == odd)] * 8))
        if "add" in labels:
            w.epoch("graph-node", "touched", label="add", only=[1], seq=seq, **cut)
        if timeline:
            w.activity("launch", seq, at + 50, at + 60, "fill", node=1 << 32)
            w.activity("launch", seq, at + 200, at + 210, "add", node=(1 << 32) + 1)
            for begin, node in ((100, 2), (250, 4)):
                for i, name in enumerate(("digest", "gather")):
                    span = at + begin + 20 * i, at + begin + 20 * i + 15
                    kernel = f"tt_capture_{name}_at"
                    number = (1 << 32) + node + i
                    w.activity("launch", seq, *span, kernel, node=number, flags=OWN)
        if waits:
            w.epoch("sync", seq=w.event("sync"))
    w.epoch("sync", seq=w.event("sync"))
    w.close(timeline=CUPTI if timeline else {})
    return w


# ---- what is made of them ----


def test_coverage_of_epochs_inside_graphs(run_path: Path) -> None:
    points_run(run_path)
    seen = tt.open(run_path).process(0).coverage
    # The first one was cut right before the launch that it is of.
    assert seen.some.tolist() == [5, 6, 6, 8, 8, 10, 10, 11]
    assert seen.whole.tolist() == [5, 5, 5, 7, 7, 9, 9, 11]
    assert [seen.before(e) for e in range(8)] == [None, 0, 1, 2, 3, 4, 5, 6]
    assert [seen.before(e, 0) for e in range(8)] == [None, 0, 1, 1, 3, 3, 5, 5]
    assert [seen.before(e, 1) for e in range(8)] == [None, 0, 0, 2, 2, 4, 4, 6]
    assert [seen.before(e, 2) for e in range(8)] == [None, *[0] * 7]


def test_blame_names_the_launch(cli: Cli, run_path: Path) -> None:
    points_run(run_path)
    run = tt.open(run_path)
    for region, epochs, before in ((0, [0, 1, 3, 5], [0, 1, 3]), (1, [0, 2, 4, 6], [0, 2, 4])):
        changes = blame(find_target(run.process(0), region, 0)).changes
        assert [change.epoch for change in changes] == epochs
        assert [change.since for change in changes[1:]] == before
        suspects = [
            [s.seq for s in c.suspects.listed if s.how == HOW[POINTER]] for c in changes[1:]
        ]
        assert all(launch in of for launch, of in zip((6, 8, 10), suspects, strict=True))
    copied = blame(find_target(run.process(0), 2, 0)).changes[-1]
    assert (copied.since, {s.seq for s in copied.suspects.listed} >= {7, 9}) == (0, True)
    assert "graph-node" in cli("blame", run_path, "--region", "1", "--offset", "0").stdout


def test_watch_finds_the_epoch_inside_a_graph(run_path: Path) -> None:
    points_run(run_path)
    run = tt.open(run_path)
    condition = Condition.parse("== 3", parse("u8"))
    found = watch(run.process(0), condition).sighting
    assert found is not None and (found.epoch, found.since) == (5, 4)
    assert [(h.region, [s.seq for s in h.suspects.listed]) for h in found.hits if h.suspects] == [
        (0, [10, 8])
    ]


def test_memory_inside_a_graph_launch_is_restored(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    w = points_run(run_path)
    run = tt.open(run_path)
    for epoch, held in enumerate(w.history):
        for region, contents in held.items():
            assert run.read(epoch, region).tobytes() == contents
    out = tmp_path / "out.npy"
    assert cli("rewind", run_path, "--epoch", "4", "--region", "1", "-o", out).status == 0


def test_browser_shows_the_launch(run_path: Path) -> None:
    points_run(run_path)
    shown = Timeline(tt.open(run_path).process(0))
    assert shown.calls.between(2, None).records["seq"].tolist() == [6]
    found = shown.calls.between(4, 1)
    assert (found.since, found.records["seq"].tolist()) == (2, [6, 7, 8])
    assert 8 in found.suspects


def test_report_and_tables_show_epochs_inside_graphs(run_path: Path) -> None:
    points_run(run_path, timeline=True)
    run = tt.open(run_path)
    assert document(run)["processes"][0]["epochs"]
    assert report(run)
    rows = query(run, Query("epochs", "trigger == 'graph-node'", fields=["epoch", "label", "seq"]))
    assert rows["label"].tolist() == ["fill", "add"] * 3
    assert rows["seq"].tolist() == [6, 6, 8, 8, 10, 10]
    launches = query(run, Query(filter="kind == 'graph-launch'", fields=["epoch"]))
    assert launches["epoch"].tolist() == [0, 3, 5]


def test_trace_places_epochs_at_their_device_time(run_path: Path, form: str) -> None:
    points_run(run_path, timeline=True)
    seen, _ = traced(run_path, form)
    inside = [i for i in seen.of("epochs") if i.args["trigger"] == "graph-node"]
    assert [(i.begin, i.end) for i in inside[:2]] == [(6100, 6135), (6250, 6285)]
    own = [(i.begin, i.name) for i in seen.of("recorder")]
    assert own[:2] == [(6100, "tt_capture_digest_at"), (6120, "tt_capture_gather_at")]
    graph, *work = [i for i in seen.of("stream 16") if i.args["seq"] == 6]
    assert (graph.begin, graph.end) == (6050, 6210), "the recorder's kernels are no part of it"
    assert [i.name for i in work] == ["fill", "add"]


def test_trace_without_timeline_places_epochs_at_host_time(run_path: Path, form: str) -> None:
    points_run(run_path)
    seen, _ = traced(run_path, form)
    inside = [i for i in seen.of("epochs") if i.args["trigger"] == "graph-node"]
    assert [i.begin for i in inside] == [6900, 6900, 8900, 8900, 10_900, 10_900]


# ---- two runs ----


def parts(a: Path, b: Path) -> list[tuple[int | None, int | None, int | None, int | None]]:
    found = diff(tt.open(a), tt.open(b), every=True)
    return [
        (d.epoch_a, d.epoch_b, d.equal_a, d.region_a)
        for pair in found.processes
        for d in pair.divergences
    ]


def test_equal_runs_with_graph_epochs(tmp_path: Path) -> None:
    points_run(tmp_path / "a")
    points_run(tmp_path / "b", timeline=True)
    found = diff(tt.open(tmp_path / "a"), tt.open(tmp_path / "b"))
    assert found.same and found.processes[0].common == 8


def test_runs_with_epochs_at_other_kernels(tmp_path: Path) -> None:
    """What is inside a launch is not compared with what is behind it, nor with other kernels."""
    names = [("fill", "add"), ("fill",), ("add",), ()]
    for i, labels in enumerate(names):
        points_run(tmp_path / str(i), labels, waits=True)
    for i in range(len(names)):
        for k in range(len(names)):
            found = diff(tt.open(tmp_path / str(i)), tt.open(tmp_path / str(k)))
            common = {*names[i]} & {*names[k]}
            assert found.same, (names[i], names[k])
            whole = 5 if names[i] and names[k] else 4
            assert found.processes[0].common == whole + 3 * len(common)


def test_diff_finds_the_node_that_differs(tmp_path: Path) -> None:
    points_run(tmp_path / "a")
    points_run(tmp_path / "b", odd=1)
    found = diff(tt.open(tmp_path / "a"), tt.open(tmp_path / "b"))
    (divergence,) = found.processes[0].divergences
    assert (divergence.epoch_a, divergence.region_a, divergence.equal_a) == (4, 1, 3)
    assert [s.seq_a for s in divergence.suspects if s.how == HOW[POINTER]] == [6, 8]


# ---- recorded programs ----


def record(name: str, path: Path, built: Path, simulated: dict[str, str], **options: str) -> tt.Run:
    environment = support.simulator_environment(**simulated)
    command = [str(support.build_program(name, built))]
    outcome = support.run(command, support.recording(environment, path, **options))
    assert outcome.status == 0, outcome.stderr
    return tt.open(path)


@pytest.mark.native
@pytest.mark.large
@pytest.mark.parametrize("regions", ["all", "touched"])
@pytest.mark.parametrize("timeline", ["cupti", "off"])
def test_recorded_graph_epochs_are_compared(
    built: Path, tmp_path: Path, cli: Cli, timeline: str, regions: str
) -> None:
    runs = []
    for seed, nodes in (("1", "fill|add"), ("2", "fill|add"), ("3", "^add")):
        options = {"regions": regions, "epoch": f"sync;graph-node:{nodes}", "timeline": timeline}
        simulated = {"TT_SIM_SCHEDULE": "random", "TT_SIM_SEED": seed}
        runs.append(record("recorder_graph_epochs", tmp_path / seed, built, simulated, **options))
    process = runs[0].process(0)
    inside = np.flatnonzero(process.epochs["trigger"] == INSIDE)
    if timeline == "cupti":
        captures = process.captures
        assert (captures.begins[inside] > process.epochs["time_ns"][inside].astype("i8")).all()
        assert (captures.ends[inside][:-1] <= captures.begins[inside][1:]).all()
    for form in FORMATS:
        seen, _ = traced(runs[0].path, form)
        assert len(seen.of("epochs")) == len(process.epochs)
    for epoch in inside.tolist():
        records = process.digests(epoch, epoch + 1)
        for region in records["region"][records["changed"] > 0].tolist():
            found = blame(find_target(process, region), (epoch, epoch)).changes[-1]
            wanted = int(process.epochs["seq"][epoch])
            assert found.epoch == epoch
            assert wanted in {s.seq for s in found.suspects.listed}
    assert report(runs[0])
    assert cli("verify", runs[0].path).status == 0
    for other in runs[1:]:
        told = json.loads(cli("diff", runs[0].path, other.path, "--json").stdout)
        pair = told["processes"][0]
        assert pair["launches"] is None or not pair["launches"]["stretches"], pair["launches"]


@pytest.mark.native
@pytest.mark.large
def test_graph_epochs_on_two_devices_are_compared(built: Path, tmp_path: Path, cli: Cli) -> None:
    runs = []
    for seed in ("1", "2"):
        simulated = {"TT_SIM_DEVICES": "2", "TT_SIM_SCHEDULE": "random", "TT_SIM_SEED": seed}
        options = {"epoch": "api", "timeline": "cupti"}
        runs.append(
            record("recorder_several_devices", tmp_path / seed, built, simulated, **options)
        )
    process = runs[0].process(0)
    seqs = layout.distinct(process.epochs["seq"])
    assert len(seqs) < len(process.epochs)
    assert (process.captures.begins > 0).all()
    for form in FORMATS:
        seen, _ = traced(runs[0].path, form)
        assert len({i.lane for i in seen.of("epochs")}) == 2
    assert diff(*runs).same
    last = len(process.epochs) - 1
    region = int(process.digests(last, last + 1)["region"][0])
    change = blame(find_target(process, region, 0)).changes[-1]
    assert change.since is not None and change.suspects.listed
    of = process.epochs["context"]
    assert of[change.since] == of[change.epoch]
