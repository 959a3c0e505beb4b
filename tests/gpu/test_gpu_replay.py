"""On a GPU: launches of PyTorch's libraries, of Triton and of plain programs again, alone."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.recordings import record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
PATH = str(Path(__file__).resolve().parent.parent.parent)
BARE = support.bare_environment(PYTHONPATH=":".join([PATH, *filter(None, sys.path)]))
CASES = Path(__file__).parent


def replayed(run: Path, *arguments: str) -> list[dict[str, Any]]:
    done = support.ttanalyze("replay", run, "--kernel", ".", "--json", *arguments)
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["launches"]
    return found


def said(found: list[dict[str, Any]]) -> str:
    return "\n".join(f"{one['status']} {one['kernel'][:90]}: {one['reason']}" for one in found)


@needs_torch
def test_twenty_kernels_bit_for_bit(tmp_path: Path) -> None:
    options = ("--replayable", "--max-per-kernel", "1")
    command = [sys.executable, str(CASES / "replay_case.py")]
    done = record(command, BARE, tmp_path / "run", *options)
    assert done.status == 0, done.stderr
    found = replayed(tmp_path / "run")
    same = {one["kernel"] for one in found if one["status"] == "same"}
    assert len(same) >= 20, said(found)
    rest = [one for one in found if one["status"] != "same"]
    assert all(one["status"] == "refused" and one["reason"] for one in rest), said(rest)
    timed = replayed(tmp_path / "run", "--times", "5", "--flush-l2", "--no-verify")
    assert all(one["times"]["median_us"] > 0 for one in timed if one["status"] == "unchecked")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["pipeline", "vecadd", "graph"])
def test_programs_of_nvcc(name: str, tmp_path: Path) -> None:
    program = support.build_runtime_examples(tmp_path / "built") / f"{name}-static"
    done = record([str(program)], BARE, tmp_path / "run", "--replayable")
    assert done.status == 0, done.stderr
    found = replayed(tmp_path / "run") if name != "graph" else []
    assert all(one["status"] == "same" for one in found), said(found)


def test_examples_from_epoch_to_epoch(tmp_path: Path) -> None:
    for name in ("async", "training", "globals"):
        run = tmp_path / name
        options = ("--deterministic", "--params", "--epoch", "launch:1")
        command = support.command(f"example-{name}", tmp_path / "built")
        assert record(command, BARE, run, *options).status == 0
        done = support.ttanalyze("replay", run, "--from", "0", "--json")
        stretches = json.loads(done.stdout)["stretches"]
        assert stretches and all(one["status"] == "same" for one in stretches), done.stdout


@pytest.mark.parametrize("name", ["fault_illegal_address", "fault_trap"])
def test_a_launch_that_crashes(name: str, tmp_path: Path) -> None:
    """What it found was on disk before it began, and it crashes again."""
    program = support.build_program(name, tmp_path)
    record([str(program)], BARE, tmp_path / "run", "--replayable", "--crash-safe")
    done = support.ttanalyze("replay", tmp_path / "run")
    assert done.status == 2 and done.stdout.startswith("failed: launch "), done
    assert "nothing else works in this context" in done.stdout


@pytest.mark.parametrize(
    "name", ["shim_replayable", "module_two_copies", "free_after_wait", "memset_2d", "graph_nodes"]
)
def test_nothing_differs_from_epoch_to_epoch(name: str, tmp_path: Path) -> None:
    """Threads, modules that come later, memory that is new, rows: refused perhaps, not other."""
    program = support.build_program(name, tmp_path)
    options = ("--params", "--deterministic", "--epoch", "launch:1,memcpy")
    done = record([str(program)], BARE, tmp_path / "run", *options)
    assert done.status == 0, done.stderr
    again = support.ttanalyze("replay", tmp_path / "run", "--from", "0", "--json")
    found = json.loads(again.stdout)["stretches"]
    words = {one["status"] for one in found}
    assert "same" in words and words <= {"same", "refused"}, again.stdout
