"""When the GPU ran the nodes of graphs: a launch's work brought together with the graph's nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ttanalyze as tt
from tests import recordings, support
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.format.activities import OWN
from ttanalyze.format.graphs import DISABLED, FLAGS
from ttanalyze.output.times import as_nanoseconds
from ttanalyze.verbs import graphs
from ttanalyze.verbs.events import events
from ttanalyze.verbs.query import Query, query

A, B = {"function": 0}, {"function": 1}
COPY: dict[str, Any] = {"kind": "copy", "bytes": 64}
SET: dict[str, Any] = {"kind": "set", "bytes": 64}
EMPTY: dict[str, Any] = {"kind": "empty"}
CHILD: dict[str, Any] = {"kind": "graph"}
NAMES = {"a": "_Z1aPf", "b": "b"}
Ran = list[tuple[int, str]]  # the driver's number, and the kernel or what it is


def launched(path: Path, nodes: list[dict[str, Any]], *launches: Ran, **members: int) -> tt.Run:
    """A graph and its launches. What a launch did takes 1, 2, 3, … µs, one after the other."""
    w = Writer(path)
    w.function(0, NAMES["a"])
    w.function(1, NAMES["b"])
    w.graph(nodes)
    for ran in launches:
        seq = w.event("graph-launch", id=0, stream=16)
        at = seq * 100_000
        for i, (number, what) in enumerate(ran):
            end = at + 1000 * (i + 1)
            kind = "launch" if what in NAMES else what
            w.activity(kind, seq, at, end, NAMES.get(what), node=number, stream=0, **members)
            at = end
    w.close()
    return tt.open(path)


def times(run: tt.Run, seq: int = 2) -> dict[int, int]:
    """Microseconds that each node took in a launch."""
    found = run.process(0).node_times.of(0, seq)
    took = dict(zip(found.nodes.tolist(), (found.took // 1000).tolist(), strict=True))
    assert list(took) == sorted(took)
    return took


EXECUTABLE = 2 << 32


def of(graph: int, *ran: tuple[int, str]) -> Ran:
    return [((graph << 32) + number, what) for number, what in ran]


@pytest.mark.parametrize(
    ("nodes", "ran", "expected"),
    [
        # In whatever order they ran, and whatever does no work in between.
        (
            [A, EMPTY, B, COPY, SET],
            of(2, (3, "copy"), (0, "a"), (4, "set"), (2, "b")),
            {3: 1, 0: 2, 4: 3, 2: 4},
        ),
        ([A, A, A], of(2, (7, "a"), (2, "a"), (3, "a")), {2: 1, 0: 2, 1: 3}),
        # What is switched off does not run.
        ([A, {**B, "flags": DISABLED}, A], of(2, (0, "a"), (2, "a")), {0: 1, 2: 2}),
        # Too few, too many, other kernels, other kinds.
        ([A, B], of(2, (0, "a")), {}),
        ([A, B], of(2, (0, "a"), (1, "b"), (2, "b")), {}),
        ([A, B], of(2, (0, "b"), (1, "a")), {}),
        ([A, COPY], of(2, (0, "a"), (1, "set")), {}),
        ([{"function": 9}], of(2, (0, "a")), {}),
        # What is not numbered.
        ([A], [(0, "a")], {}),
    ],
)  # fmt: skip
def test_activities_are_matched_by_node_id(
    run_path: Path, nodes: list[dict[str, Any]], ran: Ran, expected: dict[int, int]
) -> None:
    assert times(launched(run_path, nodes, ran)) == expected


INSIDE = [A, CHILD, {**B, "parent": 1}, {**COPY, "parent": 1}, B]  # work: 0, 2, 3, 4


@pytest.mark.parametrize(
    ("nodes", "ran", "expected"),
    [
        # Numbered behind the graph that they are in, before it, and as if they were its own.
        (
            INSIDE,
            [*of(2, (0, "a"), (2, "b")), *of(3, (0, "b"), (1, "copy"))],
            {0: 1, 4: 2, 2: 3, 3: 4},
        ),
        (
            INSIDE,
            [*of(5, (0, "a"), (2, "b")), *of(4, (0, "b"), (1, "copy"))],
            {0: 1, 4: 2, 2: 3, 3: 4},
        ),
        (INSIDE, of(2, (0, "a"), (1, "b"), (2, "copy"), (3, "b")), {0: 1, 2: 2, 3: 3, 4: 4}),
        # Numbered as graphs are that are not there.
        (INSIDE, [*of(2, (0, "a")), *of(3, (0, "b"), (1, "copy"), (2, "b"))], {}),
        # More than one way fits.
        ([A, CHILD, {**A, "parent": 1}, A], of(2, (0, "a"), (1, "a"), (2, "a")), {}),
        ([A, CHILD, {**A, "parent": 1}], [*of(2, (0, "a")), *of(3, (0, "a"))], {}),
        # A graph in a graph in a graph.
        (
            [CHILD, {**CHILD, "parent": 0}, {**A, "parent": 1}, {**B, "parent": 0}, COPY],
            [*of(2, (1, "copy")), *of(3, (1, "b")), *of(4, (0, "a"))],
            {4: 1, 3: 2, 2: 3},
        ),
        # Two of them, which are numbered one after the other.
        (
            [CHILD, {**A, "parent": 0}, CHILD, {**A, "parent": 2}, COPY],
            [*of(2, (2, "copy")), *of(3, (0, "a")), *of(4, (0, "a"))],
            {4: 1, 1: 2, 3: 3},
        ),
    ],
)  # fmt: skip
def test_activities_of_child_graphs(
    run_path: Path, nodes: list[dict[str, Any]], ran: Ran, expected: dict[int, int]
) -> None:
    assert times(launched(run_path, nodes, ran)) == expected


@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        (of(2, (0, "a"), (1, "b"), (1, "b"), (2, "a")), {0: 1, 2: 5, 3: 4}),
        (of(2, (0, "a"), (2, "a")), {0: 1, 3: 2}),
        (of(2, (0, "a")), {}),
    ],
)
def test_conditional_bodies_run_many_times(
    run_path: Path, ran: Ran, expected: dict[int, int]
) -> None:
    body = {**B, "parent": 1, "flags": FLAGS["conditional"]}
    nodes: list[dict[str, Any]] = [A, {"kind": "conditional", "dst": 1}, body, A]
    run = launched(run_path, nodes, ran)
    assert times(run) == expected
    if 2 in expected:
        found = [r for r in events(run) if r.get("node") == 2]
        assert [(r["gpu_begin_ns"], r["gpu_end_ns"]) for r in found] == [(201_000, 206_000)]


def test_recorder_kernels_do_not_count(run_path: Path) -> None:
    w = Writer(run_path)
    w.function(0, NAMES["a"])
    w.graph([A])
    w.event("graph-launch", id=0)
    w.activity("launch", 2, 2000, 3000, NAMES["a"], node=EXECUTABLE)
    for number, name in enumerate(("digest", "gather"), 1):
        kernel = f"tt_capture_{name}_at"
        w.activity("launch", 2, 4000, 9000, kernel, node=EXECUTABLE + number, flags=OWN)
    w.close()
    run = tt.open(run_path)
    assert times(run) == {0: 1}
    (launch,) = query(run, Query(filter="kind == 'graph-launch'", fields=["gpu_time"]))["gpu_time"]
    assert launch == pd.Timedelta(1000)


def test_kernel_records_have_times(run_path: Path) -> None:
    ran = of(2, (0, "a"), (1, "b"))
    run = launched(run_path, [A, B], ran, ran[:1], ran)
    found = [
        (r["seq"], r["node"], r["gpu_begin_ns"], r["gpu_end_ns"])
        for r in events(run)
        if "node" in r
    ]
    assert found == [
        (2, 0, 200_000, 201_000),
        (2, 1, 201_000, 203_000),
        (3, 0, None, None),
        (3, 1, None, None),
        (4, 0, 400_000, 401_000),
        (4, 1, 401_000, 403_000),
    ]


def test_mean_times_are_those_of_matching_launches(cli: Cli, run_path: Path) -> None:
    """Of the launches whose nodes are those that are shown, whatever these do."""
    w = Writer(run_path)
    w.function(0, NAMES["a"])
    w.graph([A])
    for took in (1000, 4000, 2000):
        if took == 2000:
            seq = w.event("graph-update", id=0)
            w.graph([COPY, A], seq=seq, remakes=0)
        seq = w.event("graph-launch", id=0)
        w.activity("launch", seq, 9000, 9000 + took, NAMES["a"], node=EXECUTABLE + 1)
        if took == 2000:
            w.activity("copy", seq, 9000, 9100, node=EXECUTABLE, bytes=8)
        elif took == 1000:
            w.node(0, 0, w.event("graph-update", id=0), function=0, bytes=1)
    w.close()
    run = tt.open(run_path)
    assert as_nanoseconds(graphs.graph(run, 0, seq=2).nodes)["gpu_time"].tolist() == [2500]
    assert as_nanoseconds(graphs.graph(run, 0, seq=4).nodes)["gpu_time"].tolist() == [2500]
    assert as_nanoseconds(graphs.graph(run, 0).nodes)["gpu_time"].tolist() == [100, 2000]
    nodes = query(run, Query("nodes", fields=["node", "gpu_time"]))
    assert nodes["gpu_time"].astype("i8").tolist() == [100, 2000]
    shown = cli("graph", run_path, "--graph", "0").stdout.splitlines()
    assert "time" in shown[-3] and "100 ns" in shown[-2] and "2 µs" in shown[-1]
    said = json.loads(cli("graph", run_path, "--graph", "0", "--json").stdout)
    assert [node["gpu_time"] for node in said["nodes"]] == [100, 2000]


def test_no_node_times_without_a_timeline(cli: Cli, run_path: Path) -> None:
    run = launched(run_path, [A], [])
    assert graphs.graph(run, 0).nodes["gpu_time"].isna().all()
    assert "time" not in cli("graph", run_path, "--graph", "0").stdout
    assert query(run, Query("nodes", fields=["gpu_time"]))["gpu_time"].isna().all()
    Writer(run_path.with_name("none")).close()
    none = tt.open(run_path.with_name("none"))
    assert len(query(none, Query("nodes", fields=["gpu_time"]))) == 0


# ---- recorded programs ----


@pytest.mark.native
@pytest.mark.parametrize(
    ("name", "epoch"),
    [
        ("example-graph", "none"),
        ("example-graph", "graph-node:."),
        ("recorder_graph_epochs", "graph-node:."),
        ("graph_children", "none"),
        ("graph_updates", "none"),
        ("graph_nodes", "none"),
    ],
)
def test_node_times_of_recorded_programs(
    built: Path, tmp_path: Path, name: str, epoch: str
) -> None:
    path = tmp_path / "run"
    sim = support.simulator_environment()
    command = support.command(name, built)
    bare = support.run(command, sim)
    recorded = support.recording(sim, path, timeline="cupti", epoch=epoch)
    recordings.compare(name, bare, support.run(command, recorded))
    run = tt.open(path)
    done = run.activities[run.activities["node"].notna()]
    columns = (done[c].tolist() for c in ("seq", "kernel", "begin_ns", "end_ns"))
    ran = set(zip(*columns, strict=True))
    kernels = [r for r in events(run) if r.get("node") is not None]
    assert kernels
    for record in kernels:
        span = record["gpu_begin_ns"], record["gpu_end_ns"]
        assert (record["seq"], record["kernel_name_mangled"], *span) in ran
    each = [(r["seq"], r["gpu_begin_ns"]) for r in kernels]
    assert len(set(each)) == len(each), "no two have the times of one"
