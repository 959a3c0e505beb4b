"""On a GPU: programs that write past their allocations do not reach the recorder's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import support
from tests.overruns import MODES, SIZES, check_overrun

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize("mode", MODES)
def test_recorder_survives_out_of_bounds_writes(
    mode: str, which: str, size: int, built: Path, tmp_path: Path
) -> None:
    environment = support.bare_environment()
    check_overrun(built, tmp_path / "run", environment, which, size, mode, same_layout=False)


@pytest.mark.parametrize("mode", MODES)
def test_read_before_the_first_allocation(mode: str, built: Path, tmp_path: Path) -> None:
    environment = support.bare_environment()
    command = [str(support.build_program("recorder_overrun", built)), "before", "2048"]
    bare = support.run(command, environment)
    recorded = support.run(command, support.recording(environment, tmp_path / "run", **MODES[mode]))
    assert (recorded.stdout, recorded.status) == (bare.stdout, bare.status)
