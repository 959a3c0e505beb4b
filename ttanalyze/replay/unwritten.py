"""What nobody wrote in memory that came meanwhile: what it held is not known, so that it is no
difference where it holds something else now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ttanalyze import text
from ttanalyze.graph.memory import copy_in, copy_out
from ttanalyze.graph.places import Finding, State
from ttanalyze.graph.scene import Scene
from ttanalyze.model import contents
from ttanalyze.model.layout import BLOCK_SIZE, Array

OTHER = 0xFF  # instead of zeros


def settled(
    scene: Scene,
    before: State,
    after: State,
    findings: Sequence[Finding],
    again: Callable[[], None],
) -> tuple[Sequence[Finding], list[str]]:
    """Findings anew, where memory that came meanwhile was given what an epoch has of it wherever
    nobody wrote: that is where it holds something else when the work is done again on other
    contents. again: does the work, where memory was restored. And what to know of that, a line for
    each region. Raises as these do.
    """
    rows = {_row(scene, one): one for one in findings if one.new and not one.same}
    if not rows:
        return findings, []
    places = scene.places
    first = {row: _blocks(scene, row, after, one.differ) for row, one in rows.items()}
    places.restore(before, OTHER)
    again()
    notes = []
    for one in places.compare(after, before):
        row = _row(scene, one)
        if row not in rows or one.same:
            continue
        unwritten = 0
        for block, second in _blocks(scene, row, after, one.differ).items():
            records = after.records[row][block : block + 1]
            recorded = np.empty(len(second), "u1")
            contents.read_blocks(scene.process, records, recorded)
            same = first[row].get(block, recorded) == second
            copy_in(scene.device, _at(scene, row, block), np.where(same, second, recorded))
            unwritten += int(np.count_nonzero(~same))
        notes.append(
            f"region {one.region}: {text.count(unwritten, 'byte')} that nothing wrote since it was "
            "allocated are taken to be as recorded"
        )
    return places.compare(after, before), notes


def _row(scene: Scene, one: Finding) -> int:
    return int(scene.process.regions.rows(np.array([one.region]))[0])


def _at(scene: Scene, row: int, block: int) -> int:
    return scene.places.now(row) + block * BLOCK_SIZE


def _blocks(scene: Scene, row: int, state: State, blocks: Array) -> dict[int, Array]:
    """Some blocks of a region as they are now."""
    sizes = state.records[row]["length"][blocks].tolist()
    out = {block: np.empty(size, "u1") for block, size in zip(blocks.tolist(), sizes, strict=True)}
    for block, data in out.items():
        copy_out(scene.device, data, _at(scene, row, block))
    return out
