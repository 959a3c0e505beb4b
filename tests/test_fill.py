"""`record --fill`, on the simulator: what new memory holds, and what the program sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import support
from tests.recordings import check_run, compare
from ttanalyze import options
from ttanalyze.core.fill import fill_bytes
from ttanalyze.errors import Error

SIM = support.simulator_environment()
FILLS = ("zero", "ones", "pattern:0", "pattern:18446744073709551615")
# Programs that allocate in all ways, and such that meet the driver's errors.
PROGRAMS = (
    "alloc_pitch",
    "alloc_reuse",
    "async_alloc",
    "async_reuse",
    "context_teardown",
    "graph_capture_memory",
    "managed_memory",
    pytest.param("out_of_memory", marks=pytest.mark.long),
    "pools",
    "threads_allocate",
    "vmm_release_first",
    "vmm_remap",
)


@pytest.mark.native
@pytest.mark.parametrize("deterministic", ["0", "1"])
@pytest.mark.parametrize("fill", FILLS)
def test_new_memory_holds_what_was_asked_for(
    built: Path, tmp_path: Path, fill: str, deterministic: str
) -> None:
    command = support.command("recorder_fill", built)
    environment = support.recording(SIM, tmp_path / "run", fill=fill, deterministic=deterministic)
    outcome = support.run(command, environment)
    assert outcome.status == 0, outcome.stderr
    lines = [line.split() for line in outcome.stdout.splitlines()]
    assert len(lines) == 10
    for name, at, text in lines:
        held = np.frombuffer(bytes.fromhex(text), "u1")
        if name == "mapped-again":  # of memory that the program has written to
            assert (held == 0x5A).all()
        elif name == "mapped" and fill.startswith("pattern"):
            # By the address that it was filled at; nothing says which.
            assert len(np.unique(held)) > 200
        else:
            assert (held == fill_bytes(fill, int(at), len(held))).all(), name


@pytest.mark.native
@pytest.mark.parametrize("deterministic", ["0", "1"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_behaves_as_without_us(
    built: Path, tmp_path: Path, name: str, deterministic: str
) -> None:
    command = support.command(name, built)
    more = support.RECORDING_OPTIONS.get(name, {})
    run = tmp_path / "run"
    environment = support.recording(SIM, run, fill="pattern:3", deterministic=deterministic, **more)
    compare(name, support.run(command, SIM), support.run(command, environment))
    check_run(name, run)


@pytest.mark.native
def test_memory_that_a_stream_may_not_reach_is_left_alone(built: Path, tmp_path: Path) -> None:
    command, two = support.command("recorder_fill", built), SIM | {"TT_SIM_DEVICES": "2"}
    assert support.run(command, two).status == 0
    for fill in ("off", "pattern:1"):
        outcome = support.run(command, support.recording(two, tmp_path / fill, fill=fill))
        assert (outcome.status, outcome.stderr) == (0, "")
        assert outcome.stdout.splitlines()[-1] == "far 0 00"


@pytest.mark.native
@pytest.mark.parametrize("value", ["some", "pattern", "pattern:", "pattern:-1", "pattern:1x", "1"])
def test_a_bad_value_is_refused(value: str) -> None:
    with pytest.raises(Error) as refused:
        options.variables({"fill": value}, {})
    assert "expected off, zero, ones or pattern:N" in str(refused.value)
