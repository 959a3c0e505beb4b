"""Executable graphs: what is recorded of them, and what is made of that."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import recordings, replay, support
from tests.graph_memory import check_graph_memory
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.format import graphs, layout
from ttanalyze.format.process import Process

SIM = support.simulator_environment()
UPDATES, CHILDREN = 18, 25  # launches that the programs make
KERNEL_EVENTS = ("kernel_launch", "graph_launch", "kernel_node")


def record(name: str, built: Path, run: Path, **options: str) -> tt.Run:
    """Records a test program on the simulator; it must do what it does without us."""
    command = support.command(name, built)
    bare = support.run(command, SIM)
    environment = support.recording(SIM, run, **options)
    recordings.compare(name, bare, support.run(command, environment))
    return tt.open(run)


def launches(process: Process) -> list[tuple[int, int]]:
    """Graph and seq of each launch of a graph."""
    events = process.events[process.events["kind"] == layout.EVENT_KINDS.index("graph-launch")]
    return [(int(e["id"]), int(e["seq"])) for e in events]


def kernels(process: Process, graph: int, seq: int) -> list[tuple[str | None, bytes]]:
    """Name and parameters of the kernels that a launch ran, in order."""
    nodes = process.graphs.nodes(graph, seq)[process.graphs.order(graph, seq)]
    return [
        (process.kernel(int(node["function"])), process.graphs.data(node))
        for node in nodes
        if node["kind"] == graphs.KERNEL and not node["flags"] & graphs.DISABLED
    ]


# ---- what is recorded ----


@pytest.mark.native
@pytest.mark.parametrize("deps", ["region", "device"])
@pytest.mark.parametrize("regions", ["all", "touched"])
@pytest.mark.parametrize(
    ("name", "count"),
    [("graph_updates", UPDATES), ("graph_children", CHILDREN), ("graph_library", 3)],
)
def test_recorded_nodes_reproduce_each_launch(
    name: str, count: int, regions: str, deps: str, built: Path, run_path: Path
) -> None:
    """Each launch is done again from the record; memory must be the same after each."""
    run = record(name, built, run_path, epoch="graph", regions=regions, deps=deps)
    assert replay.check(run) == count
    assert not run.warnings
    assert not run.epochs["loose"].any()
    report = tt.verify(run, run_path / "manifest.json")
    assert report.same


@pytest.mark.native
def test_library_kernels_keep_one_identity(built: Path, run_path: Path) -> None:
    """Whichever handle the driver has for them: launches into a stream name them as well."""
    run = record("graph_library", built, run_path)
    (process,) = run.processes
    names = [[name for name, _ in kernels(process, *at)] for at in launches(process)]
    assert names == [["fill"], ["add"], ["fill", "add"]]
    assert len(process.functions) == 2
    assert set(process.functions["module"]) == {0}
    assert run.functions["checksum"].notna().all()


@pytest.mark.native
def test_epochs_at_graph_launches(built: Path, run_path: Path) -> None:
    run = record("graph_updates", built, run_path, epoch="graph", regions="touched")
    cut = run.epochs[run.epochs["trigger"] == "graph"]
    assert len(cut) == UPDATES
    assert cut["label"].tolist()[-5:] == ["graph 0", "graph 1", "graph 0", "graph 0", "graph 1"]
    # Its nodes name three regions; module variables are not looked at.
    assert set(cut["bytes_read"][~cut["full"]]) == {12000}
    assert set(run.epochs["trigger"]) <= {"graph", "final"}


@pytest.mark.native
def test_touched_mode_reads_only_memory_that_a_graph_names(built: Path, run_path: Path) -> None:
    """Of what a graph does not name nothing is read, of what it comes to name, all is."""
    run = record("graph_children", built, run_path, epoch="graph", regions="touched")
    cut = run.epochs[~run.epochs["full"]]
    both, one = 8000, 4000
    assert cut["bytes_read"].tolist() == [both] * 4 + [one] * 20


@pytest.mark.native
def test_graph_construction_calls_are_events(built: Path, run_path: Path) -> None:
    run = record("graph_updates", built, run_path, epoch="none")
    events = run.events
    counts = events["kind"].value_counts()
    assert counts["graph-instantiate"] == 2
    assert counts["graph-destroy"] == 2
    updates = events[events["kind"] == "graph-update"]
    refused = updates[updates["result"] != 0]
    assert refused["result"].tolist() == [910]
    assert refused["bytes"].tolist() == [0]
    whole = updates[updates["call"] == "cuGraphExecUpdate_v2"]
    assert whole["bytes"].tolist() == [8, 0]  # all but the graph inside, as a node; the other
    process = run.processes[0]
    for number, ended in enumerate(process.graphs.ended.tolist()):
        destroyed = events[(events["kind"] == "graph-destroy") & (events["id"] == number)]
        assert destroyed["seq"].tolist() == [ended]
    assert int(refused["seq"].iloc[0]) not in process.graphs.changes(0).tolist()


@pytest.mark.native
@pytest.mark.parametrize("seed", range(3))
def test_graphs_of_many_threads(seed: int, built: Path, run_path: Path) -> None:
    command = support.command("graph_threads", built)
    bare = support.run(command, SIM)
    environment = SIM | {"TT_SIM_SCHEDULE": "random", "TT_SIM_SEED": str(seed)}
    options = {"epoch": "graph", "regions": "touched"}
    outcome = support.run(command, support.recording(environment, run_path, **options))
    recordings.compare("graph_threads", bare, outcome)
    run = tt.open(run_path)
    (process,) = run.processes
    assert len(process.graphs) == 4 * 3
    threads: dict[int, list[int]] = {}
    for event in process.events[process.events["kind"] == layout.EVENT_KINDS.index("graph-launch")]:
        ((name, params),) = kernels(process, int(event["id"]), int(event["seq"]))
        assert name == "add"
        threads.setdefault(int(event["thread"]), []).append(struct.unpack_from("<QII", params)[2])
    found = sorted(threads.values())
    assert found == [[thread * 1000 + i for i in range(60)] for thread in range(1, 5)]
    assert tt.verify(run, run_path / "manifest.json").same


@pytest.mark.native
def test_conditional_bodies_are_listed(built: Path, run_path: Path, cli: Cli) -> None:
    """Their bodies are known, but not which of them ran, and how often."""
    run = record("graph_conditional", built, run_path)
    (process,) = run.processes
    nodes = process.graphs.nodes(0)
    kinds = [graphs.KINDS[kind] for kind in nodes["kind"]]
    inside = ["conditional", "kernel"]
    assert kinds == ["kernel", *inside, *inside, "conditional", *["kernel"] * 3]
    assert nodes["parent"].tolist()[6:] == [5, 5, 5]
    assert nodes["branch"].tolist()[6:] == [0, 1, 2]
    maybe = nodes["flags"] & graphs.FLAGS["conditional"] != 0
    assert maybe.tolist() == [False, False, True, False, True, False, True, True, True]
    found = [json.loads(line) for line in cli("events", run_path).stdout.splitlines()]
    assert [r["type"] for r in found] == ["graph_launch", "kernel_launch", *["kernel_node"] * 5] * 2
    assert [r["kernel_launch_id"] for r in found if r["type"] == "kernel_launch"] == [0, 1]
    assert "maybe" in cli("graph", run_path, "--graph", "0").stdout


@pytest.mark.parametrize("deps", ["region", "device"])
def test_memory_that_a_graph_leaves_is_captured(deps: str, built: Path, run_path: Path) -> None:
    check_graph_memory(built, run_path, SIM, deps)


CAPTURED = ["graph_capture", "graph_capture_calls", "graph_capture_memory", "sim_graph_memory"]
OTHERS = ["sim_graph_structure", "sim_graph_events", "graph_held_back"]


@pytest.mark.native
@pytest.mark.parametrize("name", [*CAPTURED, *OTHERS])
def test_every_graph_launch_is_recorded(name: str, built: Path, run_path: Path) -> None:
    more = support.RECORDING_OPTIONS.get(name, {})
    options = {"epoch": "graph", "regions": "touched", **more}
    run = record(name, built, run_path, **options)
    (process,) = run.processes
    assert len(process.graphs)
    for graph, seq in launches(process):
        assert process.graphs.known(graph, seq)
        nodes = process.graphs.nodes(graph, seq)
        assert len(process.graphs.order(graph, seq)) == len(nodes)
        assert not (nodes["flags"] & graphs.UNREAD).any()
    if len(run.digests):  # else there is nothing to verify
        assert tt.verify(run, run_path / "manifest.json").same


@pytest.mark.native
def test_no_graphs_without_events(built: Path, run_path: Path) -> None:
    run = record("graph_updates", built, run_path, epoch="graph", regions="touched", events="0")
    assert not (run_path / "p0" / "graphs.bin").exists()
    assert len(run.processes[0].graphs) == 0
    assert len(run.epochs[run.epochs["trigger"] == "graph"]) == UPDATES


@pytest.mark.native
def test_updates_before_a_kill_are_in_the_run(built: Path, run_path: Path) -> None:
    """What was changed before the last launch is in the run."""
    program = support.build_program("simonly_graph_kill", built)
    outcome = support.run([str(program)], support.recording(SIM, run_path, epoch="none"))
    assert outcome.status == -9
    (process,) = tt.open(run_path).processes
    values = [
        struct.unpack_from("<QII", kernels(process, *at)[0][1])[2] for at in launches(process)
    ]
    assert values == [7 * i for i in range(5)]


@pytest.mark.native
def test_large_graph(built: Path, run_path: Path) -> None:
    program = [str(support.build_program("simonly_graph_large", built))]
    bare = support.run(program, SIM)
    options = {"epoch": "graph", "regions": "touched"}
    outcome = support.run(program, support.recording(SIM, run_path, **options))
    recordings.compare("", bare, outcome)
    run = tt.open(run_path)
    (process,) = run.processes
    (_, first), (_, second), (_, third) = launches(process)
    assert [set(process.graphs.nodes(0, at)["src"].tolist()) for at in (first, second)] == [
        {1},
        {2},
    ]
    assert process.graphs.order(0, second).tolist() == [*range(20_000)]
    assert np.flatnonzero(process.graphs.nodes(0, third)["src"] == 7).tolist() == [19_999]
    assert replay.check(run) == 3


# ---- launches with and without events and stacks ----


@pytest.mark.native
@pytest.mark.parametrize(
    ("options", "launched", "stacks", "others"),
    [
        ({}, True, False, False),
        ({"kernel_events": "dedup"}, True, True, True),
        ({"kernel_events": "full"}, True, True, True),
        ({"kernel_events": "nostack"}, True, False, False),
        ({"kernel_events": "nostack", "cpu_callstack": "auto"}, True, False, True),
        ({"kernel_events": "off", "cpu_callstack": "auto"}, False, False, True),
        ({"kernel_events": "full", "cpu_callstack": "off"}, True, False, False),
        ({"cpu_callstack": "auto"}, True, True, True),
    ],
)
def test_kernel_events_option(
    options: dict[str, str],
    launched: bool,
    stacks: bool,
    others: bool,
    built: Path,
    run_path: Path,
) -> None:
    run = record("example-graph", built, run_path, **options)
    events = run.events
    of_kernels = events[events["kind"] == "launch"]
    assert (len(of_kernels) > 0) == launched
    of_graphs = events[events["kind"] == "graph-launch"]
    assert len(of_graphs)
    assert of_kernels["stack"].notna().all() if stacks else of_kernels["stack"].isna().all()
    assert of_graphs["stack"].notna().all() if stacks else of_graphs["stack"].isna().all()
    copies = events[events["kind"] == "copy"]
    assert copies["stack"].notna().all() if others else copies["stack"].isna().all()
    said = run.processes[0].info["options"]
    assert said["TT_KERNEL_EVENTS"] == options.get("kernel_events", "dedup")
    assert said["TT_CPU_CALLSTACK"] == options.get("cpu_callstack", "auto" if others else "off")


@pytest.mark.native
@pytest.mark.parametrize("how", ["full", "dedup"])
def test_events_verb_follows_the_recorded_option(
    how: str, built: Path, run_path: Path, cli: Cli
) -> None:
    options = {"kernel_events": how, "cpu_callstack": "backtrace"}
    record("graph_updates", built, run_path, **options)
    text = cli("events", run_path).stdout
    found = [json.loads(line) for line in text.splitlines()]
    (definitions, launched) = ([r for r in found if r["type"] in kinds] for kinds in
                               (["callstack_def"], KERNEL_EVENTS))  # fmt: skip
    assert (len(definitions) == 0) == (how == "full")
    assert all(("cpu_callstack" in r) == (how == "full") for r in launched)
    assert cli("events", run_path, "--kernel-events", how).stdout == text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--kernel-events", "some"], "expected dedup, full, nostack or off"),
        (["--kernel-events", "full", "--no-events"], "--kernel-events full needs --events"),
        (["--kernel-events", "off", "--params"], "--params needs another --kernel-events than off"),
    ],
)
def test_invalid_options_are_refused(
    options: list[str], reason: str, run_path: Path, cli: Cli
) -> None:
    outcome = cli("record", "-o", run_path, *options, "--", "true")
    assert outcome.status == 2
    assert reason in outcome.stderr
    assert not run_path.exists()


@pytest.mark.native
@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"kernel_events": "some"}, "TT_KERNEL_EVENTS=some: expected dedup, full, nostack or off"),
        ({"kernel_events": "full", "events": "0"}, "TT_KERNEL_EVENTS=full needs TT_EVENTS=1"),
        ({"kernel_events": "off", "params": "1"}, "TT_PARAMS=1 needs another TT_KERNEL_EVENTS"),
    ],
)
def test_invalid_variables_are_refused(
    variables: dict[str, str], reason: str, built: Path, run_path: Path
) -> None:
    command = support.command("graph_nodes", built)
    outcome = support.run(command, support.recording(SIM, run_path, **variables))
    assert f"ttanalyze: recording stopped: {reason}" in outcome.stderr
    assert outcome.status == 0


# ---- what is made of it ----


@pytest.fixture
def written(run_path: Path) -> Path:
    """A run of two processes. The first launches a graph, before and after it was changed, and one
    that nobody could read; the second has no graphs.
    """
    w = Writer(run_path)
    w.function(0, "_ZN3lib4fillIfEEvPT_i")
    w.function(1, "scale")
    w.stack(1, [("step", "/opt/app/train.py", 12)])
    w.born(0, bytes(4096), label="weights")
    (base,) = tt.open(run_path).processes[0].regions.birth["base"].tolist()
    params = struct.pack("<QQ", base + 64, 7)
    shape: dict[str, Any] = {"grid": [4, 2, 1], "block": [256, 1, 1], "shared": 100}
    some = w.graph(
        [
            {"function": 1, "grid": [1, 1, 1], "block": [32, 1, 1], "flags": 2},
            {"kind": "set", "dst": base, "bytes": 16, "reach": 16, "shared": 1, "src": 171},
            {"kind": "graph"},
            {"function": 0, "data": params, "parent": 2, **shape},
            {"function": 1, "grid": [1, 1, 1], "block": [64, 1, 1], "flags": 1},
            {"kind": "copy", "dst": base, "src": 0x5000, "bytes": 4096, "flags": 16},
        ],
        [(1, 0), (0, 2), (2, 5), (2, 4)],
        context=0,
    )
    w.event("graph-launch", id=some, stack=1, stream=17)
    w.node(some, 3, w.next_seq(), function=1, data=params, parent=2, **shape)
    w.event("graph-launch", id=some)
    w.event("graph-launch", id=some, result=719)
    w.event("graph-launch", id=some, flags=1)
    unread = w.graph([], flags=4, context=0)
    w.event("graph-launch", id=unread)
    w.graph_ended(unread, w.next_seq())
    w.event("launch", "cuLaunchKernel", id=0)
    w.close()
    Writer(run_path, 1).close()
    return run_path


def test_events_list_the_kernels_of_each_launch(cli: Cli, written: Path) -> None:
    outcome = cli("events", written)
    assert outcome.status == 0
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    found = [r for r in found if r["type"] != "callstack_def"]
    keys = ("type", "kernel_launch_id", "kernel_name", "graph", "node")
    assert [tuple(r.get(key) for key in keys) for r in found] == [
        ("graph_launch", None, None, 0, None),
        ("kernel_launch", 0, "scale", 0, 0),
        ("kernel_launch", 1, "void lib::fill<float>(float*, int)", 0, 3),
        ("graph_launch", None, None, 0, None),
        ("kernel_launch", 2, "scale", 0, 0),
        ("kernel_launch", 3, "scale", 0, 3),
        ("graph_launch", None, None, 0, None),  # which failed
        ("graph_launch", None, None, 0, None),  # into a graph
        ("graph_launch", None, None, 1, None),  # whose nodes are not known
        ("kernel_launch", 4, "void lib::fill<float>(float*, int)", None, None),
    ]
    launch, _, inside = found[:3]
    for member in ("callstack_id", "stream_id", "seq", "time_ns", "thread", "epoch"):
        assert inside[member] == launch[member]
    assert inside["grid"] == [4, 2, 1] and inside["shmem"] == 100
    assert len(bytes.fromhex(inside["params"])) == 16
    assert found[1]["flags"] == 2 and found[1]["params"] is None
    chosen = cli("events", written, "--kernel", "scale").stdout.splitlines()
    chosen_ids = [json.loads(line).get("kernel_launch_id") for line in chosen]
    assert [i for i in chosen_ids if i is not None] == [0, 2, 3]


def test_many_launches_are_read_in_pieces(cli: Cli, written: Path, monkeypatch: Any) -> None:
    from ttanalyze.core import graph_kernels as launched
    from ttanalyze.verbs import events

    whole = cli("events", written, "--format", "csv").stdout
    assert whole.count("\n") == 11
    for size in (1, 2, 3):
        monkeypatch.setattr(events, "PIECE", size)
        monkeypatch.setattr(launched, "PIECE", size)
        assert cli("events", written, "--format", "csv").stdout == whole


def test_graph_verb_lists_graphs(cli: Cli, written: Path) -> None:
    found = tt.graphs(tt.open(written))
    first, unread = found.to_dict("records")
    counts = {"nodes": 6, "kernels": 3, "copies": 1, "sets": 1, "edges": 4}
    assert {name: first[name] for name in counts} == counts
    assert (first["launches"], first["changes"]) == (2, 1)
    assert found["nodes"].isna().tolist() == [False, True]
    assert (unread["launches"], unread["graph"]) == (1, 1)
    outcome = cli("graph", written)
    assert outcome.status == 0 and outcome.stdout.splitlines()[0].split()[:3] == [
        *("process", "graph", "nodes")
    ]
    listed = json.loads(cli("graph", written, "--json").stdout)["graphs"]
    assert [row["nodes"] for row in listed] == [6, None]
    assert listed[1]["ended"] is not None


def test_graph_verb_shows_a_graph_at_a_call(cli: Cli, written: Path) -> None:
    process = tt.open(written).processes[0]
    (first, _), (second, _) = ((seq, g) for g, seq in launches(process)[:2])
    before = cli("graph", written, "--graph", "0", "--at", str(first)).stdout
    after = cli("graph", written, "--graph", "0", "--at", str(second)).stdout
    assert "fill" in before and "fill" not in after
    assert after.count("scale") == 3
    assert "off" in before and "cooperative" in before
    made, changed = process.graphs.changes(0).tolist()
    assert f"before call {first:,}, after 0 of 1 change" in before
    left = cli("graph", written, "--graph", "0", "--at", str(changed)).stdout
    assert f"after call {changed:,}, after 1 of 1 change" in left and made < changed
    assert cli("graph", written, "--graph", "0").stdout.splitlines()[3:] == after.splitlines()[3:]
    shown = json.loads(cli("graph", written, "--graph", "0", "--json").stdout)
    assert [node["node"] for node in shown["nodes"]] == [1, 0, 2, 3, 5, 4]
    assert shown["nodes"][3]["regions"] == [0]
    assert shown["nodes"][3]["params"][-16:] == "0700000000000000"
    assert shown["edges"][0] == {"from": 1, "to": 0, "from_port": 0, "to_port": 0, "type": 0}
    assert shown["changes"] == process.graphs.changes(0).tolist()
    assert "unknown" in cli("graph", written, "--graph", "1").stdout


def test_graphs_of_a_run_without_calls_are_unknown(cli: Cli, run_path: Path) -> None:
    Writer(run_path).close(options={"TT_EVENTS": "0"})
    for arguments in ([], ["--json"], ["--dot"], ["--graph", "0"]):
        outcome = cli("graph", run_path, *arguments)
        assert (outcome.stdout, outcome.status) == ("", 2)
        reason = "has no graphs, because it was recorded with --no-events"
        assert outcome.stderr == f"ttanalyze: {run_path}: {reason}\n"


def test_graph_verb_writes_dot(cli: Cli, written: Path, tmp_path: Path) -> None:
    text = cli("graph", written, "--graph", "0", "--dot").stdout
    for edge in ("1 -> p0_g0_0", "0 -> p0_g0_2", "2 -> p0_g0_5"):
        assert f"p0_g0_{edge};" in text
    assert 'style="dashed"' in text
    assert "lib::fill" not in text and "scale" in text
    out = tmp_path / "all.dot"
    assert cli("graph", written, "--dot", "-o", out).stdout == ""
    assert out.read_text().count("subgraph cluster_p0_g") == 3  # two, and one inside
    if shutil.which("dot"):
        drawn = subprocess.run(["dot", "-Tsvg", str(out)], capture_output=True, check=True)
        assert drawn.stdout.count(b'class="node"') == 6


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--graph", "2"], "no graph 2 in process 0: it has graphs 0 to 1"),
        (["--graph", "0", "--process", "1"], "no graph 0 in process 1: it has no graphs"),
        (["--graph", "0", "--process", "7"], "no process 7"),
        (["--graph", "0", "--at", "1"], "graph 0 was made by call 2, after call 1"),
        (["--graph", "1", "--at", "9999"], "graph 1 was destroyed by call "),
        (["--at", "3"], "--at needs --graph N"),
        (["--process", "1"], "--process needs --graph N"),
        (["--json", "--dot"], "--json and --dot cannot be combined"),
    ],
)
def test_missing_graphs_give_a_one_line_error(
    arguments: list[str], reason: str, cli: Cli, written: Path
) -> None:
    outcome = cli("graph", written, *arguments)
    assert (outcome.stdout, outcome.status) == ("", 2)
    assert reason in outcome.stderr and outcome.stderr.count("\n") == 1


def test_query_reads_graph_tables(cli: Cli, written: Path) -> None:
    def ask(*arguments: str) -> list[dict[str, Any]]:
        outcome = cli("query", written, *arguments, "--json")
        assert outcome.status == 0, outcome.stderr
        rows: list[dict[str, Any]] = json.loads(outcome.stdout)
        return rows

    asked = ask("--filter", "graph == 0", "--fields", "kind,graph")
    assert asked == [{"kind": "graph-launch", "graph": 0}] * 4
    assert [row["graph"] for row in ask("--table", "graphs", "--filter", "nodes > 5")] == [0]
    kernels_of = ask("--table", "nodes", "--filter", 'short == "scale" and enabled')
    assert [(row["node"], row["regions"]) for row in kernels_of] == [(0, ""), (3, "0")]
    counts = ask("--table", "nodes", "--group-by", "kind", "--count")
    assert {row["kind"]: row["count"] for row in counts} == {
        "kernel": 3,
        "set": 1,
        "copy": 1,
        "graph": 1,
    }
    assert ask("--table", "nodes", "--filter", 'demangled.str.contains("fill")') == []


def test_query_reads_graphs_of_an_event_file(cli: Cli, written: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.ndjson"
    assert cli("events", written, "-o", out).status == 0
    answer = cli("query", out, "--filter", "node == 3", "--fields", "graph,node,short", "--json")
    assert json.loads(answer.stdout) == [
        {"graph": 0, "node": 3, "short": name} for name in ("lib::fill", "scale")
    ]


def test_trace_names_the_graph(cli: Cli, written: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    assert cli("trace", written, "-o", out).status == 0
    events = json.loads(out.read_text())["traceEvents"]
    shown = [e for e in events if e.get("cat") == "graph-launch" and e["name"].startswith("graph ")]
    assert {e["name"] for e in shown} == {"graph 0", "graph 1"}
    assert all(e["args"]["graph"] == int(e["name"][-1]) for e in shown)


def test_python_reads_graphs(written: Path) -> None:
    run = tt.open(written)
    assert run.graphs["graph"].tolist() == [0, 1]
    nodes = run.graph_nodes(0)
    assert nodes["node"].tolist() == [1, 0, 2, 3, 5, 4]
    assert run.graph_edges(0)["to"].tolist() == [0, 2, 5, 4]
    assert run.graph_nodes(1).empty
    with pytest.raises(tt.Error, match="no graph 2"):
        run.graph_nodes(2)
