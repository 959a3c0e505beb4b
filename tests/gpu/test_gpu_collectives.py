"""On a GPU: the collectives that PyTorch asks NCCL for are rows, and match across ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.output.times import as_nanoseconds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]

CASE = Path(__file__).resolve().parent / "nccl_case.py"
STEPS, SIZE = 9, 4 << 20


def recorded(path: Path, ranks: int, *arguments: str, options: tuple[str, ...] = ()) -> tt.Run:
    pytest.importorskip("torch")
    command = [sys.executable, str(CASE), "--ranks", str(ranks), *arguments]
    environment = support.bare_environment()
    done = record(command, environment, path, "--contents", "none", *options)
    hangs = "--leaves" in arguments
    assert done.status == (1 if hangs else 0), done.stderr
    return tt.open(path)


def test_calls_of_one_rank_are_rows(tmp_path: Path) -> None:
    """NCCL's NVTX ranges have communicator, size and reduction. One rank needs no kernel."""
    rows = recorded(tmp_path / "run", 1).collectives
    rows = rows[rows["bytes"] == SIZE]
    assert rows["operation"].tolist() == ["AllReduce"] * STEPS
    assert rows["number"].tolist() == list(range(STEPS)) and rows["communicator"].nunique() == 1
    assert set(rows["reduction"]) == {"sum"} and rows["end_seq"].notna().all()


def test_ranks_match_and_the_late_one_is_named(ranks: int, tmp_path: Path) -> None:
    options = ("--timeline", "cupti", "--epoch", "nvtx:^never$")
    run = recorded(tmp_path / "run", ranks, "--late", "1", options=options)
    report = tt.collectives(run)
    assert report.same and report.matched >= STEPS
    late = report.ranks.set_index("rank")
    assert late.loc[1, "last"] >= STEPS - 1 and late.loc[1, "late_max"].value > 10_000_000
    shares = as_nanoseconds(tt.breakdown(run).ranks).set_index("rank")
    assert (shares["communication"] > 0).all() and len(shares) == ranks
    exposed = shares["exposed_communication"]
    assert (exposed.drop(1) > exposed[1]).all()


AFTER_EACH = ("--epoch", "nvtx:^ncclAllReduce")


def test_outputs_of_ranks_are_compared(ranks: int, tmp_path: Path) -> None:
    """Other kernels write too: what was equal five times is an output."""
    report = tt.collectives(recorded(tmp_path / "run", ranks, options=AFTER_EACH))
    assert report.same and report.checked >= 1, report


def test_wrong_output_of_rank_1_is_named(ranks: int, tmp_path: Path) -> None:
    report = tt.collectives(recorded(tmp_path / "run", ranks, "--wrong", "7", options=AFTER_EACH))
    assert len(report.wrong) == SIZE // BLOCK_SIZE, report.to_json()
    for wrong in report.wrong:
        assert wrong.number == 7 and wrong.groups == [[0, *range(2, ranks)], [1]]


def test_hang_says_which_ranks_are_in_the_collective(ranks: int, tmp_path: Path) -> None:
    """Rank 1 does not call the last all-reduce; the others wait for it in their kernels."""
    run = recorded(tmp_path / "run", ranks, "--leaves", "1")
    (one,) = tt.collectives(run).open
    assert (one.operation, one.number, one.left) == ("AllReduce", STEPS - 1, [])
    assert (one.inside, one.missing) == ([0, *range(2, ranks)], [1])
    assert one.last == {1: f"AllReduce {STEPS - 2}"}
    told = support.ttanalyze("collectives", run.path)
    assert told.status == 1 and "rank 1 did not call it (the last was AllReduce 7)" in told.stdout
