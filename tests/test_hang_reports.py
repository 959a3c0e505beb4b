"""Hangs that are found and named: what each warp does, where, and what the host waits for."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.hanging import in_some_limit, report
from ttanalyze import options
from ttanalyze.errors import Error, FormatError
from ttanalyze.traces.hangs import Hang, hangs

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
LIMITS = (0.4, 4, 20)  # seconds


@pytest.fixture(scope="module")
def program(built: Path) -> str:
    return str(support.build_examples(built / "examples") / "hangs")


def instrument(run: Path, *words: str, verb: str = "instrument") -> support.Outcome:
    """Without heartbeats, the simulator lets a kernel fail whose threads wait for each other."""
    given: list[str | Path] = [verb, "--sim", "-o", run, *words]
    fault = {} if verb == "instrument" else {"TT_SIM_FAULT": "deadlock:1"}
    return support.ttanalyze(*given, environment=SIM | fault)


def source(line: str) -> str:
    """FILE:LINE of the line of the example's kernels that has this text."""
    lines = (support.EXAMPLES / "hangs.cu").read_text().splitlines()
    (number,) = [i for i, one in enumerate(lines, 1) if line in one]
    return f"hangs.cu:{number}"


def found(run: Path, limit: float, *words: str) -> Hang:
    """The hang of a program that ends since it makes no progress for so long (seconds)."""
    given = ("--kind", "heartbeat", "--no-progress", f"{limit}s")
    outcome = instrument(run, *given, *words)
    assert outcome.status == 124, outcome.stderr
    why = f"ended by the limit of {limit} s without progress, with work in flight"
    assert report(outcome)[0] == why
    (process,) = tt.open(run).processes
    assert process.status == "timeout"
    (hang,) = hangs(tt.open(run))
    assert set(hang.lines()) <= {
        line.removeprefix("ttanalyze: ") for line in outcome.stderr.splitlines()
    }
    return hang


SPIN = ("--spin", "spin", "count_locked", "spin", "atom.global.cas.b32")
MBARRIER = ("--mbarrier", "mbarrier", "pass_on", "mbarrier", "mbarrier.arrive")


@in_some_limit(*LIMITS)
def test_spin_on_an_atomic_is_named(limit: float, program: str, tmp_path: Path) -> None:
    run = tmp_path / f"run{limit}"
    hang = found(run, limit, "--cpu-callstack", "backtrace", "--", program, "--spin")
    (launch,) = hang.launches
    (group,) = launch.groups
    assert (hang.kind, launch.name, group.doing) == ("spin", "count_locked<<<2, 64>>>", "spin")
    assert (group.count, group.warps) == (4, [(0, 0), (0, 1), (1, 0), (1, 1)])
    assert [one.opcode for one in group.instructions] == ["atom", "setp", "bra"]
    assert group.instructions[0].source == source("atom.global.cas")
    assert group.at is not None and group.at.startswith("region 0 + 0 (0x")
    assert launch.callers[0].startswith("run (hangs.c:")
    told = json.loads(support.ttanalyze("info", run, "--json").stdout)
    (incident,) = told["processes"][0]["incidents"]
    assert incident["hang"]["kind"] == "spin"
    assert [thread["call"] for thread in incident["threads"]] == ["cuCtxSynchronize"]
    assert hang.lines()[0] in support.ttanalyze("info", run).stdout
    asked = ("query", run, "--table", "hangs", "--format", "json")
    rows = json.loads(support.ttanalyze(*asked).stdout)
    assert [row["source"] for row in rows] == [one.source for one in group.instructions]
    assert {(row["hang"], row["doing"], row["warps"]) for row in rows} == {("spin", "spin", 4)}
    done = support.ttanalyze("query", run, "--table", "warps")
    assert done.status == 2 and "counts and heartbeats have no records" in done.stderr


