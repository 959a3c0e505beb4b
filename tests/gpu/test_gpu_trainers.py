"""On a GPU with Lightning or Transformers: each step of a training is an epoch."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record
from tests.trainer_programs import LIGHTNING, TRANSFORMERS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]

BARE = support.importing_environment()


@pytest.mark.parametrize(
    ("package", "program"), [("pytorch_lightning", LIGHTNING), ("transformers", TRANSFORMERS)]
)
def test_each_step_is_an_epoch(package: str, program: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    outcome = record([sys.executable, "-c", program], BARE, tmp_path / "run", "--epoch", "api")
    assert outcome.status == 0, outcome.stderr
    assert "stopped naming" not in outcome.stderr
    run = tt.open(tmp_path / "run")
    steps = run.epochs[run.epochs["trigger"] == "api"]
    assert steps["label"].tolist() == ["step 1", "step 2", "step 3"]
    tensors = {*run.tensors(int(steps["epoch"].iloc[-1]))["tensor"]}
    assert {"layer.weight", "layer.weight.exp_avg"} <= tensors
