"""On two or more GPUs: a replica that differs is named, and sound training gives no report."""

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

PROGRAM = [sys.executable, str(Path(__file__).with_name("train_replicas.py"))]
STEPS, STEP, WEIGHT = 10, 7, "1.linear1.weight"


def trained(
    path: Path, ranks: int, *arguments: str, contents: str = "none", regions: str = "all"
) -> tt.Run:
    pytest.importorskip("torch")
    options = ["--contents", contents, "--regions", regions, "--epoch", "nvtx:^step"]
    command = [*PROGRAM, "--ranks", str(ranks), *arguments]
    done = record(command, support.importing_environment(), path, *options)
    assert done.status == 0, done.stderr
    assert "stopped naming" not in done.stderr
    return tt.open(path)


@pytest.mark.parametrize("contents", ["none", "changed"])
def test_changed_gradient_of_rank_1_is_named(contents: str, ranks: int, tmp_path: Path) -> None:
    """By step and tensor from digests alone, and by element with contents."""
    run = trained(tmp_path / "run", ranks, "--spoil", str(STEP), contents=contents)
    report = tt.replicas(run)
    print(report.to_json()[:4000])
    assert not report.same
    assert {str(found.step).rpartition("/")[2] for found in report.found} == {f"step {STEP}"}
    names = {name for found in report.found for name in found.names}
    assert names and all(name.startswith(WEIGHT) for name in names), names
    assert {found.ranks for found in report.found} == {(0, 1)}
    if ranks > 2:
        assert {tuple(found.odd) for found in report.found} == {(1,)}
    if contents == "changed":
        assert f"{WEIGHT}.grad" in names
        differing = [one for found in report.found for one in found.divergence.tensors]
        assert (f"{WEIGHT}.grad", 17) in {(one.name, one.first_element) for one in differing}


def test_change_is_named_where_the_program_names_nothing(ranks: int, tmp_path: Path) -> None:
    """`--regions named` names what the program has, and reads only this."""
    run = trained(tmp_path / "run", ranks, "--spoil", str(STEP), "--bare", regions="named")
    assert not run.labels["tensor"].str.contains("output|saved", na=False).any()
    assert run.epochs["touched"].sum() >= ranks * (STEPS - 1)
    report = tt.replicas(run)
    assert [str(found.step).rpartition("/")[2] for found in report.found][:1] == [f"step {STEP}"]
    names = {name for found in report.found for name in found.names}
    assert names and all(name.startswith(WEIGHT) for name in names), names


@pytest.mark.parametrize("arguments", [[], ["--bare"], ["--sharded"], ["--sharded", "--bare"]])
def test_sound_training_gives_no_report(arguments: list[str], ranks: int, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", ranks, *arguments)
    try:
        report = tt.replicas(run)
    except tt.Error as e:
        if "--sharded" in arguments and "no memory was equal" in str(e):
            return
        raise
    assert report.same, [
        (one.epoch, one.step, one.names, one.blocks, one.contents, one.divergence.size)
        for one in report.found
    ]
    assert report.epochs >= STEPS
