"""On a GPU: the collectives that PyTorch asks NCCL for are rows, and match across ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]

CASE = Path(__file__).resolve().parent / "nccl_case.py"
BARE = support.bare_environment()
STEPS, SIZE = 9, 4 << 20


def recorded(path: Path, ranks: int, late: int, *options: str) -> tt.Run:
    command = [sys.executable, str(CASE), str(ranks), str(late)]
    done = record(command, BARE, path, "--contents", "none", *options)
    assert done.status == 0, done.stderr
    return tt.open(path)


def test_calls_of_one_rank_are_rows(tmp_path: Path) -> None:
    """NCCL's NVTX ranges have communicator, size and reduction. One rank needs no kernel."""
    pytest.importorskip("torch")
    rows = recorded(tmp_path / "run", 1, -1).collectives
    rows = rows[rows["bytes"] == SIZE]
    assert rows["operation"].tolist() == ["AllReduce"] * STEPS
    assert rows["number"].tolist() == list(range(STEPS)) and rows["communicator"].nunique() == 1
    assert set(rows["reduction"]) == {"sum"} and rows["end_seq"].notna().all()


def needs_two_devices() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


def test_two_ranks_match_and_the_late_one_is_named(tmp_path: Path) -> None:
    needs_two_devices()
    run = recorded(tmp_path / "run", 2, 1, "--timeline", "cupti", "--epoch", "nvtx:^never$")
    report = tt.collectives(run)
    assert report.same and report.matched >= STEPS
    late = report.ranks.set_index("rank")
    assert late.loc[1, "last"] >= STEPS - 1 and late.loc[1, "late_max"].value > 10_000_000
    shares = tt.breakdown(run).ranks.set_index("rank")
    assert (shares["communication"] > 0).all()
    assert shares.loc[0, "exposed_communication"] > shares.loc[1, "exposed_communication"]


def test_outputs_of_two_ranks_are_compared(tmp_path: Path) -> None:
    """Other kernels write too: what was equal five times is an output."""
    needs_two_devices()
    report = tt.collectives(recorded(tmp_path / "run", 2, -1, "--epoch", "nvtx:^ncclAllReduce"))
    assert report.same and report.checked >= 1
