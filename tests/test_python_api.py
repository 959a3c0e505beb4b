"""What `import ttanalyze as tt` gives: verbs as functions, modules by their short names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import ttanalyze as tt
from docs.tools import api
from tests import support
from tests.rundir import Writer
from ttanalyze.cli import app

ELSEWHERE = {"demo", "instrument", "manifest", "shim", "tui"}  # the guide says what does the same
VERBS = sorted({*typer.main.get_command(app).commands} - ELSEWHERE)  # type: ignore[attr-defined]


@pytest.fixture
def run(tmp_path: Path) -> tt.Run:
    w = Writer(tmp_path / "run")
    w.function(0, "_Z5scalePf")
    w.born(0, bytes(4096), label="weights")
    w.event("launch", "cuLaunchKernel", id=0, grid=[4, 1, 1], block=[256, 1, 1])
    w.epoch("sync", "full")
    w.write(0, 12, b"\0\0\xc0\x3f")
    w.epoch("sync")
    w.close()
    return tt.open(tmp_path / "run")


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_are_functions(verb: str) -> None:
    function = getattr(tt, {"graph": "graphs"}.get(verb, verb))
    assert callable(function)
    assert {*inspect.signature(function).parameters}.isdisjoint({"args", "keywords"})


def test_the_module_of_a_verb_is_the_verb(run: tt.Run) -> None:
    script = (
        "import sys, ttanalyze as tt; from ttanalyze.query import Query; import ttanalyze.query;"
        "assert tt.query is ttanalyze.query and tt.query.Query is Query;"
        "print(len(tt.query(tt.open(sys.argv[1]), table='epochs')))"
    )
    command = [sys.executable, "-c", script, str(run.path)]
    assert subprocess.check_output(command, cwd=support.ROOT, text=True) == "2\n"


def test_query_takes_options(run: tt.Run) -> None:
    found = tt.query(run, filter="kind == 'launch'", fields=["short"])
    assert found["short"].tolist() == ["scale"]
    with pytest.raises(tt.Error, match=r"^colums: no such option; a query has: table, filter"):
        tt.query(run, colums=["short"])


def test_events_have_names_of_kernels_and_callers(tmp_path: Path) -> None:
    w = Writer(tmp_path / "run")
    w.function(0, "_Z5scalePf")
    w.stack(1, [("step", "train.py", 12), ("main", "train.py", 40)])
    w.event("launch", "cuLaunchKernel", id=0, stack=1)
    w.event("sync", "cuCtxSynchronize")
    w.close()
    events = tt.open(tmp_path / "run").events
    assert events["kernel"].tolist()[0] == "_Z5scalePf"
    assert events["demangled"].tolist()[0] == "scale(float*)"
    assert events["short"].tolist()[0] == "scale"
    assert "train.py:12" in events["caller"].tolist()[0]
    assert events[["short", "demangled", "caller"]].isna().iloc[1].all()


def test_allocations_have_sites(run: tt.Run) -> None:
    assert run.allocs["bytes"].tolist() == [4096]
    assert run.allocs["freed"].tolist() == [False]
    assert run.allocs["site"].notna().all()


def test_memory_is_read_by_label(run: tt.Run) -> None:
    assert run.read(1, "weights", dtype="f4", start=12, stop=16).tolist() == [1.5]
    assert len(run.read(1, "weights")) == 4096
    with pytest.raises(tt.Error, match="no region 'bias' in process 0"):
        run.read(1, "bias")


WRONG = {
    "run.read(1, 'weights', dtype='zz')": "dtype='zz': data type 'zz' not understood: it is",
    "run.read('last', 'weights')": "epoch='last': expected a whole number",
    "run.read(1, None)": "region=None: expected a whole number or text",
    "run.tensors('x')": "epoch='x': expected a whole number",
    "tt.compare(run, run)": r"a=<Run .*>: expected a path",
    "tt.diff(run, 3)": r"b=3: expected a run \(of ttanalyze.open\), a mapping or a path",
    "tt.diff(run)": "diff: missing a required argument: 'b'; its arguments: a, b, every",
    "tt.export(run.epochs, 'out')": r"process=.*: expected a process \(of run.process\)",
    "tt.memory('run1')": r"run='run1': expected a run \(of ttanalyze.open\)",
    "tt.memory(run, until=3)": "memory: got an unexpected keyword argument 'until'; its arguments:",
    "tt.merge(['run1'], 'out')": r"runs=\['run1'\]: expected a list of runs",
    "tt.open('run1', ranks=3)": "ranks=3: expected a list of whole numbers or None",
    "tt.push(run, 's3://x')": r"run=<Run .*>: expected a path",
    "tt.query(run, filter=3)": "filter=3: expected text, a list of texts or None",
    "tt.query(run, fields='short')": "fields='short': expected a list of texts",
    "tt.rewind(run, 0, regions='weights')": "regions='weights': expected a list of whole numbers",
    "tt.sql(run, 3)": "statement=3: expected text",
    "tt.trace(run, 'file')": "file='file': expected an open binary file",
    "tt.validate(3)": "path=3: expected a path",
    "tt.verify(run, epochs=3)": "epochs=3: expected 2 whole numbers or None",
}


@pytest.mark.whole
@pytest.mark.parametrize("call", WRONG)
def test_wrong_arguments_are_named(run: tt.Run, call: str) -> None:
    with pytest.raises(tt.Error, match=f"^{WRONG[call]}"):
        eval(call, {"tt": tt, "run": run})


class Odd:
    """Nothing that a function takes."""


CONSTRUCTED = {
    *("blame.Condition", "check.Settings", "delays.Config", "graph.Device", "graph.DeviceBuffer"),
    *("graph.Driver", "graph.Stream", "query.Query", "race.Settings", "reduce.Point"),
    *("reduce.Settings", "replay.Change", "replay.Replay", "replay.ReplayOptions", "tune.Wish"),
    "values.Tolerance",
}
TAKES_ANYTHING = {
    *("align", "control", "cut_epoch", "load_ipython_extension", "name", "watch"),
    *("lightning_callback", "transformers_callback"),
}
CALLED = [
    (name, value)
    for public, _, names in api.public_names()
    for name, value in names.items()
    if name != public  # verbs are above
    and (inspect.isfunction(value) or f"{public}.{name}" in CONSTRUCTED)
    and name not in TAKES_ANYTHING
    and inspect.signature(value).parameters
]


@pytest.mark.whole
@pytest.mark.parametrize("value", [value for _, value in CALLED], ids=[name for name, _ in CALLED])
def test_arguments_of_functions_and_constructors_are_checked(value: Any) -> None:
    every = inspect.signature(value).parameters.values()
    needed = [p for p in every if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    with pytest.raises(tt.Error) as said:
        value(*(Odd() for _ in range(len(needed) or 1)))
    assert "\n" not in str(said.value)


def test_numbers_of_numpy_and_text_for_paths_are_taken(run: tt.Run, tmp_path: Path) -> None:
    assert run.read(np.int64(1), "weights", start=np.uint8(12), stop=16).any()
    merged = tt.merge([run], str(tmp_path / "merged"))  # type: ignore[arg-type]
    assert merged.out == tmp_path / "merged"


def test_memory_of_a_tensor_is_read_from_its_regions(tmp_path: Path) -> None:
    w = Writer(tmp_path / "run")
    for region, value in enumerate((1, 2)):
        w.born(region, bytes([value]) * 512)
    w.name(0, 256, 256, "bias", "f4")
    w.name(1, 0, 256, "bias", "f4", start=256)
    w.epoch("sync", "full")
    w.close()
    run = tt.open(tmp_path / "run")
    assert run.read(0, "bias").tolist() == [1] * 256 + [2] * 256
    assert run.read(0, "bias", start=255, stop=257).tolist() == [1, 2]
    with pytest.raises(tt.Error, match=r"bytes 0 to 513 are not in 'bias' of 512"):
        run.read(0, "bias", stop=513)


def test_blame_takes_a_run_and_a_label(run: tt.Run) -> None:
    found = tt.blame(run, region="weights", element=3, type="f32")
    assert [change.epoch for change in found.changes] == [0, 1]
    with pytest.raises(tt.Error, match="no region 'bias' in process 0"):
        tt.blame(run, region="bias")