@pytest.mark.long
@in_some_limit(*LIMITS)
def test_barrier_that_not_all_threads_reach_is_named(
    limit: float, program: str, tmp_path: Path
) -> None:
    run = tmp_path / f"run{limit}"
    hang = found(run, limit, "--", program, "--barrier")
    waits, exited = hang.launches[0].groups
    assert (hang.kind, waits.doing, exited.doing) == ("barrier", "barrier", "exited")
    assert (waits.warps, exited.warps) == ([(0, 0)], [(0, 1)])
    assert (waits.at, waits.instructions[0].source) == (
        "barrier 1 of 64 threads",
        source("bar.sync"),
    )


@pytest.mark.long
@in_some_limit(*LIMITS)
def test_missing_arrival_at_an_mbarrier_is_named(
    limit: float, program: str, tmp_path: Path
) -> None:
    run = tmp_path / f"run{limit}"
    hang = found(run, limit, "--", program, "--mbarrier")
    (group,) = hang.launches[0].groups
    assert (hang.kind, group.doing, group.count) == ("mbarrier", "mbarrier", 2)
    assert group.at == "the mbarrier at byte 0 of shared memory"
    assert group.instructions[0].mnemonic.startswith("mbarrier.test_wait")


@pytest.mark.long
@in_some_limit(*LIMITS)
def test_producer_and_consumer_that_wait_for_each_other_are_named(
    limit: float, program: str, tmp_path: Path
) -> None:
    run = tmp_path / f"run{limit}"
    hang = found(run, limit, "--", program, "--exchange")
    producer, consumer = hang.launches[0].groups
    assert (hang.kind, producer.doing, consumer.doing) == ("mutual wait", "poll", "poll")
    assert (producer.warps, consumer.warps) == ([(0, 0)], [(1, 0)])
    assert producer.instructions[0].source == source("while (*free_slots == 0)")
    assert consumer.instructions[0].source == source("while (*full_slots == 0)")
    assert consumer.object == (producer.object or 0) + 4


@in_some_limit(0.15, 1.5)
def test_long_loops_are_not_ended(limit: float, program: str, tmp_path: Path) -> None:
    """The last kernel takes several times the limit."""
    run, turns = tmp_path / f"run{limit}", str(int(limit * 16_666_667))
    words = ("--kind", "heartbeat", "--no-progress", f"{limit}s", "--json", "--", program)
    done = instrument(run, *words, "--turns", turns)
    assert done.status == 0 and done.stdout.startswith("hangs: 4 counted")
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["hang"] is None and told["seconds"] > 2.6 * limit
    assert hangs(tt.open(run)) == []


@pytest.mark.long
def test_kernel_that_still_computes_is_no_hang(program: str, tmp_path: Path) -> None:
    words = ("--kind", "heartbeat", "--kernel-timeout", "^compute=0.3s", "--json", "--", program)
    done = instrument(tmp_path / "run", *words, "--turns", "2000000000")
    assert done.status == 124
    assert report(done)[0] == (
        "ended by the limit of 0.3 s for launches of compute (call 17), with work in flight"
    )
    assert json.loads(done.stderr.splitlines()[-1])["hang"] == "unfinished"
    (hang,) = hangs(tt.open(tmp_path / "run"))
    (group,) = hang.launches[0].groups
    assert group.doing == "computes" and group.instructions


@in_some_limit(0.3, 3, 20)
def test_limits_work_without_traces(limit: float, program: str, tmp_path: Path) -> None:
    run = tmp_path / f"run{limit}"
    limits = ("--kernel-timeout", f"^count=5m;^meet={limit}s", "--", program, "--barrier")
    done = instrument(run, *limits, verb="record")
    assert done.status == 124
    lines = report(done)
    assert lines[0].startswith(f"ended by the limit of {limit} s for launches of meet (call ")
    assert lines[1].startswith("  default stream: meet<<<1, 64>>> (call ")
    assert "  the main thread is in cuCtxSynchronize" in lines
    more = "run `ttanalyze instrument --kind heartbeat --kernel '^meet$'` with the same limits"
    assert any(more in line for line in lines)
    assert hangs(tt.open(run)) == []


