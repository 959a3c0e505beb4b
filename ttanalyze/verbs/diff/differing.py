"""Finds the pairs whose recorded digests differ at all, in one pass of native code.

A pair of which both sides have records at the same positions, with the same digests, never differs.
In runs of many ranks nearly all pairs are such: the exact comparison is left with the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.util import libraries
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.diff.sides import Side

BATCH = 1 << 17  # records of a side that are looked at together: they fit into a cache
NEVER = 0xFFFFFFFF


@dataclass(frozen=True)
class Differing:
    """By pair: whether it may differ, and the first position with a record (NEVER: none)."""

    differs: Array
    listed: Array


def find_differing(
    sides: tuple[Side, Side],
    epochs: tuple[Array, Array],
    regions: tuple[Array, Array],
    progress: Progress = None,
) -> Differing | None:
    """Compares the records of two processes at all positions.

    Args:
        sides: The two sides.
        epochs: The common epochs of each side. A position is an index into them.
        regions: The regions of each side, one row per pair.
        progress: Called with the finished and the total number of positions.

    Returns:
        The pairs. None if a side is not a process.
    """
    a, b = sides
    if a.process is None or b.process is None:
        return None
    pairs, positions = len(regions[0]), len(epochs[0])
    bases = [side.places(of) for side, of in zip(sides, regions, strict=True)]
    ends = [side.digest_end[of] for side, of in zip(sides, epochs, strict=True)]
    held, differs = np.zeros(4 * pairs, "u8"), np.zeros(pairs, "u1")
    listed = np.full(pairs, NEVER, "u4")
    begin = 0
    while begin < positions:
        before = [int(of[begin - 1]) if begin else 0 for of in ends]
        fits = (
            int(np.searchsorted(of, start + BATCH, "right"))
            for of, start in zip(ends, before, strict=True)
        )
        end = max(begin + 1, min(*fits, positions))
        records = [
            side.records(int(of[begin - 1]) + 1 if begin else 0, int(of[end - 1]) + 1)
            for side, of in zip(sides, epochs, strict=True)
        ]
        local = [
            np.ascontiguousarray(of[begin:end] - np.uint64(start), "u8")
            for of, start in zip(ends, before, strict=True)
        ]
        libraries.toolkit().tt_differing_places(
            *(layout.pointer(one, "void") for one in records),
            records[0].itemsize,
            begin,
            end - begin,
            *map(layout.pointer, local),
            *(part for one in bases for part in (len(one), layout.pointer(one, "int64_t"))),
            pairs,
            *map(layout.pointer, (held, differs, listed)),
        )
        begin = end
        tell(progress, begin, positions)
    return Differing(differs != 0, listed)
