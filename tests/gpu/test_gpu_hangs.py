"""On a GPU: what is told of programs whose kernels never end. They end with their process."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import hanging, support
from tests.hanging import check_whole, report
from ttanalyze.traces.hangs import hangs
from ttanalyze.verbs.record.run import sanitizer_library

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
BARE = support.bare_environment()
SPIN = "stream 16: {}spin<<<4, 32>>> (call "


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("how", "expected", "options"),
    [
        ("spin", SPIN.format("3 calls, the first "), {}),
        ("spin", "stream 16: work of unrecorded calls", {"events": "0"}),
        ("spin", SPIN.format("3 calls, the first "), {"epoch": "launch", "stall_ms": "300"}),
        ("event", SPIN.format("2 calls, the first "), {}),
        ("queue", SPIN.format("2 calls, the first "), {"timeline": "events"}),
        # CUPTI gives no record of a buffer in which one is incomplete.
        ("queue", "stream 16: 4 calls, the first fill<<<16, 64>>> (call ", {"timeline": "cupti"}),
        ("queue", "stream 16: 4 calls, the first fill<<<16, 64>>> (call ", {}),
        ("behind", SPIN.format(""), {}),
        ("graph", "stream 16: cuGraphLaunch (call ", {}),
        ("value", "stream 16: 2 calls, the first cuStreamWaitValue32_v2 (call ", {}),
        ("cpp", "stream 16: outer::(anonymous namespace)::inner<...><<<4, 32>>> (call ", {}),
        ("streams", "stream 18: spin<<<4, 32>>> (call ", {}),
    ],
)
def test_hang_is_reported(
    how: str, expected: str, options: dict[str, str], built: Path, run: Path
) -> None:
    command = [str(support.build_program("recorder_hangs", built)), how]
    environment = support.recording(BARE, run, **options)
    outcome = hanging.hang(command, environment, signal.SIGTERM, after=1)
    assert outcome.status == -signal.SIGTERM
    lines = report(outcome)
    assert "ended by signal 15 (SIGTERM), with work in flight" in lines
    assert any(line.strip().startswith(expected) for line in lines), lines
    assert re.fullmatch(r"  last complete epoch: \d+ \(call \d+, AGO\)", lines[-1])
    check_whole(run, "signal", "signal 15")


def test_signal_without_work_in_flight_is_reported(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_hangs", built)), "idle"]
    outcome = hanging.hang(command, support.recording(BARE, run), signal.SIGTERM)
    assert report(outcome)[0] == "ended by signal 15 (SIGTERM), nothing in flight"
    check_whole(run, "signal", "signal 15")


@pytest.mark.parametrize(
    ("how", "status"), [("abort", -6), ("segv", -11), ("exit", 0)], ids=["abort", "segv", "exit"]
)
def test_process_exit_behind_a_hang_ends_the_recording(
    how: str, status: int, built: Path, run: Path
) -> None:
    command = [str(support.build_program("recorder_hangs", built)), how]
    outcome = hanging.hang(command, support.recording(BARE, run, stall_ms="500"))
    assert outcome.status == status
    check_whole(run, "signal" if status else "complete", f"signal {-status}" if status else None)
    told = tt.open(run).processes[0].info["incidents"]
    assert [stream["stream"] for incident in told for stream in incident["in_flight"]] == (
        [16] if status else []
    )


@pytest.mark.exclusive
def test_time_limit_ends_a_hang(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_hangs", built)), "spin"]
    outcome = hanging.hang(command, support.recording(BARE, run, timeout="4"))
    assert outcome.status == -signal.SIGTERM
    assert report(outcome)[0] == "ended by its time limit of 4 s, with work in flight"
    check_whole(run, "timeout", "its time limit of 4 s")


@pytest.mark.parametrize("epoch", ["sync", "none"])
def test_lost_context_is_reported_once(epoch: str, built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_hangs", built)), "fault"]
    bare = support.run(command, BARE)
    outcome = support.run(command, support.recording(BARE, run, epoch=epoch))
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    lines = report(outcome)
    assert sum("the context is lost, with this work in flight" in line for line in lines) == 1
    assert any(line.startswith("  stream 16: 2 calls, the first poke<<<1, 1>>>") for line in lines)


# ---- what warps do ----

LIMIT = ("--no-progress", "1s", "--timeout", "30s")
WAYS = [
    pytest.param(
        "sanitizer",
        marks=pytest.mark.skipif(
            not sanitizer_library(), reason="nvidia-cuda-sanitizer-api >= 13.5"
        ),
    ),
    pytest.param(
        "patcher",
        marks=pytest.mark.skipif(
            "H" not in (support.gpu_name() or ""), reason="needs a GPU of sm_90"
        ),
    ),
]


@pytest.fixture(scope="module")
def program(built: Path) -> str:
    return str(support.build_examples(built / "examples") / "hangs")


def instrument(run: Path, *words: str, verb: str = "instrument") -> support.Outcome:
    given: list[str | Path] = [verb, "-o", run, *words]
    return support.ttanalyze(*given, environment=BARE)


@pytest.mark.exclusive
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("how", "kind", "kernel", "opcode", "line"),
    [
        ("--spin", "spin", "count_locked", "ATOMG", "atom.global.cas"),
        ("--barrier", "barrier", "meet", "BAR", "bar.sync"),
        ("--mbarrier", "mbarrier", "pass_on", "SYNCS", "mbarrier.test_wait"),
        ("--exchange", "mutual wait", "exchange", "LD", "while (*free_slots == 0)"),
    ],
)
def test_hang_is_named(
    how: str, kind: str, kernel: str, opcode: str, line: str, way: str, program: str, run: Path
) -> None:
    words = (
        "--way",
        way,
        "--kind",
        "heartbeat",
        *LIMIT,
        "--cpu-callstack",
        "backtrace",
        "--",
        program,
        how,
    )
    outcome = instrument(run, *words)
    assert outcome.status == 124, outcome.stderr
    assert report(outcome)[0] == "ended by the limit of 1 s without progress, with work in flight"
    (hang,) = hangs(tt.open(run))
    (launch,) = hang.launches
    assert (hang.kind, launch.kernel) == (kind, kernel), outcome.stderr
    assert f"ttanalyze: {hang.lines()[0]}" in outcome.stderr
    group = launch.groups[0]
    found = [one for one in group.instructions if one.opcode.startswith(opcode)]
    assert found, hang.lines()
    lines = (support.EXAMPLES / "hangs.cu").read_text().splitlines()
    (number,) = [i for i, one in enumerate(lines, 1) if line in one]
    near = range(number - 3, number + 4)  # of a statement that has several lines
    assert any(one.file and one.file.endswith("hangs.cu") and one.line in near for one in found)
    assert launch.callers[0].startswith("run (hangs.c:")


@pytest.mark.exclusive
@pytest.mark.parametrize("way", WAYS)
def test_long_loop_is_not_ended(way: str, program: str, run: Path) -> None:
    words = (
        "--way",
        way,
        "--kind",
        "heartbeat",
        "--no-progress",
        "0.3s",
        "--timeout",
        "60s",
        "--json",
    )
    done = instrument(run, *words, "--", program, "--turns", "2000000000")
    assert done.status == 0 and done.stdout.startswith("hangs: 4 counted"), done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["hang"] is None


@pytest.mark.exclusive
def test_limits_without_traces(program: str, run: Path) -> None:
    words = ("--kernel-timeout", "^meet=1s", "--timeout", "30s", "--", program, "--barrier")
    done = instrument(run, *words, verb="record")
    assert done.status == 124
    assert report(done)[0].startswith("ended by the limit of 1 s for launches of meet (call ")
    assert hangs(tt.open(run)) == []


@pytest.mark.exclusive
@pytest.mark.parametrize("way", WAYS[:1])
def test_traced_program_ends_soon_after_its_limit(way: str, program: str, run: Path) -> None:
    words = ("--way", way, "--kind", "values", "--timeout", "2", "--json", "--", program, "--spin")
    done = instrument(run, *words)
    assert done.status == 124
    assert json.loads(done.stderr.splitlines()[-1])["seconds"] < 5
