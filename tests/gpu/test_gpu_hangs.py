"""On a GPU: what is told of programs whose kernels never end. They end with their process."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import hanging, support
from tests.hanging import check_whole, report

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
