"""Programs that write past their allocations, on a simulator that lets them, as GPUs do: small
allocations share pages, and a kernel may write to all of a page that has any.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import support
from tests.overruns import FAULTED, MODES, SIZES, check_overrun

pytestmark = pytest.mark.native
LENIENT = support.simulator_environment(TT_SIM_BOUNDS="lenient")


@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize("mode", MODES)
def test_recorder_survives_out_of_bounds_writes(
    mode: str, which: str, built: Path, tmp_path: Path
) -> None:
    """Its own memory lies elsewhere, in every mode."""
    for size in SIZES:
        run, same_layout = tmp_path / str(size), mode == "plain"
        check_overrun(built, run, LENIENT, which, size, mode, same_layout)


def test_access_to_unmapped_pages_faults(built: Path) -> None:
    """The simulator lets kernels write to pages that hold an allocation, and to no others."""
    program = support.build_program("recorder_overrun", built)
    inside = support.run([program, "first", str(64 << 10)], LENIENT)
    assert (inside.status, "ILLEGAL" in inside.stdout) == (0, False)
    outside = support.run([program, "last", str(2 << 20)], LENIENT)
    assert outside.status == FAULTED
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in outside.stdout
    strict = support.run([program, "last", "4"], support.simulator_environment())
    assert strict.status == FAULTED


def test_read_before_the_first_allocation_does_not_fault(built: Path, tmp_path: Path) -> None:
    """Where allocations have addresses of ours there is memory before them, as the driver has."""
    environment = support.simulator_environment()
    command = [str(support.build_program("recorder_overrun", built)), "before", "2048"]
    recorded = support.recording(environment, tmp_path / "other", deterministic="1")
    assert support.run(command, recorded).status == 0
