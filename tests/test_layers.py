"""Includes and imports point down the layers that layers.txt lists, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import ROOT

INTERPOSE = ROOT / "interpose"
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
APART = {"load", "sim"}  # libraries of their own
SHARED = {"include", "util"}


def layers(folder: Path) -> list[str]:
    """The names in a layers.txt, lowest first."""
    lines = (folder / "layers.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def included(line: str) -> Path | None:
    """The file of interpose/ that a line includes, from interpose/."""
    found = INCLUDE.match(line)
    if not found:
        return None
    places = (Path(found[1]), Path("include") / found[1])
    return next((place for place in places if (INTERPOSE / place).is_file()), None)


def misplaced(path: Path, order: list[str]) -> list[str]:
    """The includes of a file that point up, or out of a library of its own."""
    layer, out = path.relative_to(INTERPOSE).parts[0], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if '#include "' in line and not included(line):
            out.append(f"{path}:{number}: {line}: not a path from interpose/")
        target = included(line)
        if target is None:
            continue
        below = target.parts[0]
        allowed = {layer} | (SHARED if layer in APART else set(order[: order.index(layer)]))
        if below not in allowed:
            out.append(f"{path}:{number}: {layer} includes {target}")
    return out


def test_every_folder_is_a_layer() -> None:
    folders = {p.name for p in INTERPOSE.iterdir() if p.is_dir() and any(p.rglob("*.[ch]"))}
    assert folders == set(layers(INTERPOSE))
    assert not list(INTERPOSE.glob("*.[ch]"))


@pytest.mark.parametrize("layer", layers(INTERPOSE))
def test_includes_point_down(layer: str) -> None:
    order = layers(INTERPOSE)
    files = [p for p in (INTERPOSE / layer).rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh")]
    assert files
    assert [bad for path in files for bad in misplaced(path, order)] == []
