"""On two GPUs: each has its ring, and an epoch by name is of both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import support
from tests.devices import check_devices
from tests.gpu.test_gpu import check_recording
from tests.recordings import compare

HERE = Path(__file__).resolve().parent
BARE = support.bare_environment()


def gpus() -> int:
    """How many this machine has."""
    if support.gpu_name() is None:
        return 0
    listed = support.run(["nvidia-smi", "-L"], BARE)
    return listed.stdout.count("GPU ")


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpus() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize("options", [{}, {"regions": "touched"}, {"deterministic": "1"}])
def test_named_epoch_captures_all_devices(
    options: dict[str, str], built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_two_devices", built))]
    bare = support.run(command, BARE)
    assert bare.status == 0
    run = tmp_path / "run"
    assert support.run(command, support.recording(BARE, run, epoch="api", **options)) == bare
    check_devices(run)


@pytest.mark.parametrize("options", [{}, {"epoch": "launch"}, {"deterministic": "1"}])
def test_copies_to_the_other_device_are_captured(
    options: dict[str, str], built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_no_peer_access", built))]
    bare = support.run(command, BARE)
    assert bare.status == 0
    compare("", bare, support.run(command, support.recording(BARE, tmp_path / "run", **options)))


@pytest.mark.parametrize(("way", "off"), [("P2P", "0"), ("SHM", "1")])
def test_two_nccl_ranks_are_recorded(way: str, off: str, tmp_path: Path) -> None:
    """Two ranks, a process each, whose gradients NCCL adds up: both have the same weights. By
    NVLink and by shared memory of the host.
    """
    pytest.importorskip("torch")
    told = f"NCCL_DEBUG_FILE={tmp_path}/nccl.%p"
    settings = [f"NCCL_P2P_DISABLE={off}", "NCCL_DEBUG=INFO", told]
    command = ["env", *settings, sys.executable, str(HERE / "train_ddp.py")]
    opened = check_recording(command, tmp_path / "run", 300, epoch="sync")
    assert any(f" via {way}" in path.read_text() for path in tmp_path.glob("nccl.*"))
    assert {p.info["devices"][0]["ordinal"] for p in opened.processes} == {0, 1}
    assert all(len(p.epochs) > 3 for p in opened.processes)


def test_pytorch_shares_a_tensor_between_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "share_tensor.py")]
    opened = check_recording(command, tmp_path / "run", 300, epoch="sync")
    kinds = opened.regions.groupby("process")["kind"].agg(set)
    assert sorted("ipc" in of for of in kinds) == [False, True]


def test_nccl_collectives_in_one_process_are_recorded(tmp_path: Path) -> None:
    """NCCL between two devices of one process, with epochs over both."""
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "two_devices.py")]
    opened = check_recording(command, tmp_path / "run", 300, epoch="api")
    epochs = opened.epochs[opened.epochs["trigger"] == "api"]
    assert set(epochs.groupby("seq")["device"].nunique()) == {2}
