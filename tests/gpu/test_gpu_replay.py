"""On a GPU: launches of PyTorch's libraries, of Triton and of plain programs again, alone."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.recordings import record
from tests.support import Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
BARE = support.importing_environment()
CASES = Path(__file__).parent


def replayed(run: Path, *arguments: str) -> list[dict[str, Any]]:
    done = support.ttanalyze("replay", run, "--kernel", ".", "--json", *arguments)
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["launches"]
    return found


def said(found: list[dict[str, Any]]) -> str:
    return "\n".join(f"{one['status']} {one['kernel'][:90]}: {one['reason']}" for one in found)


@needs_torch
def test_twenty_kernels_replay_bit_for_bit(tmp_path: Path) -> None:
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
def test_nvcc_programs_replay(name: str, tmp_path: Path) -> None:
    program = support.build_runtime_examples(tmp_path / "built") / f"{name}-static"
    run, of_graphs = tmp_path / "run", ("--params", "--deterministic", "--epoch", "graph")
    options = of_graphs if name == "graph" else ("--replayable",)
    done = record([str(program)], BARE, run, *options)
    assert done.status == 0, done.stderr
    found = replayed(run) if name != "graph" else stretches(run)
    assert found and all(one["status"] == "same" for one in found), found


def stretches(run: Path) -> list[dict[str, Any]]:
    done = support.ttanalyze("replay", run, "--from", "0", "--json")
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["stretches"]
    return found


SPANS = ("async", "training", "globals", "streams", "pipeline", "graph", "patching", "managed")


@pytest.mark.parametrize("name", SPANS)
def test_examples_replay_from_epoch_to_epoch(name: str, tmp_path: Path) -> None:
    """Several streams, graphs that change, and memory that the host may write to."""
    options = ("--deterministic", "--params", "--epoch", "launch:1,graph,sync")
    command = support.command(f"example-{name}", tmp_path / "built")
    assert record(command, BARE, tmp_path / "run", *options).status == 0
    found = stretches(tmp_path / "run")
    words = {one["status"] for one in found}
    assert words == ({"same", "refused"} if name == "managed" else {"same"}), found
    assert all("the host may have changed" in one["reason"] for one in found if one["reason"])


TOOLS = {
    "compute-sanitizer": "ERROR SUMMARY: 0 errors",
    "ncu --metrics gpu__time_duration.sum": "relu (4, 1, 1)x(256, 1, 1)",
    "cuda-gdb -q -batch -ex run --args": "exited normally",
}


def under(run: Path, tool: str) -> Outcome:
    if shutil.which(tool.split()[0]) is None:
        pytest.skip(f"needs {tool}")
    done = support.ttanalyze("replay", run, "--kernel", ".", "--under", tool, timeout=300)
    if "ERR_NVGPUCTRPERM" in done.stdout:
        pytest.skip("counters are not for everybody here")
    return done


@pytest.mark.parametrize("tool", TOOLS)
def test_replayed_launch_runs_under_other_tools(tool: str, tmp_path: Path) -> None:
    """In a checker, a profiler, a debugger; it leaves there what was recorded, too."""
    command = support.command("example-training", tmp_path / "built")
    options = ("--replayable", "--kernel", "^relu$", "--max-per-kernel", "1")
    assert record(command, BARE, tmp_path / "run", *options).status == 0
    done = under(tmp_path / "run", tool)
    printed = done.stdout + done.stderr
    assert TOOLS[tool] in printed, printed
    assert re.search(r"same: launch \d+ of relu leaves", printed), printed


def test_compute_sanitizer_finds_the_crash(tmp_path: Path) -> None:
    program = support.build_program("fault_illegal_address", tmp_path)
    record([str(program)], BARE, tmp_path / "run", "--replayable", "--crash-safe")
    done = under(tmp_path / "run", "compute-sanitizer")
    assert "Invalid __global__ write of size 4" in done.stdout + done.stderr, done


@pytest.mark.parametrize("name", ["fault_illegal_address", "fault_trap"])
def test_crashed_launch_crashes_again(name: str, tmp_path: Path) -> None:
    """What it found was on disk before it began, and it crashes again."""
    program = support.build_program(name, tmp_path)
    record([str(program)], BARE, tmp_path / "run", "--replayable", "--crash-safe")
    done = support.ttanalyze("replay", tmp_path / "run")
    assert done.status == 2 and done.stdout.startswith("failed: launch "), done
    assert "the context can't be used any more" in done.stdout


@pytest.mark.parametrize(
    "name",
    ["recorder_replayable", "module_two_copies", "free_after_wait", "memset_2d", "graph_nodes"],
)
def test_replayed_spans_never_differ(name: str, tmp_path: Path) -> None:
    """Threads, modules that come later, memory that is new, rows: refused perhaps, not other."""
    program = support.build_program(name, tmp_path)
    options = ("--params", "--deterministic", "--epoch", "launch:1,memcpy")
    done = record([str(program)], BARE, tmp_path / "run", *options)
    assert done.status == 0, done.stderr
    again = support.ttanalyze("replay", tmp_path / "run", "--from", "0", "--json")
    found = json.loads(again.stdout)["stretches"]
    words = {one["status"] for one in found}
    assert "same" in words and words <= {"same", "refused"}, again.stdout
