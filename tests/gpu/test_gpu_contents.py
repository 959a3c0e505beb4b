"""On a GPU: epochs without contents, and contents of some epochs, of PyTorch programs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]

HERE = Path(__file__).resolve().parent
BARE = support.bare_environment(CUBLAS_WORKSPACE_CONFIG=":4096:8")
STEP = [sys.executable, str(support.ROOT / "bench" / "programs" / "train_step.py")]


def test_digests_alone_name_the_blocks_that_differ(tmp_path: Path) -> None:
    """As a recording of contents does, which names the bytes besides."""
    command = [sys.executable, str(HERE / "train_adamw.py"), "--steps", "4"]
    found = {}
    for contents in ("none", "changed"):
        runs = [tmp_path / f"{contents}-{name}" for name in ("a", "b")]
        for run, more in zip(runs, ([], ["--perturb", "2"]), strict=True):
            options = ["--deterministic", "--contents", contents]
            done = record([*command, *more], BARE, run, *options)
            assert done.status == 0, done.stderr
        outcome = support.ttanalyze("diff", *runs, "--json")
        assert outcome.status == 1, outcome.stderr
        found[contents] = json.loads(outcome.stdout)["processes"][0]["divergences"][0]
    for member in ("epoch_a", "region_a", "blocks", "block_count"):
        assert found["none"][member] == found["changed"][member], member
    assert found["none"]["block_count"] > 0
    assert (found["none"]["bytes"], found["changed"]["bytes"] is None) == (None, False)
    assert tt.open(tmp_path / "none-a").epochs["bytes_stored"].sum() == 0


@pytest.mark.parametrize(
    ("contents", "expected"), [("every:2", [0, 2]), ("nvtx:^step 2$", [2]), ("none", [])]
)
def test_contents_of_some_epochs(contents: str, expected: list[int], tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "train_nvtx.py")]
    for name, value in (("some", contents), ("all", "changed")):
        options = ["--deterministic", "--quiet", "--epoch", "nvtx:^step", "--contents", value]
        done = record(command, BARE, tmp_path / name, *options)
        assert done.status == 0, done.stderr
    some, whole = tt.open(tmp_path / "some"), tt.open(tmp_path / "all")
    process = some.processes[0]
    assert (~process.digests_alone).nonzero()[0].tolist() == expected
    for epoch in expected:
        alive = (process.regions.born <= epoch) & (epoch < process.regions.died)
        for region in process.regions.id[alive & (process.regions.flags & 1 == 1)].tolist():
            assert (some.read(epoch, region) == whole.read(epoch, region)).all()
    assert tt.verify(some).same
    assert tt.diff(some, whole).memory_same


def test_a_step_of_the_llama_writes_digests_alone(tmp_path: Path) -> None:
    """34 million parameters change in each step, of which 32 bytes per block go to the disk."""
    command = [*STEP, "--llama", "--steps", "4", "--warm", "2"]
    done = record(command, BARE, tmp_path / "run", "--contents", "none", "--no-events")
    assert done.status == 0, done.stderr
    epochs = tt.open(tmp_path / "run").epochs
    steps = epochs[epochs["trigger"] == "sync"].tail(4)
    assert (steps["bytes_changed"] > 150 << 20).all()
    assert (steps["changed_blocks"] > 0).all()
    written = sum(p.stat().st_size for p in (tmp_path / "run").rglob("*.bin"))
    assert written < epochs["bytes_changed"].sum() / 500
