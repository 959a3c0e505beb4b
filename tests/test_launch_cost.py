"""What the recorder adds to a call, in instructions: counted one by one, on the simulator.

The counts are the same in every run, so they are held to limits that leave a tenth for other
compilers. Times are the benchmark's business.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import support

# Instructions of the calling thread that a call may cost outside of the driver, no epoch due.
LIMITS = {
    "events": ({"epoch": "none"}, {"launch": 310, "launch_ex": 300, "memset": 490, "stream": 1150}),
    "epochs at waits": ({"epoch": "sync"}, {"launch": 310, "launch_ex": 300, "memset": 490}),
    "epochs of a kernel that is not launched": (
        {"epoch": "kernel:^none$"},
        {"launch": 310, "launch_ex": 300, "memset": 490},
    ),
    "touched regions": (
        {"epoch": "sync", "regions": "touched"},
        {"launch": 530, "launch_ex": 520, "memset": 590},
    ),
    "parameters": ({"epoch": "none", "params": "1"}, {"launch": 550, "launch_ex": 540}),
    "native call stacks": (
        {"epoch": "none", "cpu_callstack": "backtrace"},
        {"launch": 2400, "launch_ex": 2400, "memset": 2700},
    ),
    "check": (
        {"contents": "none", "deterministic": "1", "fill": "zero", "params": "1"}
        | {"host_writes": "1", "cpu_callstack": "auto", "epoch": "sync,launch:8192"},
        {"launch": 2650, "launch_ex": 2650, "memset": 2400},
    ),
    "skipped epochs": (
        {"epoch": "sync", "max_overhead": "0.1%", "overhead_allowance": "0"},
        {"launch": 310, "step": 1640},
    ),
    "no events": (
        {"epoch": "none", "events": "0"},
        {"launch": 190, "launch_ex": 190, "memset": 320},
    ),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return support.build_program("recorder_launch_instructions", tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def bare(program: Path) -> dict[str, int]:
    """Instructions of the program itself for each call."""
    return count(program, support.simulator_environment())


def count(program: Path, environment: dict[str, str]) -> dict[str, int]:
    done = support.run([program], environment)
    assert done.status == 0, done.stderr
    return {name: int(steps) for name, steps in map(str.split, done.stdout.splitlines())}


@pytest.mark.sampled
@pytest.mark.parametrize("what", LIMITS)
def test_recorded_call_costs_few_instructions(
    what: str, program: Path, bare: dict[str, int], run_path: Path
) -> None:
    options, limits = LIMITS[what]
    environment = support.recording(support.simulator_environment(), run_path, **options)
    recorded = count(program, environment)
    assert (run_path / "p0" / "epochs.bin").exists(), "it was recorded"
    added = {name: recorded[name] - bare[name] for name in recorded}
    assert min(added.values()) > 0, f"counted nothing of the recorder: {added}"
    over = {name: most for name, most in limits.items() if added[name] > most}
    assert not over, f"instructions added to a call: {added}, more than there may be: {over}"
