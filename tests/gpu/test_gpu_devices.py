"""On two GPUs and on four: each has its ring, and an epoch by name is of all."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.devices import check_devices
from tests.gpu.test_gpu import check_recording
from tests.recordings import compare

HERE = Path(__file__).resolve().parent

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    pytest.mark.gpus(2),  # or as many as the parameter of a test says
]


@pytest.mark.parametrize("options", [{}, {"regions": "touched"}, {"deterministic": "1"}])
def test_named_epoch_captures_all_devices(
    options: dict[str, str], ranks: int, built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_several_devices", built)), str(ranks)]
    environment = support.bare_environment()
    bare = support.run(command, environment)
    assert bare.status == 0
    run = tmp_path / "run"
    recorded = support.recording(environment, run, epoch="api", **options)
    assert support.run(command, recorded) == bare
    check_devices(run, ranks)


@pytest.mark.parametrize("options", [{}, {"epoch": "launch"}, {"deterministic": "1"}])
def test_copies_to_the_other_device_are_captured(
    options: dict[str, str], built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_no_peer_access", built))]
    environment = support.bare_environment()
    bare = support.run(command, environment)
    assert bare.status == 0
    recorded = support.recording(environment, tmp_path / "run", **options)
    compare("", bare, support.run(command, recorded))


@pytest.mark.parametrize(("way", "off"), [("P2P", "0"), ("SHM", "1")])
def test_nccl_ranks_are_recorded(way: str, off: str, ranks: int, tmp_path: Path) -> None:
    """Ranks, a process each, whose gradients NCCL adds up: all have the same weights. By NVLink and
    by shared memory of the host.
    """
    pytest.importorskip("torch")
    told = f"NCCL_DEBUG_FILE={tmp_path}/nccl.%p"
    settings = [f"NCCL_P2P_DISABLE={off}", "NCCL_DEBUG=INFO", told]
    command = ["env", *settings, sys.executable, str(HERE / "train_ddp.py"), str(ranks)]
    opened = check_recording(command, tmp_path / "run", 300, epoch="sync")
    assert any(f" via {way}" in path.read_text() for path in tmp_path.glob("nccl.*"))
    assert {p.info["devices"][0]["ordinal"] for p in opened.processes} == set(range(ranks))
    assert all(len(p.epochs) > 3 for p in opened.processes)


@pytest.mark.parametrize("options", [{}, {"deterministic": "1"}])
@pytest.mark.parametrize("name", ["recorder_ipc", "recorder_ipc_devices"])
def test_memory_of_another_process_is_recorded(
    name: str, options: dict[str, str], built: Path, tmp_path: Path
) -> None:
    """A process opens what another one allocated, on one device and on two, and changes it."""
    command, run = [str(support.build_program(name, built))], tmp_path / "run"
    environment = support.bare_environment()
    bare = support.run(command, environment)
    assert "the other ended with 0\n" in bare.stdout, bare
    recorded = support.run(command, support.recording(environment, run, **options))
    # Whether a handle of freed memory opens depends on where the driver put what came after it.
    of_freed = re.compile("^.*m.freed, .*\n", re.M)
    bare, recorded = (replace(o, stdout=of_freed.sub("", o.stdout)) for o in (bare, recorded))
    compare("", bare, recorded)
    assert opens_memory(tt.open(run)) == [False, True]


def opens_memory(run: tt.Run) -> list[bool]:
    """Whether each process has memory of another one, those without first."""
    table = run.regions
    kinds = [set(table.loc[table["process"] == p.index, "kind"]) for p in run.processes]
    return sorted("ipc" in some for some in kinds)


def test_pytorch_shares_a_tensor_between_processes(ranks: int, tmp_path: Path) -> None:
    """A process for each GPU: all but the first change the first one's memory, and copy it."""
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "share_tensor.py"), str(ranks)]
    opened = check_recording(command, tmp_path / "run", 300, epoch="sync")
    assert opens_memory(opened) == [False] + [True] * (ranks - 1)


def test_nccl_collectives_in_one_process_are_recorded(ranks: int, tmp_path: Path) -> None:
    """NCCL and copies between the devices of one process, with epochs over all."""
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "several_devices.py"), str(ranks)]
    opened = check_recording(command, tmp_path / "run", 300, epoch="api")
    epochs = opened.epochs[opened.epochs["trigger"] == "api"]
    assert set(epochs.groupby("seq")["device"].nunique()) == {ranks}