@pytest.mark.long
def test_no_progress_without_traces(program: str, tmp_path: Path) -> None:
    words = ("--no-progress", "0.4s", "--", program, "--spin")
    done = instrument(tmp_path / "run", *words, verb="record")
    assert done.status == 124
    assert report(done)[0].startswith("ended by the limit of 0.4 s without progress")


@in_some_limit(0.5, 2, 8, 32)  # both launches have begun, and it ends, in one of them
def test_traced_program_ends_soon_after_its_limit(
    limit: float, program: str, tmp_path: Path
) -> None:
    words = ("--kind", "values", "--timeout", str(limit), "--json", "--", program, "--barrier")
    run = tmp_path / f"run{limit}"
    done = instrument(run, *words)
    assert done.status == 124
    assert len(tt.open(run).processes[0].traced) == 2
    assert json.loads(done.stderr.splitlines()[-1])["seconds"] < limit + 2.8  # it took 3 more once


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("fast", "expected TIME or REGEX=TIME, such as 30s or"),
        ("=5s", "expected TIME or REGEX=TIME"),
        ("gemm=5s;", "expected TIME or REGEX=TIME"),
        ("0", "expected TIME or REGEX=TIME"),
        ("(=5s", "(: "),
    ],
)
def test_wrong_limits_are_named(limit: str, why: str) -> None:
    with pytest.raises(Error) as error:
        options.check("--kernel-timeout", "kernel_timeout", limit)
    assert str(error.value).startswith(f"--kernel-timeout {limit}: {why}")


def test_limits_need_the_timeline() -> None:
    with pytest.raises(Error, match="--no-progress needs --timeline events"):
        options.variables({"no_progress": "5", "timeline": "cupti"}, {})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"warps": "4"}, r"launches\[0\].warps: expected a whole"),
        ({"groups": [3]}, r"launches\[0\].groups: expected a list, each item an object"),
        ({"groups": [{"state": "loops", "count": 1}]}, r"groups\[0\].warps: it is missing"),
        (
            {"groups": [{"state": "loops", "count": 1, "warps": [], "last": 3}]},
            r"groups\[0\].first: it is missing",
        ),
    ],
)
def test_damaged_hangs_are_errors(
    small: Any, run_path: Path, change: dict[str, Any], what: str
) -> None:
    launch = {"seq": 1, "launch": 0, "warps": 4, "warps_per_block": 1, "groups": []} | change
    path = run_path / "p0" / "process.json"
    incident = {"reason": "x", "launches": [launch]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"incidents": [incident]}))
    with pytest.raises(FormatError, match=what):
        tt.open(run_path)


@pytest.mark.long
def test_run_of_a_killed_process_is_readable(program: str, tmp_path: Path) -> None:
    """It has no report, because nobody asked for one."""
    run = tmp_path / "run"
    environment = support.recording(SIM, run, instrument="heartbeat")
    until = time.monotonic() + 60
    with subprocess.Popen([program, "--spin"], env=environment) as process:
        while not list(run.glob("p0/traced.bin")) or not (run / "p0" / "traced.bin").stat().st_size:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        process.kill()
    assert hangs(tt.open(run)) == []
    assert len(tt.open(run).processes[0].traced) == 1


START = """
import ctypes, sys

cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel, out = (ctypes.c_void_p() for _ in range(4))
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read() + bytes(1))
cuda.cuMemAlloc_v2(ctypes.byref(out), 256)

def launch(name, number, times, blocks=1):
    cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name)
    value = ctypes.c_uint(number)
    params = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(value))
    for _ in range(times):
        cuda.cuLaunchKernel(kernel, blocks, 1, 1, 64, 1, 1, 0, None, params, None)

"""
MANY = (
    START
    + """
launch(b"compute", 1000000, 60)
print(cuda.cuCtxSynchronize())
"""
)
AMONG = (
    START
    + """
launch(b"compute", 10, 20)
launch(b"meet", 32, 1)
launch(b"compute", 10, 20)
cuda.cuCtxSynchronize()
"""
)


