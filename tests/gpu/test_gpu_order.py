"""On a GPU with PyTorch: calls that nothing orders are found, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.test_host_writes import OTHERS, WAITS

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
PROGRAM = Path(__file__).with_name("order_case.py")


def outcome_of(folder: Path, status: str, *command: str, options: Sequence[str] = ()) -> Any:
    only = ("--json", "-q", "--only", "order", "-o", str(folder), *options)
    done = support.ttanalyze("check", *only, "--", *command, timeout=600)
    assert done.stdout, done
    outcome = json.loads(done.stdout)["outcomes"][0]
    print(outcome["status"], outcome["launches"], outcome["reason"])
    for found in outcome["findings"]:
        print(found["certainty"], found["kind"], found["summary"])
    assert outcome["status"] == status, (outcome["reason"], done.stderr)
    return outcome


@needs_torch
@pytest.mark.parametrize("case", ["no_wait", "freed", "graph_race", "staging"])
def test_pytorch_without_a_wait_is_found(case: str, tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path / "out", "found", sys.executable, str(PROGRAM), case)
    lines = {found["call"]["line"].partition(" ")[0] for found in outcome["findings"]}
    assert any(line.startswith("order_case.py:") for line in lines), lines


@needs_torch
@pytest.mark.parametrize(
    "case",
    ["wait", "record_stream", "both_read", "graph_join", "pipeline", "batches", "staging_wait"],
)
def test_pytorch_in_order_is_clean(case: str, tmp_path: Path) -> None:
    outcome_of(tmp_path / "out", "clean", sys.executable, str(PROGRAM), case)


@needs_torch
@pytest.mark.gpus(2)
@pytest.mark.parametrize("case", ["awaited", "missing"])
def test_collectives_of_nccl_are_ordered_by_their_waits(case: str, tmp_path: Path) -> None:
    program = PROGRAM.with_name("order_nccl_case.py")
    status = "clean" if case == "awaited" else "found"
    command = (sys.executable, str(program), case)
    outcome = outcome_of(tmp_path / "out", status, *command, options=("--quick",))
    for found in outcome["findings"][:1]:
        assert found["call"]["line"].startswith("order_nccl_case.py:")
        assert "ncclDevKernel_AllReduce" in found["summary"]


@pytest.mark.parametrize("how", ["none", "graph", "host", "free"])
def test_driver_calls_without_an_order_are_found(how: str, built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_stream_order", built)
    outcome_of(tmp_path / "out", "found", str(program), how)


@pytest.mark.parametrize("how", ["wait", "event-query", "stream-query", "value", "graph-wait"])
def test_driver_calls_in_order_are_clean(how: str, built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_stream_order", built)
    outcome_of(tmp_path / "out", "clean", str(program), how)


@pytest.mark.parametrize("how", ["nothing", "registered", "large", "loop"])
def test_writes_of_the_host_before_a_copy_is_complete_are_found(
    how: str, built: Path, tmp_path: Path
) -> None:
    program = support.build_program("recorder_host_writes", built)
    outcome = outcome_of(tmp_path / "out", "found", str(program), how)
    assert {found["kind"] for found in outcome["findings"]} == {"host write after read"}


@pytest.mark.parametrize("how", [*WAITS, *OTHERS, "pageable", "threads"])
def test_writes_of_the_host_after_a_wait_are_clean(how: str, built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_host_writes", built)
    outcome_of(tmp_path / "out", "clean", str(program), how)
