"""What `import ttanalyze as tt` gives: verbs as functions, modules by their short names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import ttanalyze as tt
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


def test_blame_takes_a_run_and_a_label(run: tt.Run) -> None:
    found = tt.blame(run, region="weights", element=3, type="f32")
    assert [change.epoch for change in found.changes] == [0, 1]
    with pytest.raises(tt.Error, match="no region 'bias' in process 0"):
        tt.blame(run, region="bias")
