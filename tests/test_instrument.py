"""Tracing what instructions of chosen launches do, while the program does what it does anyway."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import forget_endings
from tests.test_kernel_checksums import entry, fatbin
from ttanalyze.format import layout
from ttanalyze.format.layout import HEADER_SIZE

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
KIND = {name: kind for kind, name in enumerate(layout.TRACE_KINDS) if name}
WARPS, STEPS = 2048, 8  # of vecadd: 65,536 threads, launched eight times


@dataclass(frozen=True)
class Seen:
    kind: int
    launch: int
    line: int
    lanes: int
    block: int
    payload: bytes

    @property
    def numbers(self) -> tuple[int, int]:
        one, two = np.frombuffer(self.payload, "<u8", 2).tolist()
        return one, two


def records(run: Path) -> Iterator[Seen]:
    contents = (run / "p0" / "trace.bin").read_bytes()
    at = HEADER_SIZE
    while at < len(contents):
        chunk = np.frombuffer(contents, layout.TRACE_CHUNK, 1, at)[0]
        at += layout.TRACE_CHUNK.itemsize
        end = at + int(chunk["bytes"])
        while at < end:
            one = np.frombuffer(contents, layout.TRACE_RECORD, 1, at)[0]
            size = (int(one["tag"]) >> 16) * 8
            payload = contents[at + layout.TRACE_RECORD.itemsize : at + size]
            lanes, block = int(one["mask"]).bit_count(), int(one["block_x"])
            kind, line = int(one["tag"]) & 255, int(one["instruction"])
            yield Seen(kind, int(one["launch"]), line, lanes, block, payload)
            at += size


def traced(run: Path) -> np.ndarray:
    return np.fromfile(run / "p0" / "traced.bin", layout.TRACED, offset=HEADER_SIZE)


@pytest.fixture(scope="module")
def vecadd(built: Path) -> list[str]:
    return [str(support.build_examples(built / "examples") / "vecadd")]


def instrument(run: Path, command: list[str], *options: str) -> support.Outcome:
    given: list[str | Path] = ["instrument", "--sim", *options, "-o", run, "--", *command]
    return support.ttanalyze(*given, environment=SIM)


def test_every_execution_of_every_launch_is_recorded(vecadd: list[str], tmp_path: Path) -> None:
    bare = support.run(vecadd, SIM)
    done = instrument(tmp_path / "run", vecadd, "--kind", "opcode,addresses,count")
    assert (done.status, done.stdout) == (bare.status, bare.stdout)
    assert f"traced {STEPS} launches, " in done.stderr
    seen = list(records(tmp_path / "run"))
    executed = Counter((one.launch, one.line) for one in seen if one.kind == KIND["opcode"])
    counted = {(one.launch, one.line): one.numbers[0] for one in seen if one.kind == KIND["count"]}
    assert counted == dict(executed) and set(executed.values()) == {WARPS}
    accesses = Counter(one.line for one in seen if one.kind == KIND["addresses"])
    assert list(accesses.values()) == [WARPS * STEPS] * 3  # two loads and a store
    ends = {one.launch: one.numbers for one in seen if one.kind == KIND["end"]}
    each = Counter(one.launch for one in seen if one.kind != KIND["end"])
    assert ends == {launch: (each[launch], 0) for launch in range(STEPS)}
    launches = tt.open(tmp_path / "run").events.query("kind == 'launch'")["seq"].tolist()
    assert traced(tmp_path / "run")["seq"].tolist() == launches


def test_a_launch_with_parameters_in_both_ways_fails_as_without_us(
    built: Path, tmp_path: Path
) -> None:
    """The driver refuses it. Code that records would get its own parameters, and run."""
    command = support.command("launch_extra", built)
    bare = support.run(command, SIM)
    done = instrument(tmp_path / "run", command, "--kind", "count")
    assert (done.status, done.stdout) == (bare.status, bare.stdout)
    found = tt.open(tmp_path / "run").traced
    assert found["refused"].tolist() == ["none", "none", "call", "none"]
    assert "passes its parameters twice" in done.stderr


def test_simulator_traces_all_kinds_in_every_way(vecadd: list[str], tmp_path: Path) -> None:
    given = ("--way", "patcher", "--kind", "registers,count", "--launch", "1")
    assert instrument(tmp_path / "run", vecadd, *given).status == 0
    kinds = {one.kind for one in records(tmp_path / "run")}
    assert kinds == {KIND["registers"], KIND["count"], KIND["end"]}


@pytest.mark.parametrize(
    ("options", "launches", "blocks", "lines"),
    [
        (("--launch", "3"), 1, 256, None),
        (("--every", "3"), 2, 256, None),
        (("--blocks", "2:4"), STEPS, 3, None),
        (("--category", "memory"), STEPS, 256, r"\b(ld|st)\."),
        (("--instructions", "37:38"), STEPS, 256, r"ld\.global"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_only_what_was_chosen_is_recorded(
    vecadd: list[str],
    tmp_path: Path,
    options: tuple[str, ...],
    launches: int,
    blocks: int,
    lines: str | None,
) -> None:
    instrument(tmp_path / "run", vecadd, *options)
    assert len(traced(tmp_path / "run")) == launches
    seen = [one for one in records(tmp_path / "run") if one.kind == KIND["opcode"]]
    assert len({one.block for one in seen}) == blocks
    text = (support.ROOT / "examples" / "vecadd.ptx").read_text().splitlines()
    for line in {one.line for one in seen} if lines else ():
        assert re.search(lines or "", text[line - 1])


@pytest.mark.long
def test_only_accesses_to_some_addresses_are_recorded(vecadd: list[str], tmp_path: Path) -> None:
    instrument(tmp_path / "all", vecadd, "--kind", "addresses", "--deterministic")
    some = tt.open(tmp_path / "all").trace_records(kinds=["addresses"])
    at = np.concatenate([one.addresses() for one in some])
    first, last = int(at.min()) + 403, int(at.min()) + 404
    options = ["--kind", "opcode,values", "--deterministic", "--addresses", f"{first:#x}:{last}"]
    instrument(tmp_path / "run", vecadd, *options)
    seen = Counter(one.kind for one in records(tmp_path / "run"))
    assert seen[KIND["values"]] == int(((at <= last) & (at + 32 > first)).any(axis=1).sum())
    assert seen[KIND["opcode"]] > STEPS * WARPS
    ends = [one.numbers for one in records(tmp_path / "run") if one.kind == KIND["end"]]
    assert sum(count for count, _ in ends) == sum(seen.values()) - STEPS
    assert not any(lost for _, lost in ends)


def test_small_ring_is_emptied_while_kernels_run(built: Path, tmp_path: Path) -> None:
    training = [str(support.build_examples(built / "examples") / "training")]
    done = instrument(tmp_path / "run", training, "--kind", "values", "--ring-bytes", "2M")
    assert done.stdout == support.run(training, SIM).stdout
    assert (tmp_path / "run" / "p0" / "trace.bin").stat().st_size > 8 << 20  # four times the ring
    ends = [one.numbers for one in records(tmp_path / "run") if one.kind == KIND["end"]]
    assert len(ends) == len(traced(tmp_path / "run")) and not any(lost for _, lost in ends)


def test_tracing_stops_after_as_many_records_as_wanted(vecadd: list[str], tmp_path: Path) -> None:
    done = instrument(tmp_path / "run", vecadd, "--max-records", "1000")
    assert done.status == 0 and "is reached (--max-records" in done.stderr
    seen = list(records(tmp_path / "run"))
    assert sum(one.kind == KIND["opcode"] for one in seen) == 1000
    (kept, lost), *later = [one.numbers for one in seen if one.kind == KIND["end"]]
    assert kept == 1000 and lost > 0
    # Launches that were submitted before the limit was noticed are traced, but keep no record.
    assert not any(kept for kept, _ in later)
    refused = traced(tmp_path / "run")["refused"].tolist()
    assert refused[0] == 0 and set(refused[1:]) <= {0, layout.REFUSED_TRACES.index("limit")}


def test_kernels_in_graphs_are_traced_in_each_launch(built: Path, tmp_path: Path) -> None:
    graph = [str(support.build_examples(built / "examples") / "graph")]
    done = instrument(tmp_path / "run", graph)
    assert done.stdout == support.run(graph, SIM).stdout
    found = tt.open(tmp_path / "run").traced
    assert found["kernel"].tolist() == ["step", "step", "energy"] * 5
    assert found["complete"].all() and found["records"].nunique() == 2
    nodes = {one.node: one.kernel for one in tt.open(tmp_path / "run").graph_nodes(0).itertuples()}
    assert [nodes[number] for number in found["node"]] == found["kernel"].tolist()
    launches = tt.open(tmp_path / "run").events.query("kind == 'graph-launch'")["seq"].tolist()
    assert found["seq"].tolist() == [seq for seq in launches for _ in range(3)]
    given = ("query", tmp_path / "run", "--table", "trace", "--format", "cutracer", "--head", "1")
    kernel = json.loads(support.ttanalyze(*given).stdout.splitlines()[0])
    assert (kernel["mangled_name"], kernel["grid"]) == ("step", [16, 1, 1])
    assert kernel["shmem_dynamic"] == 0


@pytest.mark.parametrize("options", [["--every", "2"], ["--launch", "2"]])
def test_a_launch_of_a_graph_counts_as_one(options: list[str], built: Path, tmp_path: Path) -> None:
    graph = [str(support.build_examples(built / "examples") / "graph")]
    done = instrument(tmp_path / "run", graph, *options)
    assert done.stdout == support.run(graph, SIM).stdout
    found = tt.open(tmp_path / "run").traced
    assert found["kernel"].tolist() == ["step", "step", "energy"] * (
        2 if "--every" in options else 1
    )


GRAPHS = {
    "graph_relaunch": "",
    "graph_updates": "",
    "graph_children": "the program updated their graph with another",
    "recorder_graph_reversed": "the program updated their graph with another",
    "graph_conditional": "the driver does not copy their graph",
    "recorder_graph_epochs_streams": "",
    "recorder_graph_epochs_changes": "the driver refuses the program's changes to the copy",
    "recorder_graph_epochs_allocation": "their graph allocates memory",
    "recorder_graph_marks": "epochs are cut inside their graph",
}


@pytest.mark.parametrize("name", GRAPHS)
def test_traced_graphs_follow_the_program(name: str, built: Path, tmp_path: Path) -> None:
    command = support.command(name, built)
    done = instrument(tmp_path / "run", command, *(() if GRAPHS[name] else ("--every", "2")))
    assert done.stdout == support.run(command, SIM).stdout
    assert ("not traced" in done.stderr) == bool(GRAPHS[name]) and GRAPHS[name] in done.stderr
    found = tt.open(tmp_path / "run").traced
    assert set(found["refused"]) <= {"none", "call"}
    if name == "recorder_graph_reversed":
        updated = found["seq"] == found["seq"].max()
        assert set(found["refused"][updated]) == {"call"}


PROGRAMS = (
    *("launch_3d", "launch_bad", "launch_ex", "launch_extra", "launch_shared"),
    *("stream_per_thread", "recorder_pointer_in_memory"),
    *("proc_address_run", "recorder_single_launches"),
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_traced_programs_do_the_same(name: str, built: Path, tmp_path: Path) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM)
    done = instrument(tmp_path / "run", command, "--kind", "registers,values,count")
    assert (done.status, done.stdout) == (bare.status, bare.stdout)
    assert any(one.kind == KIND["end"] for one in records(tmp_path / "run"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kind", "address"), "--kind address: words are separated by commas; expected opcode"),
        (("--blocks", "5:2"), "--blocks 5:2: expected a number, or a range such as 10:20"),
        (("--addresses", "0x20:0x1f"), "--addresses 0x20:0x1f: expected a number, or a range such"),
        (("--kernel", "("), "--kernel (: "),
        (("--ring-bytes", "1K"), "--ring-bytes 1K: expected a size of at least 2M"),
        (("--category", "memory,"), "--category memory,: words are separated by commas"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_options_are_named(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    done = instrument(tmp_path / "run", ["true"], *options)
    assert done.status == 2 and done.stderr.startswith(f"ttanalyze: {message}")
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "run").exists()


def test_run_says_when_nothing_was_traced(vecadd: list[str], tmp_path: Path) -> None:
    done = instrument(tmp_path / "run", vecadd, "--kernel", "no_such_kernel")
    assert done.status == 0 and "no launch was traced: no launched kernel matches" in done.stderr


@pytest.mark.parametrize(
    ("category", "expected"),
    [("sync", [(9, 8), (10, 8), (11, 8), (11, 0)]), ("memory", [(11, 8), (11, 0)])],
)
def test_a_line_has_the_kinds_of_all_its_statements(
    category: str, expected: list[tuple[int, int]], built: Path, tmp_path: Path
) -> None:
    """They are inline assembly; line and address of each record."""
    program = [str(support.build_program("simonly_statements", built))]
    options = ["--kind", "addresses", "--category", category]
    assert instrument(tmp_path / "run", program, *options).status == 0
    seen = [one for one in records(tmp_path / "run") if one.kind == KIND["addresses"]]
    assert [(one.line, int(np.frombuffer(one.payload, "<u8")[0])) for one in seen] == expected


LOADS = """
import ctypes, sys

cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel, out = (ctypes.c_void_p() for _ in range(4))
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(ctypes.byref(out), 256)
turns = ctypes.c_uint(3)
params = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(turns))
for path in sys.argv[1:]:
    if path.endswith(".fatbin"):
        image = open(path, "rb").read()
        assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
    else:
        assert cuda.cuModuleLoad(ctypes.byref(module), path.encode()) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"compute") == 0
    assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, None, params, None) == 0
    assert cuda.cuCtxSynchronize() == 0
    assert cuda.cuModuleUnload(module) == 0
"""


def test_modules_of_files_and_fatbins_are_traced(tmp_path: Path) -> None:
    """One after the other, so that their handles may be the same."""
    ptx = (support.EXAMPLES / "hangs.ptx").read_bytes()
    lower = tmp_path / "lower.ptx"
    lower.write_bytes(b"\n" * 5 + ptx)
    packed = tmp_path / "packed.fatbin"
    packed.write_bytes(fatbin(entry(ptx, 1)))
    (tmp_path / "loads.py").write_text(LOADS)
    paths = [str(path) for path in (support.EXAMPLES / "hangs.ptx", lower, packed)]
    program = [sys.executable, str(tmp_path / "loads.py"), *paths]
    done = instrument(tmp_path / "run", program, "--kind", "opcode")
    assert done.status == 0, done.stderr
    lines = [[s.line for s in records(tmp_path / "run") if s.launch == i] for i in range(3)]
    assert len(lines[0]) > 50 and lines[0] == lines[2]
    assert [line + 5 for line in lines[0][:-1]] == lines[1][:-1]  # the last record is the end
    shown = support.ttanalyze("query", tmp_path / "run", "--table", "trace", "--fields", "sass")
    assert "mov.u32 %r1, %tid.x" in shown.stdout and not shown.stderr


def test_launches_of_several_contexts_are_traced(built: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = instrument(run, support.command("context_two", built), "--kind", "opcode")
    assert done.status == 0, done.stderr
    given = ("--table", "trace", "--group-by", "launch,context", "--format", "csv", "--no-header")
    rows = support.ttanalyze("query", run, *given).stdout.splitlines()
    assert [row.split(",")[:2] for row in rows] == [[str(i), str(i % 2)] for i in range(4)]
    assert len({row.split(",")[2] for row in rows}) == 1  # as many records


def test_tensor_copies_say_what_their_map_says(built: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = instrument(run, support.command("tensor_maps", built), "--kind", "registers,values,tma")
    assert done.status == 0, done.stderr
    shown = support.ttanalyze("query", run, "--table", "tma", "--format", "json")
    loads = [row for row in json.loads(shown.stdout) if row["does"] == "load"]
    stores = [row for row in json.loads(shown.stdout) if row["does"] == "store"]
    sums = [row for row in json.loads(shown.stdout) if row["does"] == "reduce"]
    assert [row["swizzle"] for row in loads] == ["NONE", "128B", "NONE"] * 6
    assert [row["first"] for row in sums] == [row["first"] for row in stores[::2]]
    assert {row["data_type"] for row in loads + stores} == {"INT32"}
    assert [row["first"] for row in stores[::2]] == [
        *([4, 3], [16, 16], [0, 0], [8, 4], [36, 18], [40, 0])
    ]
    assert [row["first"] for row in loads[::3]] == [
        *([4, 3], [16, 16], [-4, -2], [100, 0], [4, 3], [4, 3])
    ]
    for row in (loads[0], stores[0]):
        assert (row["global_dim"], row["global_strides"]) == ([40, 20], [160])
        assert (row["box_dim"], row["bytes"], row["multicast"]) == ([32, 8], 1024, 0)
        assert row["encoded_by"].startswith("cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_")
    (data,), (out,) = ({row["global_address"] for row in rows} for rows in (loads, stores))
    assert data != out and loads[0]["barrier"] != stores[0]["barrier"] == "0x0"
    # One launch stores a box that lies outside of its tensor.
    assert support.ttanalyze("race", "--exact", run).stderr == ""
    # Maps that were not recorded: the program may have changed them itself.
    maps = run / "p0" / "tensormaps.bin"
    kept = HEADER_SIZE + layout.TENSOR_MAP.itemsize
    maps.write_bytes(maps.read_bytes()[:kept])
    forget_endings(run)
    assert "not covered" in support.ttanalyze("race", "--exact", run).stdout


def test_trace_of_a_killed_program_is_read_up_to_its_last_whole_chunk(
    built: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    trace = run / "p0" / "trace.bin"
    asked = support.recording(SIM, run, instrument="opcode", instrument_kernel="mix")
    program = [*support.command("loop_progress", built), "1000000"]
    with subprocess.Popen(program, env=asked, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not (trace.exists() and trace.stat().st_size > 1 << 20):
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    asks = ("--table", "trace", "--head", "1", "--fields", "sass")
    for cut in (0, 100):
        os.truncate(trace, trace.stat().st_size - cut)
        done = support.ttanalyze("query", run, *asks)
        assert "mov.u32 %r3, %ctaid.x" in done.stdout and not done.stderr
        launches = tt.open(run).processes[0].instruction_trace.summary
        assert launches["complete"][:3].all() and launches["records"][0] > 1000
        assert support.ttanalyze("validate", run).stdout.endswith(" records: good\n")


def test_patch_is_current() -> None:
    script = support.ROOT / "interpose" / "instrument" / "build_patch.py"
    assert support.run([sys.executable, script, "--check"], dict(os.environ)).status == 0
