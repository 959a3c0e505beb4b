"""Programs that capture streams and make, change and launch graphs notice nothing of a recording,
however it was asked to cut epochs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import ttanalyze as tt
from tests import recordings, support

pytestmark = [pytest.mark.native, pytest.mark.large]

NAMES = [name for name in support.all_names() if "graph" in name]
OPTIONS = [
    {"epoch": "graph", "params": "1"},
    {"epoch": "launch,graph,memcpy", "regions": "touched"},
    {"epoch": "sync,graph-node:.*"},
    {"epoch": "graph-node:add|fill", "deps": "region", "cpu_callstack": "auto"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options["epoch"])
@pytest.mark.parametrize("name", NAMES)
def test_recording_graphs_does_not_change_program_behaviour(
    name: str, options: dict[str, str], built: Path, run_path: Path
) -> None:
    command = support.command(name, built)
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED="4")
    bare = support.run(command, environment)
    options = support.RECORDING_OPTIONS.get(name, {}) | options
    recorded = support.run(command, support.recording(environment, run_path, **options))
    recordings.compare(name, bare, recorded)
    recordings.check_run(name, run_path)


def test_epochs_continue_after_aborted_stream_captures(built: Path, run_path: Path) -> None:
    """Epochs are cut again as soon as no stream is captured any more."""
    command = [str(support.build_program("simonly_captures", built))]
    recorded = support.recording(support.simulator_environment(), run_path)
    assert support.run(command, recorded).status == 0
    assert tt.open(run_path).epochs["trigger"].tolist() == ["sync"] * 4 * 3
