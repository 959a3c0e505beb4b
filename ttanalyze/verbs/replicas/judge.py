"""Which memory that differs is a replica's, and not reused memory that agreed by chance.

Allocators give memory of gradients, activations and intermediate results to one another. So memory
that held the same on all ranks may hold something of each rank later. A block is a replica's if
tensors that live before and after the difference fill it. If they fill a part of it, their own
bytes decide; without contents, and where nothing has a name, only long agreement counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import contents
from ttanalyze.format.labels import Part
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process

AGREED = 5  # equal contents that make memory a replica of which names and contents say too little
GAP = 512  # bytes: what allocators round up to
FREED = " (freed)"
OUTPUT = "output"  # of a module: ttanalyze.torch names it MODULE:output

Place = tuple[Process, int, int]  # of a rank: process, epoch, region


@dataclass(frozen=True)
class Change:
    """A block that was equal on all ranks and then differs.

    first: the position at which it differs. held: how many contents it had on all ranks before.
    told: whether it was more than a constant right before. for_good: whether it never differed
    before, and always differs from then on.
    """

    block: int
    size: int
    first: int
    held: int
    told: bool
    for_good: bool


@dataclass
class Judge:
    """Judges the blocks of a region.

    epochs: of the first rank, by position. places: returns where each rank has a region, by its row
    and a position.
    """

    epochs: Array
    places: Callable[[int, int], list[Place]]
    _kept: dict[tuple[int, int], list[Part]] = field(default_factory=dict)

    def names(self, row: int, change: Change) -> list[str] | None:
        """Returns the names of the tensors that differ in a block, None if it is no replica.

        The list is empty if nothing has a name.
        """
        places = self.places(row, change.first)
        process, begin = places[0][0], change.block * BLOCK_SIZE
        end = begin + change.size
        there = [
            part
            for part in self._living(row, change.first)
            if part.offset < end and part.offset + part.bytes > begin
        ]
        agreed = change.for_good and change.held >= AGREED
        if not there:
            return [] if agreed and not len(process.labels) else None
        differing = _differing(places, there, begin, end)
        if differing is not None:
            return differing or None
        if agreed or (change.told and _filled(there, begin, end)):
            return [part.name for part in there]
        return None

    def _living(self, row: int, position: int) -> list[Part]:
        """Returns the tensors of a region that live in an epoch and in the one before."""
        if (row, position) not in self._kept:
            process, _, region = self.places(row, position)[0]
            sets = []
            for at in (position - 1, position):
                found = process.labels.parts(region, epoch=int(self.epochs[at]))
                sets.append([process.labels.part(region, one) for one in found])
            before = {(part.offset, part.bytes, part.name) for part in sets[0]}
            self._kept[row, position] = [
                part
                for part in sets[1]
                if (part.offset, part.bytes, part.name) in before and _lasts(part.name)
            ]
        return self._kept[row, position]


def _lasts(name: str) -> bool:
    """Returns whether a tensor may be the same on all ranks."""
    return not name.endswith(FREED) and OUTPUT not in name.rpartition(":")[2]


def _filled(parts: list[Part], begin: int, end: int) -> bool:
    """Returns whether parts, by offset, leave no more than small gaps of a block."""
    at = begin
    for part in parts:
        if part.offset - at >= GAP:
            return False
        at = max(at, part.offset + part.bytes)
    return end - at < GAP


def _differing(places: list[Place], parts: list[Part], begin: int, end: int) -> list[str] | None:
    """Returns the names of parts of which ranks hold different bytes in a block, None if contents
    were not stored.
    """
    if any(process.digests_alone[epoch] for process, epoch, _ in places):
        return None
    try:
        held = [contents.read(*place, begin, end) for place in places]
    except FormatError:
        raise
    except Error:
        return None
    out = []
    for part in parts:
        of = slice(max(part.offset, begin) - begin, min(part.offset + part.bytes, end) - begin)
        if any(not np.array_equal(held[0][of], other[of]) for other in held[1:]):
            out.append(part.name)
    return out
