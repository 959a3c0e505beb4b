"""On a GPU: captures wait for the events that the program names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import support
from tests.region_ready import check_region_ready

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
BARE = support.bare_environment()


@pytest.mark.parametrize("deps", ["off", "device", "region"])
@pytest.mark.parametrize("timeline", ["events", "cupti", "off"])
def test_captures_wait_for_the_events_of_regions(
    deps: str, timeline: str, built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_region_ready", built))]
    run = tmp_path / "run"
    recorded = support.recording(BARE, run, epoch="api", deps=deps, timeline=timeline)
    outcome = support.run(command, recorded)
    assert (outcome.stdout, outcome.status) == (support.run(command, BARE).stdout, 0)
    assert "not ready" not in outcome.stderr and "no allocation" not in outcome.stderr
    waits = check_region_ready(run)
    print(deps, timeline, waits)
    assert len(waits) == (4 if timeline == "events" else 0)
