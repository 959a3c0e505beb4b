"""Imports go down: from a layer of ttanalyze/layers.txt to itself and to those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import layers, support
from tests.layers import Use

PACKAGE = support.ROOT / "ttanalyze"
EXPORTED = PACKAGE / "verbs" / "export" / "files"  # programs of their own


def imports(path: Path) -> Iterator[Use]:
    """All but those for type checkers alone: at the top of the module and within functions."""
    tree = ast.parse(path.read_text())
    user = path.relative_to(PACKAGE).with_suffix("").as_posix()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.partition(".")[0] == "ttanalyze":
                assert isinstance(node, ast.stmt)
                yield Use(user, node.lineno, module(name))


def module(name: str) -> str:
    """The module of a dotted name, which may end in something of the module's."""
    parts = name.split(".")[1:]
    while parts:
        path = PACKAGE.joinpath(*parts)
        if path.with_suffix(".py").is_file():
            return "/".join(parts)
        if (path / "__init__.py").is_file():
            break
        parts.pop()
    return "/".join([*parts, "__init__"])


@pytest.fixture(scope="module")
def uses() -> list[Use]:
    modules = (path for path in PACKAGE.rglob("*.py") if EXPORTED not in path.parents)
    return [use for path in sorted(modules) for use in imports(path)]


def test_imports_point_down(uses: list[Use]) -> None:
    assert len(uses) > 500
    assert not list(layers.faults(layers.read(PACKAGE / "layers.txt"), uses))


def test_no_import_cycles(uses: list[Use]) -> None:
    assert not layers.cycle(uses)


def test_each_layer_exists() -> None:
    for layer in layers.read(PACKAGE / "layers.txt"):
        path = PACKAGE / layer.path
        assert path.is_dir() or path.with_suffix(".py").is_file(), layer.path


def test_import_check_finds_faults() -> None:
    order = [layers.Layer("low", 0, False), layers.Layer("verbs", 1, True)]
    order.append(layers.Layer("verbs/both", 2, False))
    good = [("verbs/a", "low/x"), ("verbs/a/x", "verbs/a/y"), ("verbs/both/x", "verbs/a")]
    assert not list(layers.faults(order, [Use(user, 1, used) for user, used in good]))
    bad = [("low/x", "verbs/a"), ("verbs/a", "verbs/b/x"), ("verbs/a", "verbs/both"), ("q", "low")]
    assert list(layers.faults(order, [Use(user, 7, used) for user, used in bad])) == [
        "low/x:7: verbs/a: verbs is above low",
        "verbs/a:7: verbs/b/x: neighbours in verbs do not use each other",
        "verbs/a:7: verbs/both: verbs/both is above verbs",
        "q:7: low: q is in no layer",
    ]
    ring = [Use("a", 1, "b"), Use("b", 1, "c"), Use("c", 1, "b"), Use("a", 1, "c")]
    assert layers.cycle(ring) == ["b", "c"]
    assert layers.cycle(ring[:2] + ring[3:]) == []
