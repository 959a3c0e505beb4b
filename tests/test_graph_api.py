"""Graphs from Python: recorded, launched and changed, and made again from runs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import graph_cases, support
from tests.rundir import Writer
from ttanalyze.errors import Error, FormatError
from ttanalyze.gpu import Driver, Graph, MissingDriverError
from ttanalyze.gpu.rebuild import dependency_graph
from ttanalyze.gpu.rebuild.steps import Fill, Move, Step, Upload

pytestmark = pytest.mark.large  # mostly Python: under sanitizers it would say little more
SIM = support.simulator_environment()
SAID = support.ROOT / "tests" / "data" / "graph_cases"
EVERY = {"params": "1", "epoch": "memcpy,sync"}


def python(*command: str | Path, **environment: str) -> support.Outcome:
    return support.run([sys.executable, *command], SIM | environment, cwd=support.ROOT)


def case(name: str, **environment: str) -> support.Outcome:
    return python("-m", "tests.graph_cases", name, **environment)


# ---- recording, launching, changing ----


@pytest.mark.native
@pytest.mark.parametrize("name", graph_cases.CASES)
def test_graph_case(name: str) -> None:
    done = case(name)
    assert (done.stderr.replace(graph_cases.REFUSED_IMAGE, ""), done.status) == ("", 0)
    assert done.stdout == (SAID / f"{name}.txt").read_text()


@pytest.mark.native
@pytest.mark.parametrize("name", graph_cases.CASES)
def test_recorded_graph_case(name: str, run_path: Path) -> None:
    """It does what it does without us, and the run has its graphs."""
    options = {"epoch": "sync,graph", "params": "1", "regions": "touched"}
    done = case(name, **support.recording(SIM, run_path, **options))
    assert (done.stderr.replace(graph_cases.REFUSED_IMAGE, ""), done.status) == ("", 0)
    assert done.stdout == (SAID / f"{name}.txt").read_text()
    run = tt.open(run_path)
    assert not run.warnings or name == "host_arrays"  # whose launches are held up
    if run.epochs["regions"].any():  # else there is nothing to compare
        assert tt.verify(run, run_path / "manifest.json").same
    if name == "update":
        graph = run.graphs.iloc[0]
        assert (graph["nodes"], graph["launches"]) == (3, 11)
        assert graph["changes"] == 10  # of which one is of the whole graph


@pytest.mark.native
def test_threads_in_any_order() -> None:
    for seed in range(3):
        done = case("threads", TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed))
        assert (done.stderr, done.status) == ("", 0)


def test_import_does_not_load_the_driver() -> None:
    script = "import ttanalyze.gpu; print('libcuda' in open('/proc/self/maps').read())"
    assert python("-c", script).stdout == "False\n"


def test_missing_driver_library_is_an_error() -> None:
    with pytest.raises(MissingDriverError, match=r"no driver: .*/nowhere/libcuda.*simulator"):
        Driver("/nowhere/libcuda.so.1")


@pytest.mark.skipif(support.gpu_name() is not None, reason="there is a driver")
def test_no_driver_is_an_error() -> None:
    script = "from ttanalyze.gpu import StreamCapture; StreamCapture.begin()"
    command = [sys.executable, "-c", script]
    done = support.run(command, support.bare_environment(), cwd=support.ROOT)
    last = done.stderr.splitlines()[-1]
    assert "MissingDriverError: no driver: " in last and "cannot open shared object" in last
    assert "--sim, graph.simulator()" in last


@pytest.mark.native
def test_no_device_is_an_error() -> None:
    script = "from ttanalyze.gpu import DeviceBuffer; DeviceBuffer(1)"
    done = python("-c", script, TT_SIM_DEVICES="0")
    last = done.stderr.splitlines()[-1]
    assert done.status == 1
    assert "DriverError: cuInit: CUDA_ERROR_NO_DEVICE" in last and "CUDA_VISIBLE_DEVICES" in last


@pytest.mark.native
def test_stream_closed_during_capture() -> None:
    script = (
        "from ttanalyze.gpu import *\n"
        "with Stream() as stream:\n"
        "    capture = StreamCapture.begin(stream)\n"
        "try:\n"
        "    capture.end()\n"
        "except EndedError as e:\n"
        "    print(e, capture.is_active())\n"
    )
    done = python("-c", script)
    assert (done.stdout, done.stderr) == ("the stream was closed False\n", "")


@pytest.mark.native
def test_simulator_can_be_selected() -> None:
    """Without a library path."""
    script = (
        "from ttanalyze.gpu import *\n"
        "device = Device(0, simulator())\n"
        "buffer = DeviceBuffer(8, device)\n"
        "with StreamCapture.begin(Stream(device)) as capture:\n"
        "    capture.record_memset(8, 5, buffer)\n"
        "capture.graph.instantiate().launch()\n"
        "print(device, buffer.read().tolist())\n"
    )
    environment = {k: v for k, v in SIM.items() if k != "LD_LIBRARY_PATH"}
    done = support.run([sys.executable, "-c", script], environment, cwd=support.ROOT)
    assert done.stderr == ""
    assert done.stdout == "<Device 0: ttanalyze simulator> [5, 5, 5, 5, 5, 5, 5, 5]\n"


# ---- from a run ----


def record(run: Path, *command: str | Path, **options: str) -> tt.Run:
    done = support.run(command, support.recording(SIM, run, **(EVERY | options)))
    assert done.status == 0, done.stderr
    return tt.open(run)


def rebuilt(run: tt.Run, first: int = 0, last: int = -1, **environment: str) -> dict[str, Any]:
    done = python("-m", "tests.graph_rebuild", run.path, str(first), str(last), **environment)
    assert (done.stderr, done.status) == ("", 0)
    out: dict[str, Any] = json.loads(done.stdout)
    return out


def is_as_recorded(found: dict[str, Any], unwritten: bool = False) -> None:
    assert "error" not in found, found["error"]
    for where in ("here", "elsewhere"):
        one = found[where]
        assert one["restored"], one["text"]
        # What nobody wrote to in an allocation is whatever was there before.
        assert one["differences"] == (one["new"] if unwritten else []), one["text"]
        assert one["same"] == one["again"] == (not one["differences"])


REBUILT = ("vecadd", "pipeline", "training", "graph", "globals", "async", "scribble", "vmm")


@pytest.mark.native
@pytest.mark.parametrize("deterministic", ["0", "1"])
@pytest.mark.parametrize("name", REBUILT)
def test_rebuilt_graphs_reproduce_the_examples(
    name: str, deterministic: str, built: Path, run_path: Path
) -> None:
    """Their work alone, without the program, leaves the recorded digests."""
    command = support.command(f"example-{name}", built)
    run = record(run_path, *command, deterministic=deterministic)
    counts = run.epochs["regions"]
    last = int(counts.index[counts == counts.max()][-1])
    for first in {0, last // 2}:
        found = rebuilt(run, first, last)
        is_as_recorded(found, unwritten=name == "vmm" or (name, deterministic) == ("async", "0"))
        if deterministic == "1":
            ours = run.regions["region"][run.regions["kind"] == "arena"]
            assert not set(ours) & set(found["here"]["moved"])


@pytest.mark.native
@pytest.mark.parametrize("name", ["example-pipeline", "example-async", "stream_nonblocking"])
def test_rebuilt_graphs_are_correct_in_any_stream_order(
    name: str, built: Path, run_path: Path
) -> None:
    """What streams and events did not order may happen in any order."""
    run = record(run_path, *support.command(name, built), epoch="memcpy,sync,launch:1")
    for seed in range(4):
        is_as_recorded(rebuilt(run, TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed)))


@pytest.mark.native
def test_stream_wait_values_are_rebuilt(built: Path, run_path: Path) -> None:
    """What one stream writes is done again, and another that waited for it comes after that."""
    run = record(run_path, *support.command("stream_values", built), epoch="sync")
    for seed in range(3):
        is_as_recorded(rebuilt(run, 0, 1, TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed)))


@pytest.mark.native
@pytest.mark.parametrize(
    "name",
    [
        *("graph_updates", "graph_children", "graph_nodes", "graph_flags", "memset_2d"),
        *("copy_1d", "copy_2d", "copy_3d", "copy_peer_self"),
        *("threads_shared_stream", "module_two_copies", "stream_per_thread", "library_kernels"),
    ],
)
def test_rebuilt_graphs_reproduce_programs(name: str, built: Path, run_path: Path) -> None:
    """Graphs that change, sets of all kinds, threads, variables."""
    options = {"epoch": "memcpy,sync,launch:1,graph"}
    is_as_recorded(rebuilt(record(run_path, *support.command(name, built), **options)))


def but_where(notes: list[str]) -> list[str]:
    """Addresses may be taken by chance in the process that does the work again."""
    return [note for note in notes if "not at the recorded addresses" not in note]


@pytest.mark.native
def test_host_copies_take_contents_of_the_next_epoch(built: Path, run_path: Path) -> None:
    """They copy what the next epoch has; that a kernel may have written meanwhile is said."""
    command = support.command("example-vecadd", built)
    run = record(run_path, *command, "--perturb", "3", epoch="sync")
    found = rebuilt(run)
    is_as_recorded(found)
    (note,) = but_where(found["here"]["notes"])
    assert note.startswith("region 0: a copy from the host is taken from epoch 3, though add")
    again = run_path.with_name("again")
    found = rebuilt(record(again, *command, "--perturb", "3"))
    is_as_recorded(found)
    assert but_where(found["here"]["notes"]) == []


def test_overwritten_host_copies_are_unknown(run_path: Path) -> None:
    writer = Writer(run_path)
    writer.born(0, bytes(4096))
    writer.epoch("sync", "full")
    for offset in (0, 64, 96):
        to = 0x7F0000000000 + offset
        writer.event("copy", "cuMemcpyHtoD_v2", dst=to, bytes=64, src=0x1234, flags=16)
    writer.epoch()
    writer.close(options={"TT_PARAMS": "1"})
    with pytest.raises(Error) as raised:
        dependency_graph.span(tt.open(run_path).process(0), 0, 1)
    assert str(raised.value) == (
        "call 4 (cuMemcpyHtoD_v2) can't be replayed: the bytes that it copied from "
        "the host are unknown: call 5 (cuMemcpyHtoD_v2) wrote there before epoch 1; "
        "record with --epoch memcpy"
    )


def record_indirect(path: Path) -> tuple[tt.Run, int]:
    """Kernels that follow pointers in memory; and the first epoch after a graph of them."""
    script = ["-m", "tests.graph_cases", "indirect"]
    options = EVERY | {"epoch": "memcpy,graph", "deterministic": "1"}
    assert python(*script, **support.recording(SIM, path, **options)).status == 0
    run = tt.open(path)
    return run, int(run.epochs.index[run.epochs["trigger"] == "graph"][0])


@pytest.mark.native
def test_pointers_in_memory_need_the_recorded_addresses(run_path: Path) -> None:
    """They are good where memory is where it was, and it is said where it is not."""
    run, first = record_indirect(run_path)
    found = rebuilt(run, first - 1, first)
    buffers = run.regions["region"][run.regions["kind"] != "global"].tolist()
    assert found["here"]["same"] and not set(found["here"]["moved"]) & set(buffers)
    assert set(buffers) < set(found["elsewhere"]["moved"])
    assert not found["elsewhere"]["same"]
    note = found["elsewhere"]["notes"][0]
    assert "pointers in memory do not lead there" in note
    assert "the driver gives 0x" in note


@pytest.mark.native
def test_closed_graph_releases_its_resources(run_path: Path) -> None:
    """Memory, addresses and code: the next graph of the same work has them again."""
    run, first = record_indirect(run_path)
    script = (
        "import sys, ttanalyze as tt\n"
        "from ttanalyze._cuda import ffi\n"
        "from ttanalyze.errors import Error\n"
        "from ttanalyze.gpu import Device, Graph\n"
        "run, last = tt.open(sys.argv[1]), int(sys.argv[2])\n"
        "def free():\n"
        "    with Device.default().use() as driver:\n"
        "        return driver.get('cuMemGetInfo_v2', 'size_t', ffi.new('size_t *'))\n"
        "seen = set()\n"
        "for _ in range(3):\n"
        "    with Graph.from_run(run, (last - 1, last)) as graph:\n"
        "        graph.restore()\n"
        "        graph.launch()\n"
        "        assert graph.check().same\n"
        "        seen.add((*graph.moved, *map(graph.where, run.regions['region'])))\n"
        "    seen.add(free())\n"
        "try:\n"
        "    graph.restore()\n"
        "except Error as e:\n"
        "    print(len(seen), e)\n"
    )
    done = python("-c", script, run.path, str(first))
    assert (done.stderr, done.stdout) == ("", "2 the graph was closed\n")


@pytest.mark.native
def test_failed_span_names_moved_memory(run_path: Path) -> None:
    run, first = record_indirect(run_path)
    script = (
        "import json, sys, ttanalyze as tt\n"
        "from ttanalyze.gpu import Device\n"
        "from ttanalyze.gpu.rebuild.address_map import reserve\n"
        "from ttanalyze.verbs.replay.spans import replay_span\n"
        "taken = reserve(Device.default(), 0x200000000000, 1 << 32)\n"
        "last = int(sys.argv[2])\n"
        "(one,) = replay_span(tt.open(sys.argv[1]).process(0), last - 1, last)\n"
        "print(json.dumps(one.as_dict()))\n"
    )
    done = python("-c", script, run.path, str(first))
    found = json.loads(done.stdout)
    assert found["status"] == "failed"
    assert any("not at the recorded addresses" in note for note in found["notes"])


@pytest.mark.native
def test_memory_of_rebuilt_work_is_found_by_name(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(4096), label="weights")
    w.name(0, 512, 256, "bias", "f4")
    w.epoch("sync", "full")
    w.event("set", dst=0x7F0000000000 + 512, bytes=256, src=1, shared=1)
    w.write(0, 512, b"\1" * 256)
    w.epoch("sync")
    w.close(options={"TT_PARAMS": "1"})
    script = (
        "import sys, ttanalyze as tt\n"
        "graph = tt.graph.Graph.from_run(tt.open(sys.argv[1]), (0, 1))\n"
        "print([graph.where(name) - graph.where(0) for name in ('weights', 'bias')])\n"
        "graph.where('gain')\n"
    )
    done = python("-c", script, run_path)
    assert done.stdout == "[0, 512]\n", done.stderr
    assert "no region or tensor 'gain' in process 0: `ttanalyze query --table" in done.stderr


@pytest.mark.native
def test_drivers_that_choose_addresses_of_small_ranges(built: Path, run_path: Path) -> None:
    run = record(run_path, *support.command("example-pipeline", built), deterministic="1")
    script = (
        "import json, sys\n"
        "from tests.graph_rebuild import rebuilt\n"
        "from ttanalyze.gpu import Driver\n"
        "get = Driver.get\n"
        "def change(self, call, kind, *given, **named):\n"
        "    if call == 'cuMemAddressReserve' and given[0] < 1 << 30:\n"
        "        given = *given[:2], 0, 0\n"
        "    return get(self, call, kind, *given, **named)\n"
        "Driver.get = change\n"
        "print(json.dumps(rebuilt(sys.argv[1], 0, 9)))\n"
    )
    done = python("-c", script, run.path)
    assert (done.stderr, done.status) == ("", 0)
    found = json.loads(done.stdout)
    is_as_recorded(found)
    assert not found["here"]["moved"] and found["elsewhere"]["moved"]


@pytest.mark.native
def test_row_copies_and_sets_are_rebuilt(run_path: Path) -> None:
    """Copies and sets of rows, in streams and in graphs."""
    environment = support.recording(SIM, run_path, **(EVERY | {"epoch": "memcpy,graph,sync"}))
    assert case("rows", **environment).status == 0
    run = tt.open(run_path)
    seen = run.events[run.events["call"].isin(["cuMemcpy3DAsync_v2", "cuMemsetD2D16Async"])]
    shape = [f"{size}_{axis}" for size in ("grid", "block", "cluster") for axis in "xyz"]
    assert seen[shape].values.tolist()[:3] == [
        [20, 3, 1, 64, 64, 0, 16, 8, 0],
        [7, 3, 4, 64, 64, 0, 16, 8, 0],
        [5, 7, 0, 0, 0, 0, 0, 0, 0],
    ]
    is_as_recorded(rebuilt(run))


@pytest.mark.native
def test_differing_digests_are_reported(built: Path, run_path: Path) -> None:
    run = record(run_path, *support.command("example-vecadd", built))
    script = (
        "import sys, ttanalyze as tt\n"
        "from ttanalyze.gpu import Graph\n"
        "graph = Graph.from_run(tt.open(sys.argv[1]), (1, 9))\n"
        "print(graph)\n"
        "graph.restore()\n"
        "print(graph.check(1))\n"
        "graph.launch()\n"
        "print(graph.check())\n"
        "graph.launch()\n"  # once more
        "check = graph.check()\n"
        "print(check.same, [f.region for f in check.differences])\n"
        "print(check)\n"
        "print(check.regions[['region', 'size', 'same', 'blocks', 'first_block']].to_string())\n"
        "print(graph.to_dot().count('->'), graph.where(0) % 512)\n"
    )
    done = python("-c", script, run.path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "<Graph of epochs 1 to 9: 8 launches>",
        "epoch 1: 2 regions as recorded",
        "epoch 9: 2 regions as recorded",
        "False [1]",
        "epoch 9: 1 of 2 differ",
        "region 1: 4 blocks from 0",
        "   region    size   same  blocks  first_block",
        "0       0  262144   True       0         <NA>",
        "1       1  262144  False       4            0",
        "7 0",
    ]


@pytest.mark.native
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("arrays", "it copies from or to an array, or a list of places"),
        ("stream_values", "the values that it writes are unknown"),
        ("graph_conditional", "node 1 of graph 0 is of kind conditional"),
        ("copy_batch", "it copies from or to an array, or a list of places"),
        ("sim_graph_memory", "node 0 of graph 0 is of kind alloc"),
    ],
)
def test_unsupported_calls_are_refused(name: str, why: str, built: Path, run_path: Path) -> None:
    options = {"epoch": "memcpy,sync,launch:1,graph"}
    found = rebuilt(record(run_path, *support.command(name, built), **options))
    assert found["error"].endswith(why)


@pytest.mark.native
def test_kernels_without_stored_code_are_refused(built: Path, run_path: Path) -> None:
    run = record(run_path, *support.command("example-vecadd", built))
    shutil.rmtree(run_path / "p0" / "modules")
    assert "No such file or directory" in rebuilt(run)["error"]


@pytest.mark.native
def test_incomplete_runs_are_refused(built: Path, run_path: Path) -> None:
    command = support.command("example-vecadd", built)
    run = record(run_path, *command, params="0")
    with pytest.raises(Error, match="recorded without --params"):
        Graph.from_run(run, (0, 1))
    for epochs, why in [
        ((1, 1), "epochs 1 to 1: the first must come before the second"),
        ((5, 2), "epochs 5 to 2: the first must come before the second"),
        ((0, 99), "no epoch 99: process 0 has epochs 0 to 10"),
        ((-1, 3), "no epoch -1: process 0 has epochs 0 to 10"),
    ]:
        with pytest.raises(Error) as raised:
            Graph.from_run(run, epochs)
        assert str(raised.value) == why
    with pytest.raises(Error, match="no process 3"):
        Graph.from_run(run, (0, 1), process=3)
    with pytest.raises(Error, match="order 'any': must be one of streams, serial"):
        Graph.from_run(run, (0, 1), order="any")


def before(them: list[Step]) -> dict[int, set[int]]:
    """By the value that a step sets, those of the steps that it comes after."""
    found: list[set[int]] = []
    out = {}
    for step in them:
        known: set[int] = set()
        for other in step.after:
            known |= found[other]
            what = them[other].what
            known |= {what.value} if isinstance(what, Fill) else set()
        found.append(known)
        if isinstance(step.what, Fill):
            out[step.what.value] = known
    return out


def ordered(run: Path, order: str = "streams") -> dict[int, set[int]]:
    writer = Writer(run)
    writer.born(0, bytes(4096))
    base = 0x7F0000000000

    def fill(value: int, stream: int, **more: Any) -> None:
        writer.event("set", stream=stream, dst=base, bytes=16, src=value, shared=4, **more)

    writer.epoch("sync", "full")
    fill(1, 16)
    fill(2, 17)
    writer.event("event-record", stream=16, src=0xE)
    fill(3, 16)
    writer.event("event-wait", stream=17, src=0xE)
    fill(4, 17)
    fill(5, 18)
    fill(99, 18, result=1)  # was refused
    fill(98, 18, flags=1)  # into a graph
    writer.event("set", stream=18, dst=base + 65536, bytes=16, src=97, shared=4, context=1)
    writer.event("sync", stream=18)  # the host waited
    fill(6, 19)
    writer.event("sync", stream=0, src=0xE)
    fill(7, 20)
    fill(8, 1)  # the default stream
    fill(9, 16)
    fill(10, 17)
    fill(11, 2, thread=1)  # one for each thread
    fill(12, 2, thread=2)
    writer.event("launch-host", stream=16)
    writer.event("sync", stream=0)
    fill(13, 21)
    writer.epoch()
    fill(96, 16)
    writer.epoch()
    writer.close(options={"TT_PARAMS": "1"})
    span = dependency_graph.span(tt.open(run).process(0), 0, 1, order)
    assert span.left_out == ["1 host function"]
    return before(span.steps)


def test_rebuilt_order_follows_streams_and_events(run_path: Path) -> None:
    found = ordered(run_path)
    assert found == {
        1: set(),
        2: set(),
        3: {1},
        4: {1, 2},
        5: set(),
        6: {5},
        7: {1, 5},
        8: {1, 2, 3, 4, 5, 6, 7},
        9: {1, 2, 3, 4, 5, 6, 7, 8},
        10: {1, 2, 3, 4, 5, 6, 7, 8},
        11: {1, 2, 3, 4, 5, 6, 7, 8},
        12: {1, 2, 3, 4, 5, 6, 7, 8},
        13: set(range(1, 13)),
    }


def test_serial_order_follows_the_calls(run_path: Path) -> None:
    assert ordered(run_path, "serial") == {n: set(range(1, n)) for n in range(1, 14)}


def test_unreadable_spans_are_errors(run_path: Path) -> None:
    writer = Writer(run_path)
    writer.born(0, bytes(4096))
    writer.born(1, bytes(4096), context=1)
    writer.epoch("sync", "full")
    writer.epoch("sync", "full", context=1)
    writer.epoch("sync", "loose")
    writer.epoch("sync", "refused")
    writer.epoch("graph-node")
    writer.event("launch", id=7)
    writer.epoch()
    writer.event("set", dst=0x7F0000000000, bytes=16)
    writer.epoch()
    writer.event("set", dst=0x7F0000000000, bytes=16, shared=4, context=1)
    writer.epoch()
    writer.event("set", dst=0x7F0000000000, bytes=16, src=300, shared=1)
    writer.epoch()
    writer.event("copy", dst=0x7F0000000000, src=0x7F0000000000, bytes=1 << 60)
    writer.epoch()
    counters = {"events_lost": 0}
    writer.close(options={"TT_PARAMS": "1"}, counters=counters)
    process = tt.open(run_path).process(0)
    again = "(a call) can't be replayed:"
    for epochs, why in [
        ((0, 1), "epoch 0 is of context 0, epoch 1 of context 1"),
        ((2, 5), "epoch 2 was cut while work was running: its contents may be torn"),
        ((0, 3), "epoch 3 was refused: it has no contents"),
        ((0, 4), "epoch 4 lies inside a graph: take one before or after its launch"),
        ((0, 5), f"call 8 {again} its kernel is unknown"),
        ((5, 6), f"call 10 {again} its value was not recorded"),
        ((6, 7), f"call 12 {again} it writes to memory of this context in context 1"),
        ((7, 8), f"call 14 {again} its destination can't be set: its record is damaged"),
        ((8, 9), f"call 16 {again} it copies more than there is: its record is damaged"),
    ]:
        with pytest.raises(Error) as raised:
            dependency_graph.span(process, *epochs)
        assert str(raised.value) == why
    writer.close(options={"TT_PARAMS": "1"}, counters={"events_lost": 3})
    with pytest.raises(Error, match="3 calls were lost"):
        dependency_graph.span(tt.open(run_path).process(0), 0, 5)


def test_spans_in_truncated_files(run_path: Path) -> None:
    writer = Writer(run_path)
    writer.born(0, bytes(4096))
    writer.epoch("sync", "full")
    writer.epoch()
    writer.close(options={"TT_PARAMS": "1"}, counters={"events": 3})
    assert not dependency_graph.span(tt.open(run_path).process(0), 0, 1).steps
    for name, reason in [
        ("events.bin", "offset 320: cut short: 2 of 3 calls are there"),
        ("regions.bin", "offset 64: cut short: 0 of 1 regions of epoch 0 are there"),
    ]:
        file = run_path / "p0" / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        with pytest.raises(FormatError, match=f"{name}: {reason}"):
            dependency_graph.span(tt.open(run_path).process(0), 0, 1)
        file.write_bytes(whole)


def test_copies_from_other_contexts_take_epoch_contents(run_path: Path) -> None:
    """What comes from elsewhere is what the next epoch has; what goes elsewhere is not done."""
    writer = Writer(run_path)
    base = 0x7F0000000000
    other = base + (1 << 24)
    for region in (0, 1):
        writer.born(region, bytes(4096), context=region)
    writer.epoch("sync", "full")
    writer.event("copy", dst=base, src=other, bytes=64, flags=32)
    writer.event("copy", dst=other, src=base, bytes=64, flags=32)
    writer.event("copy", dst=base + 64, src=base, bytes=64, flags=32)
    writer.epoch()
    writer.close(options={"TT_PARAMS": "1"})
    steps = dependency_graph.span(tt.open(run_path).process(0), 0, 1).steps
    assert [step.what for step in steps] == [
        Upload(base, 64, 0, 0, 1),
        Move(base + 64, base, 64),
    ]


def test_epochs_include_work_of_other_threads(run_path: Path) -> None:
    """What another thread submitted between the call that an epoch is of and its cut is in it."""
    writer = Writer(run_path)
    writer.born(0, bytes(4096))
    first = writer.epoch("sync", "full")
    sets = [
        writer.event("set", dst=0x7F0000000000, bytes=16, src=n, shared=4, thread=n) for n in (1, 2)
    ]
    second = writer.epoch("sync", seq=sets[0], cut=sets[1])
    writer.epoch()
    writer.close(options={"TT_PARAMS": "1"})
    process = tt.open(run_path).process(0)
    values = [step.what.value for step in dependency_graph.span(process, first, second).steps]  # type: ignore[union-attr]
    assert values == [1, 2]
    assert not dependency_graph.span(process, second, second + 1).steps
