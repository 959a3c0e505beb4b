"""Several devices in one process: each has its ring, and an epoch by name is of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.devices import check_across, check_devices

pytestmark = pytest.mark.native


@pytest.mark.parametrize("options", [{}, {"regions": "touched"}, {"deterministic": "1"}])
@pytest.mark.parametrize(("seed", "count"), [(0, 2), (1, 2), (2, 4)])
def test_named_epoch_captures_all_devices(
    seed: int, count: int, options: dict[str, str], built: Path, tmp_path: Path
) -> None:
    environment = support.simulator_environment(
        TT_SIM_DEVICES=str(count), TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed)
    )
    command = [str(support.build_program("recorder_several_devices", built)), str(count)]
    bare = support.run(command, environment)
    assert bare.status == 0
    run = tmp_path / "run"
    recorded = support.recording(environment, run, epoch="api", **options)
    assert support.run(command, recorded) == bare
    check_devices(run, count)


@pytest.mark.parametrize("devices", ["1", "2"])
@pytest.mark.parametrize("options", [{}, {"regions": "touched"}, {"deps": "region"}])
def test_work_in_one_context_changes_memory_of_another(
    options: dict[str, str], devices: str, built: Path, tmp_path: Path
) -> None:
    environment = support.simulator_environment(
        TT_SIM_DEVICES=devices, TT_SIM_SCHEDULE="random", TT_SIM_SEED="7"
    )
    command = [str(support.build_program("recorder_two_contexts", built))]
    bare, run = support.run(command, environment), tmp_path / "run"
    assert support.run(command, support.recording(environment, run, **options)) == bare
    check_across(run, bare.stdout)


@pytest.mark.parametrize("fault", ["apart:0", "apart:1"])
@pytest.mark.parametrize("options", [{}, {"epoch": "launch"}, {"deterministic": "1"}])
def test_copies_to_the_other_device_are_captured(
    options: dict[str, str], fault: str, built: Path, tmp_path: Path
) -> None:
    """Without peer access copies reach it and sets do not, also between devices that have none."""
    environment = support.simulator_environment(TT_SIM_DEVICES="2", TT_SIM_FAULT=fault)
    command = [str(support.build_program("recorder_no_peer_access", built))]
    bare = support.run(command, environment)
    assert bare.stdout.count("CUDA_ERROR_INVALID_VALUE") == 3
    assert support.run(command, support.recording(environment, tmp_path / "run", **options)) == bare


def test_threads_do_not_wait_for_a_capture_of_another_device(built: Path, tmp_path: Path) -> None:
    """A thread waits for a capture that ends only with what another thread is about to submit."""
    environment = support.simulator_environment(TT_SIM_DEVICES="2")
    command = [str(support.build_program("recorder_rank_threads", built))]
    bare, run = support.run(command, environment), tmp_path / "run"
    assert support.run(command, support.recording(environment, run)) == bare
    assert not tt.open(run).epochs["refused"].any()
