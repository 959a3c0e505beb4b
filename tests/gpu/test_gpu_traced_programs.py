"""On a GPU: programs whose kernels are traced by the patcher do what they do otherwise."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import compare

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("H" not in (support.gpu_name() or ""), reason="needs a GPU of sm_90"),
]
HERE = Path(__file__).resolve().parent
BARE = support.bare_environment()
KINDS = ("count", "heartbeat", "opcode,addresses", "values", "registers", "tma")
# These look at how much memory the device has left, and so need it to themselves.
EXCLUSIVE = ("memory_info", "out_of_memory")
NAMES = [
    pytest.param(name, marks=pytest.mark.exclusive) if name in EXCLUSIVE else name
    for name in support.all_names()
]


def traced(run: Path, kind: str, **options: str) -> dict[str, str]:
    return support.recording(
        BARE, run, instrument=kind, instrument_way="patcher", epoch="none", **options
    )


def launches(run: Path) -> pd.DataFrame:
    """With the reason of those that are not traced."""
    return tt.open(run).traced


def assert_whole(found: pd.DataFrame) -> None:
    assert len(found) and (found["refused"] == "none").all(), found
    assert found["complete"].all()


@pytest.mark.parametrize("name", NAMES)
def test_traces_do_not_change_program_behaviour(name: str, built: Path, tmp_path: Path) -> None:
    command = support.command(name, built)
    bare = support.run(command, BARE)
    options = support.RECORDING_OPTIONS.get(name, {})
    for kind in ("heartbeat", "count", "count,opcode,addresses,values", "registers,tma"):
        done = support.run(command, traced(tmp_path / kind, kind, **options))
        compare(name, bare, done)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("launches") / "traced_launches"
    return support.build_cuda(HERE / "traced_launches.cu", target, "-O2", "-arch=sm_90")


@pytest.mark.parametrize("loading", ["LAZY", "EAGER"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_sort_of_launch_is_traced(
    kind: str, loading: str, program: Path, tmp_path: Path
) -> None:
    """A plain one, dynamic shared memory at the limit, a cooperative one, and clusters."""
    bare = support.run([program], BARE | {"CUDA_MODULE_LOADING": loading})
    environment = traced(tmp_path / "run", kind) | {"CUDA_MODULE_LOADING": loading}
    done = support.run([program], environment)
    assert (done.status, done.stdout) == (0, bare.stdout), done.stderr
    found = launches(tmp_path / "run")
    assert_whole(found)
    assert found["kernel"].tolist() == ["plain", "shared_limit", "whole_grid", "clusters"]
    if kind == "tma":  # they have no such copies
        assert not found["records"].any()


@pytest.mark.parametrize("kind", ["count", "heartbeat", "opcode,addresses"])
def test_launches_in_two_contexts_are_traced(kind: str, built: Path, tmp_path: Path) -> None:
    command = support.command("context_two", built)
    bare = support.run(command, BARE)
    done = support.run(command, traced(tmp_path / "run", kind))
    assert (done.status, done.stdout) == (0, bare.stdout), done.stderr
    assert_whole(launches(tmp_path / "run"))
    run = tt.open(tmp_path / "run")
    ran = run.events[run.events["kind"] == "launch"]
    assert ran["context"].nunique() == 2


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("kind", ["count", "heartbeat", "addresses", "values", "registers", "tma"])
def test_kernels_of_libraries_are_traced_or_say_why(kind: str, tmp_path: Path) -> None:
    """Those of cuBLAS and, for attention, CUTLASS."""
    command: list[Path | str] = [sys.executable, HERE / "traced_libraries.py"]
    bare = support.run(command, BARE, timeout=300)
    assert bare.status == 0, bare.stderr
    kernels = "gemm|nvjet|cutlass|fmha"
    environment = traced(tmp_path / "run", kind, instrument_kernel=kernels)
    done = support.run(command, environment, timeout=300)
    assert (done.status, done.stdout) == (0, bare.stdout), done.stderr
    found = launches(tmp_path / "run")
    print(found[["kernel", "refused", "reason"]].to_string())
    of_cutlass = found["kernel"].str.contains("cutlass")
    assert of_cutlass.any() and (~of_cutlass).any()
    assert found[found["refused"] == "none"]["complete"].all()
    assert found[found["refused"] != "none"]["reason"].str.len().all()
    if kind == "count":
        assert (found[of_cutlass]["refused"] == "none").all()
