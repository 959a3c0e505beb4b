"""Counts changes by region and epochs, and by block and epochs, for heat maps.

It makes one pass over the block records of a process. The number of cells is bounded: neighbouring
epochs are merged, in powers of two. A block counts as changed in an epoch if its digest differs
from the one before; full snapshots and first appearances do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.history import batches
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

PIECE = 1 << 20  # block records looked at together
ROWS = 512  # rows of one region's blocks
MOST_BLOCKS = 1 << 36
EPOCH_BITS = np.uint64(32)


@dataclass(frozen=True)
class Cells:
    """Counts by row and group of epochs, sorted by both.

    row, column, count: arrays of the same length. Column c is the epochs [c << shift, (c + 1) <<
    shift).
    """

    row: Array
    column: Array
    count: Array
    shift: int

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Changes:
    """The changes of one process.

    shown: ascending rows of process.regions with cells: all captured ones, or those that changed
    most. regions: cells by index into shown. blocks: cells by row of blocks; shown[i] has the rows
    first[i] up to first[i + 1], each of 1 << merged[i] blocks. For every region in process.regions:
    epochs is the number of epochs in which it changed, changed the number of changed blocks over
    all epochs, earliest and latest the first and the last of these epochs (latest has no meaning if
    epochs is 0). For every epoch: the number of changed blocks.
    """

    shown: Array
    regions: Cells
    blocks: Cells
    first: Array
    merged: Array
    epochs: Array
    changed: Array
    earliest: Array
    latest: Array
    per_epoch: Array


class _Gatherer:
    """Adds up cells, and halves the resolution of epochs while there are more than `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.shift = 0
        self.keys: list[Array] = []
        self.counts: list[Array] = []

    def add(self, rows: Array, epochs: Array) -> None:
        """Adds one row and one epoch per change."""
        keys = rows.astype("u8") << EPOCH_BITS | (epochs >> np.uint32(self.shift)).astype("u8")
        keys, counts = np.unique(keys, return_counts=True)
        self.keys.append(keys)
        self.counts.append(counts.astype("u8"))
        if sum(map(len, self.keys)) > 4 * self.limit:
            self._merge()

    def _merge(self) -> None:
        keys, counts = _summed(np.concatenate(self.keys), np.concatenate(self.counts))
        while len(keys) > self.limit and self.shift < 32:
            self.shift += 1
            low = keys & np.uint64(0xFFFFFFFF)
            keys, counts = _summed(keys - low + (low >> np.uint64(1)), counts)
        self.keys, self.counts = [keys], [counts]

    def cells(self) -> Cells:
        if not self.keys:
            empty = np.empty(0, "u4")
            return Cells(empty, empty, empty, 0)
        self._merge()
        keys = self.keys[0]
        rows, columns = keys >> EPOCH_BITS, keys & np.uint64(0xFFFFFFFF)
        return Cells(rows.astype("u4"), columns.astype("u4"), self.counts[0], self.shift)


def _summed(keys: Array, counts: Array) -> tuple[Array, Array]:
    """Returns unique ascending keys with the sums of their counts."""
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def changes(
    process: Process, shown: int, cells: int, progress: Callable[[int], None] | None = None
) -> Changes:
    """Reads all block records once. Raises FormatError if they are damaged.

    shown: the maximal number of regions with cells. cells: the maximal number of cells in each
    table, or one per changed row. progress: called with the number of epochs since the last call.
    """
    regions, total = process.regions, len(process.epochs)
    count = len(regions)
    picked = _most_written(process, shown)
    index = np.full(count, -1, "i8")
    index[picked] = np.arange(len(picked))
    first, merged = _block_rows(regions.blocks[picked], cells)
    captured = np.where(regions.flags & layout.CAPTURED != 0, regions.blocks, 0)
    if captured.sum(dtype="f8") > MOST_BLOCKS:
        raise Error(f"{process.path / 'regions.bin'}: the sizes of its regions are too large")
    places = np.cumsum(captured.astype("i8")) - captured.astype("i8")
    known = np.zeros(int(captured.sum()), "u8")  # touched only where blocks were recorded
    by_region, by_block = _Gatherer(cells), _Gatherer(cells)
    epochs, changed = np.zeros(count, "u8"), np.zeros(count, "u8")
    earliest, latest = np.full(count, total, "u4"), np.zeros(count, "u4")
    per_epoch = np.zeros(total, "u8")
    for begin, end in batches(process, "blocks", 0, len(process.epochs), PIECE):
        records = process.blocks(begin, end)
        at = process.epoch_of("blocks", begin, end)
        rows = regions.rows(records["region"])
        new = _changed(known, places[rows] + records["block"], records["digest"])
        rows, at, block = rows[new], at[new], records["block"][new].astype("i8")
        per_epoch[begin:end] = np.bincount(at - np.uint32(begin), minlength=end - begin)
        changed += np.bincount(rows, minlength=count).astype("u8")
        pairs = np.unique(rows.astype("u8") << EPOCH_BITS | at.astype("u8"))
        of, when = (pairs >> EPOCH_BITS).astype("i8"), (pairs & np.uint64(0xFFFFFFFF)).astype("u4")
        epochs += np.bincount(of, minlength=count).astype("u8")
        np.minimum.at(earliest, of, when)
        np.maximum.at(latest, of, when)
        which = index[rows]
        keep = which >= 0
        which, at, block = which[keep], at[keep], block[keep]
        by_region.add(which, at)
        by_block.add(first[which] + (block >> merged[which]), at)
        process.release()
        if progress:
            progress(end - begin)
    return Changes(
        picked,
        by_region.cells(),
        by_block.cells(),
        first,
        merged,
        epochs,
        changed,
        earliest,
        latest,
        per_epoch,
    )


def _most_written(process: Process, limit: int) -> Array:
    """Returns the rows of captured regions, at most the `limit` ones with the most listed
    blocks.
    """
    regions = process.regions
    captured = np.flatnonzero(regions.flags & layout.CAPTURED)
    if len(captured) <= limit:
        return captured
    listed = np.zeros(len(regions), "f8")
    for begin, end in batches(process, "digests", 0, len(process.epochs), PIECE):
        records = process.digests(begin, end)
        rows = regions.rows(records["region"])
        listed += np.bincount(rows, records["changed"], len(regions))
    order = np.argsort(-listed[captured], kind="stable")
    return np.sort(captured[order[:limit]])


def _block_rows(blocks: Array, limit: int) -> tuple[Array, Array]:
    """Returns the first row of each region's blocks, one more than regions, and the shift from
    block numbers to rows.

    Each region has at most ROWS rows, all together `limit`.
    """
    blocks = blocks.astype("i8")
    most = ROWS
    while True:
        merged = np.zeros(len(blocks), "i8")
        while (over := -(-blocks >> merged) > most).any():
            merged[over] += 1
        first = np.concatenate([[0], np.cumsum(-(-blocks >> merged))]).astype("i8")
        if first[-1] <= limit or most == 1:
            return first, merged
        most //= 2


def _changed(known: Array, places: Array, digests: Array) -> Array:
    """Returns which records have another digest than their block had before.

    places: the index of each record's block in known, which has the last digests (0 for none) and
    is updated. The records are in the order of epochs.
    """
    order = np.argsort(places, kind="stable")
    where, what = places[order], digests[order]
    again = np.append(False, where[1:] == where[:-1])[: len(where)]
    before = np.where(again, np.roll(what, 1), known[where])
    last = np.append(~again[1:], True)[: len(where)]
    known[where[last]] = what[last]
    out = np.empty(len(order), bool)
    out[order] = (what != before) & (before != 0)
    return out
