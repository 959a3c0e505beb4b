"""On a GPU: what frameworks say through NVTX."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import compare, record
from tests.test_nvtx import REAL
from ttanalyze.verbs.query import Query, query

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]

HERE = Path(__file__).resolve().parent
BARE = support.bare_environment(CUBLAS_WORKSPACE_CONFIG=":4096:8")
STEPS = [f"step {i}" for i in range(4)]


def needs(module: str) -> pytest.MarkDecorator:
    found = importlib.util.find_spec(module) is not None
    return pytest.mark.skipif(not found, reason=f"needs {module}")


@needs("torch")
def test_pytorch_nvtx_ranges_are_recorded(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "train_nvtx.py")]
    bare = support.run(command, BARE, timeout=300)
    assert bare.status == 0, bare.stderr
    path = tmp_path / "run"
    compare("train_nvtx", bare, record(command, BARE, path, "--epoch", "nvtx:^(step|trained)"))
    run = tt.open(path)
    assert set(run.epochs["trigger"]) == {"nvtx"}
    assert run.epochs["label"].tolist() == [*STEPS, "trained"]
    assert tt.verify(run, path / "manifest.json").same
    ranges = run.ranges
    paths = ranges.loc[ranges["kind"] == "push", "path"].tolist()
    for step in STEPS:
        parts = ["", "/forward", "/backward", "/update"]
        assert [p for p in paths if step in p] == [f"train/{step}{part}" for part in parts]
    assert ranges.loc[ranges["kind"] == "start", "path"].tolist() == ["evaluation"]
    assert ranges["end_seq"].notna().all()
    launches = Query(filter='kind == "launch"', group_by=["range"], count=True)
    counts = query(run, launches).set_index("range")["count"]
    for step in STEPS:
        assert counts[f"train/{step}/forward"] >= 3
        assert counts[f"train/{step}/update"] >= 1


@needs("torch")
def test_two_pytorch_runs_have_equal_memory(tmp_path: Path) -> None:
    """Recorded with the same epochs, two runs have equal memory after every step."""
    command = [sys.executable, str(HERE / "train_nvtx.py")]
    for name in ("a", "b"):
        options = ["--deterministic", "--quiet", "--epoch", "nvtx:^step"]
        done = record(command, BARE, tmp_path / name, *options)
        assert done.status == 0, done.stderr
    compared = support.ttanalyze("diff", tmp_path / "a", tmp_path / "b")
    assert compared.status == 0, compared.stdout
    assert tt.open(tmp_path / "a").epochs["label"].tolist() == STEPS


@needs("cupy")
def test_cupy_nvtx_ranges_are_recorded(tmp_path: Path) -> None:
    code = (
        "import cupy as cp\n"
        "from cupy.cuda import nvtx\n"
        "x = cp.arange(1000, dtype=cp.float32)\n"
        "for i in range(3):\n"
        "    nvtx.RangePush(f'step {i}')\n"
        "    x = x * 2 + 1\n"
        "    nvtx.RangePop()\n"
        "nvtx.Mark('done')\n"
        "print(float(x.sum()))\n"
    )
    command = [sys.executable, "-c", code]
    bare = support.run(command, BARE, timeout=300)
    assert bare.status == 0, bare.stderr
    compare("cupy", bare, record(command, BARE, tmp_path / "run", "--epoch", "nvtx:^step"))
    run = tt.open(tmp_path / "run")
    assert run.epochs["label"].tolist() == STEPS[:3]
    launches = query(run, Query(filter='kind == "launch"', fields=["range"]))
    assert set(STEPS[:3]) <= set(launches["range"].dropna())


def test_nvtx_header_of_the_toolkit_works(tmp_path: Path) -> None:
    """Where there is a toolkit; what it does elsewhere is covered on the simulator."""
    includes = [p for p in Path("/usr/local").glob("cuda*/include") if (p / "nvtx3").is_dir()]
    if not includes:
        pytest.skip("no CUDA toolkit here")
    source, program = tmp_path / "real.c", tmp_path / "real"
    source.write_text(REAL)
    line = ["gcc", f"-I{includes[0]}", str(source), "-o", str(program), "-l:libcuda.so.1", "-ldl"]
    built = support.run(line, BARE)
    assert built.status == 0, built.stderr
    done = record([str(program)], BARE, tmp_path / "run", "--quiet", "--epoch", "nvtx:^domain/")
    assert done.stdout == "0 1 0 0 1 0\n"
    assert tt.open(tmp_path / "run").epochs["label"].tolist() == ["registered"] * 2