CLUSTER = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry half(.param .u64 flag, .param .u32 unused)
.reqnctapercluster 2, 1, 1
{
	.reg .b32 %r<3>; .reg .b64 %l; .reg .pred %p;
	ld.param.u64 %l, [flag];
	mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p, %r1, 0;
	@%p bra MEET;
LOOP:
	atom.global.add.u32 %r2, [%l], 0;
	setp.eq.u32 %p, %r2, 0; @%p bra LOOP;
MEET:
	barrier.cluster.arrive; barrier.cluster.wait;
	ret;
}
"""
HALF = (
    START
    + """
cuda.cuMemsetD8_v2(out, ctypes.c_ubyte(0), ctypes.c_size_t(256))
launch(b"half", 0, 1, 4)
cuda.cuCtxSynchronize()
"""
)


def python(text: str, folder: Path, ptx: str = "") -> tuple[str, ...]:
    (folder / "launches.py").write_text(text)
    (folder / "kernels.ptx").write_text(ptx or (support.EXAMPLES / "hangs.ptx").read_text())
    return sys.executable, str(folder / "launches.py"), str(folder / "kernels.ptx")


@in_some_limit(*LIMITS)
def test_blocks_that_wait_for_others_of_their_cluster_are_named(
    limit: float, tmp_path: Path
) -> None:
    hang = found(tmp_path / f"run{limit}", limit, "--", *python(HALF, tmp_path, CLUSTER))
    (launch,) = hang.launches
    groups = {group.doing: (group.at, group.count) for group in launch.groups}
    assert groups["barrier"] == ("the barrier of its cluster", 4) and groups["spin"][1] == 4
    assert hang.kind == "mutual wait"


@in_some_limit(*LIMITS)
def test_launch_that_hangs_is_named_among_others(limit: float, tmp_path: Path) -> None:
    """Those before it have ended, and those behind it have not begun."""
    run = tmp_path / f"run{limit}"
    hang = found(run, limit, "--", *python(AMONG, tmp_path))
    begun = [
        one for one in hang.launches if {group.doing for group in one.groups} != {"not started"}
    ]
    assert (hang.kind, [one.kernel for one in begun]) == ("barrier", ["meet"])
    launches = tt.open(run).traced
    assert launches["complete"].tolist() == [True] * 20 + [False] * 21


IN_GRAPH = (
    START
    + """
stream, graph, executable = (ctypes.c_void_p() for _ in range(3))
cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"meet")
value = ctypes.c_uint(32)
params = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(value))
cuda.cuStreamCreate(ctypes.byref(stream), 1)
cuda.cuStreamBeginCapture_v2(stream, 2)
cuda.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, params, None)
cuda.cuStreamEndCapture(stream, ctypes.byref(graph))
cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
cuda.cuGraphLaunch(executable, stream)
cuda.cuCtxSynchronize()
"""
)


@in_some_limit(*LIMITS)
def test_kernel_that_hangs_in_a_graph_is_named(limit: float, tmp_path: Path) -> None:
    run = tmp_path / f"run{limit}"
    hang = found(run, limit, "--", *python(IN_GRAPH, tmp_path))
    (launch,) = hang.launches
    assert (hang.kind, launch.kernel) == ("barrier", "meet")
    assert [group.doing for group in launch.groups] == ["barrier", "exited"]


@pytest.mark.long
@pytest.mark.parametrize("limit", ["--kernel-timeout", "--no-progress"])
def test_many_launches_without_a_wait_are_not_ended(limit: str, tmp_path: Path) -> None:
    """Together they take longer than the limit, each of them does not."""
    program = python(MANY, tmp_path)
    words = (limit, "1s", "--json", "--", *program)
    done = instrument(tmp_path / "run", *words, verb="record")
    assert (done.status, done.stdout) == (0, "0\n"), done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["seconds"] > 1.5
