"""prove on a GPU: finds the kernels that are not deterministic, and no others."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.recordings import record
from ttanalyze.code.demangle import demangle

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
BARE = support.importing_environment()
CASE = [sys.executable, str(Path(__file__).with_name("prove_operators.py"))]


def proven(command: list[str], run: Path, times: int, *arguments: str) -> list[dict[str, Any]]:
    done = record(command, BARE, run, "--replayable", "--max-per-kernel", "1")
    assert done.status == 0, done.stderr
    done = support.ttanalyze("prove", run, "--times", str(times), "--json", *arguments)
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["launches"]
    return found


def names(found: list[dict[str, Any]], status: str) -> list[str]:
    return demangle([one["kernel"] for one in found if one["status"] == status])


@needs_torch
def test_scatter_varies_and_matrix_product_does_not(tmp_path: Path) -> None:
    """Float atomics vary, a matrix product does not."""
    found = proven([*CASE, "--scatter"], tmp_path / "run", 30, "--dtype", "f32")
    (name,) = names(found, "varies")
    assert "index" in name.lower(), names(found, "varies")
    (one,) = (one for one in found if one["status"] == "varies")
    assert one["variations"][0]["widest"]["values"]["max_ulp"] > 0
    assert any("gemm" in name.lower() for name in names(found, "not seen to vary"))


@needs_torch
def test_operator_that_pytorch_calls_nondeterministic(tmp_path: Path) -> None:
    refused = support.run([*CASE, "--strict"], BARE).stdout.strip()
    assert refused.startswith("grid_sampler_2d_backward")
    found = proven(CASE, tmp_path / "run", 40)
    (name,) = names(found, "varies")
    assert refused.removesuffix("_cuda") in name


def test_racy_example_varies(tmp_path: Path) -> None:
    command = support.command("example-race", tmp_path / "built")
    racy = [word for word in command if word != "--fixed"]
    assert names(proven(racy, tmp_path / "racy", 100), "varies") == ["block_sums_racy"]
    assert names(proven(command, tmp_path / "fixed", 30), "varies") == []
