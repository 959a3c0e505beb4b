"""Page-locked memory of the host in epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.host_memory import check_arrays, check_host_memory

pytestmark = pytest.mark.native
SIM = support.simulator_environment()


@pytest.mark.parametrize("more", [{}, {"deps": "region"}, {"regions": "touched"}])
def test_host_memory_is_captured_on_request(
    more: dict[str, str], built: Path, run_path: Path
) -> None:
    command = [str(support.build_program("recorder_host_memory", built))]
    done = support.run(command, support.recording(SIM, run_path, host_memory="1", **more))
    assert (done.stdout, done.stderr, done.status) == ("3 3 3\n", "", 0)
    check_host_memory(run_path)


def test_host_memory_is_only_listed_otherwise(built: Path, run_path: Path) -> None:
    command = [str(support.build_program("recorder_host_memory", built))]
    assert support.run(command, support.recording(SIM, run_path)).status == 0
    regions = tt.open(run_path).regions.set_index("kind")
    assert not regions.loc[["host", "host-registered"], "captured"].any()


def test_host_memory_excludes_replays() -> None:
    options = ("--host-memory", "--replayable")
    refused = support.ttanalyze("record", "--sim", *options, "--", "true")
    assert refused.status == 2
    assert "replays have no memory of the host" in refused.stderr


@pytest.mark.parametrize("more", [{}, {"regions": "touched"}])
def test_arrays_are_captured_on_request(more: dict[str, str], built: Path, run_path: Path) -> None:
    command = [str(support.build_program("recorder_arrays", built))]
    done = support.run(command, support.recording(SIM, run_path, arrays="1", **more))
    assert (done.stdout, done.stderr, done.status) == ("done\n", "", 0)
    check_arrays(run_path)
