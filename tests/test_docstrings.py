"""Docstrings of the public API: complete, and their examples run.

Rule: every public function has an example, and every class that has methods beyond those that
return the whole as text, in its own docstring or in that of a method.
"""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from docs.tools import api
from tests import support, test_breakdown, test_collectives, test_replicas
from tests.rundir import Writer
from ttanalyze.core import meanings

pytestmark = pytest.mark.whole


def documented() -> dict[str, Any]:
    """Each public function, class and method by the name that users know."""
    found = {}
    for public, _, names in api.public_names():
        for name, value in names.items():
            spelled = f"tt.{public}.{name}" if public else f"tt.{name}"
            found[spelled] = value
            if inspect.isclass(value):
                found |= {f"{spelled}.{n}": each for n, each in api.members(value).items()}
    return found


NAMES = documented()
EXAMPLES = [name for name, value in NAMES.items() if "Example" in meanings.sections(value)]
WITHOUT = {
    "tt.graph.driver": "needs a GPU",
    "tt.load_ipython_extension": "IPython calls it; test_notebooks runs the magic",
    "tt.pytest_plugin.Recording": "pytest makes it; test_pytest_plugin runs tests with it",
}
AS_TEXT = {"as_dict", "exit_status", "line", "names", "notes", "only_lacks", "to_json", "to_object"}
# What examples open besides run1 and run2, by the options of record and the example program.
RECORDED = {
    "delayed": ("record", "vecadd", "--delay", "20us", "--delay-seed", "1"),
    "graphed": ("record", "graph"),
    "traced": ("instrument", "vecadd", "--kind", "opcode,addresses"),
    "work": ("record", "vecadd", "--replayable"),
}
WRITTEN: dict[str, Callable[[Path], object]] = {
    "ddp": lambda path: test_replicas.made(path, test_replicas.wrong),
    "nccl": test_collectives.job,
    "timed": test_breakdown.job,
}
FRAMEWORKS = {"lightning.pytorch": "Callback", "transformers": "TrainerCallback"}


def with_methods() -> list[str]:
    """The classes that need an example."""
    return [
        name
        for name, value in NAMES.items()
        if inspect.isclass(value)
        and {n for n, each in api.members(value).items() if api.is_method(each)} - AS_TEXT
    ]


FUNCTIONS = [name for name, value in NAMES.items() if inspect.isfunction(value)]
OF_MODULES = [name for name in FUNCTIONS if name.rpartition(".")[0] not in NAMES]


def parameters(value: Any) -> set[str]:
    return {*inspect.signature(value).parameters} - {"self", "cls"}


def described(value: Any, title: str) -> set[str]:
    section = meanings.items(meanings.sections(value).get(title, ""))
    return {name.strip(" *") for names in section for name in names.split(",")}


def small_run(path: Path, value: float) -> None:
    """Two launches of a kernel, which sets one item of 1024."""
    w = Writer(path)
    w.function(0, "scale")
    w.born(0, bytes(4096), label="weights")
    size: dict[str, Any] = {"grid": [4, 1, 1], "block": [256, 1, 1]}
    w.event("launch", "cuLaunchKernel", id=0, **size)
    w.epoch("sync", "full")
    w.event("launch", "cuLaunchKernel", id=0, **size)
    w.write(0, 12, np.float32(value).tobytes())
    w.epoch("sync")
    w.close()
    os.utime(path / "p0" / "process.json", (0, 0))  # `push` waits for no further process


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_begin_with_a_sentence(name: str) -> None:
    first = meanings.sections(api.function_of(NAMES[name]) or NAMES[name])[""].partition("\n\n")[0]
    assert first[0].isupper() or first[0] == "`"
    assert first.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_describe_every_argument(name: str) -> None:
    value = NAMES[name]
    if inspect.isclass(value):
        expected = set() if not dataclasses.is_dataclass(value) else parameters(value)
        assert expected <= described(value, "Attributes")
    elif api.is_method(value):
        function = api.function_of(value)
        assert parameters(function) == described(function, "Args")


@pytest.mark.parametrize("name", [*OF_MODULES, *with_methods()])
def test_functions_and_classes_have_examples(name: str) -> None:
    assert (name in WITHOUT) != any(f"{one}.".startswith(f"{name}.") for one in EXAMPLES)


@pytest.fixture(scope="module")
def recorded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns a recording by its name in examples. It is made once."""
    folder = tmp_path_factory.mktemp("recorded")

    def find(name: str) -> Path:
        if not (folder / name).exists():
            verb, program, *options = RECORDED[name]
            command = support.command(f"example-{program}", built)
            told = support.ttanalyze(verb, "--sim", *options, "-o", folder / name, "--", *command)
            assert told.status == 0, told.stderr
        return folder / name

    return find


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(
    name: str,
    recorded: Callable[[str], Path],
    built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    small_run(tmp_path / "run1", 1.5)
    small_run(tmp_path / "run2", 2.5)
    text = meanings.sections(NAMES[name])["Example"]
    for run in RECORDED:
        if re.search(rf'"{run}["/]', text):
            (tmp_path / run).symlink_to(recorded(run))
    for run, write in WRITTEN.items():
        if f'"{run}"' in text:
            write(tmp_path / run)
    (tmp_path / "vecadd").symlink_to(support.command("example-vecadd", built)[0])
    for package, base in FRAMEWORKS.items():
        module: Any = types.ModuleType(package)
        setattr(module, base, type(base, (), {}))
        monkeypatch.setitem(sys.modules, package, module)
        monkeypatch.setitem(sys.modules, package.partition(".")[0], module)
    test = doctest.DocTestParser().get_doctest(text, {"tt": tt, "Path": Path}, name, None, None)
    assert test.examples
    shown: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=shown.append)
    assert not shown, "".join(shown)
