"""Includes and imports point down the layers that layers.txt lists, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import layers
from tests.layers import Use
from tests.support import ROOT

INTERPOSE = ROOT / "interpose"
ORDER = layers.read(INTERPOSE / "layers.txt")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
SHARED = {"include", "util"}
PASSIVE = ("util", "store", "options", "session", "callstack", "track", "sass")
APART = {"load": {*SHARED, "load", "options"}, "sim": {*SHARED, "sim"}}  # libraries of their own


def included(line: str) -> Path | None:
    """The file of interpose/ that a line includes, from interpose/."""
    found = INCLUDE.match(line)
    if not found:
        return None
    places = (Path(found[1]), Path("include") / found[1])
    return next((place for place in places if (INTERPOSE / place).is_file()), None)


def misplaced(path: Path) -> list[str]:
    """The includes of a file that point up, or out of a library of its own."""
    name = path.relative_to(INTERPOSE)
    out, uses = [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        target = included(line)
        if target:
            uses.append(Use(name.with_suffix("").as_posix(), number, target.as_posix()))
        elif '#include "' in line:
            out.append(f"{name}:{number}: {line}: not a path from interpose/")
        if target and target.parts[0] not in APART.get(name.parts[0], target.parts):
            out.append(f"{name}:{number}: {target}: not of this library, nor shared")
    return [*out, *layers.faults(ORDER, uses)]


def test_every_folder_is_a_layer() -> None:
    folders = {p.name for p in INTERPOSE.iterdir() if p.is_dir() and any(p.rglob("*.[ch]"))}
    assert folders == {layer.path for layer in ORDER}
    assert not list(INTERPOSE.glob("*.[ch]"))


@pytest.mark.parametrize("layer", [layer.path for layer in ORDER])
def test_includes_point_down(layer: str) -> None:
    files = [p for p in (INTERPOSE / layer).rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh")]
    assert files
    assert [bad for path in files for bad in misplaced(path)] == []


@pytest.mark.parametrize("layer", PASSIVE)
def test_passive_layers_make_no_driver_calls(layer: str) -> None:
    calls = re.compile(r"\breal\.|\bREAL\(")
    files = [*(INTERPOSE / layer).glob("*.[ch]")]
    assert [path.name for path in files if calls.search(path.read_text())] == []
