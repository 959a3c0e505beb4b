"""What the tests of programs that write past their allocations share, on the simulator and on a
GPU.
"""

from __future__ import annotations

from pathlib import Path

import ttanalyze as tt
from tests import support

FAULTED = 3  # the exit status of recorder_overrun where the device refused the write
SIZES = (4 << 10, 64 << 10, 2 << 20)
MODES: dict[str, dict[str, str]] = {
    "plain": {},
    "deterministic": {"deterministic": "1"},
    "replayable": {"replayable": "1"},
}


def check_overrun(
    built: Path,
    run: Path,
    environment: dict[str, str],
    which: str,
    size: int,
    mode: str,
    same_layout: bool = True,
) -> None:
    """A program that writes so many bytes past its first or its last allocation does what it does
    without us, and its run verifies. same_layout: the driver maps the same pages either way; else
    what lies behind them, and whether the write fails, may differ.
    """
    command = [str(support.build_program("recorder_overrun", built)), which, str(size)]
    bare = support.run(command, environment)
    recorded = support.run(command, support.recording(environment, run, **MODES[mode]))
    faulted = FAULTED in (bare.status, recorded.status)
    if same_layout:
        assert recorded.stdout == bare.stdout
    if same_layout or not faulted:
        assert recorded.status == bare.status
    if not faulted:
        assert recorded.stderr == ""
        report = tt.verify(tt.open(run), run / "manifest.json")
        assert report.same and report.region_epochs, report.to_json()
