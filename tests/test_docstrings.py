"""Docstrings of the public API: complete, and their examples run."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from docs.tools import api
from tests import test_replicas
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


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small_run(tmp_path / "run1", 1.5)
    small_run(tmp_path / "run2", 2.5)
    if "replicas" in name:
        test_replicas.made(tmp_path / "ddp", test_replicas.wrong)
    text = meanings.sections(NAMES[name])["Example"]
    test = doctest.DocTestParser().get_doctest(text, {"tt": tt, "Path": Path}, name, None, None)
    assert test.examples
    shown: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=shown.append)
    assert not shown, "".join(shown)
