"""The regions that epochs left out.

An epoch with the flag `touched`, or inside a graph, reads only some regions and lists these. For a
region that it left out, the contents of the last epoch that read it apply. Kernels may have changed
the region since, through pointers in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.layout import Array

UNREAD = "the epoch did not read the region, and kernels may have written to it"
EPOCH_BITS = np.uint64(32)
EPOCH_MASK = np.uint64(0xFFFFFFFF)


def keys_of(region: Array, epoch: Array) -> Array:
    """Returns region << 32 | epoch, which sorts by region and then by epoch."""
    return np.asarray((region.astype("u8") << EPOCH_BITS) | epoch.astype("u8"))


@dataclass(frozen=True)
class Unread:
    """Ranges of epochs [begin, end) that left a region out, as ascending keys of region and
    epoch.
    """

    begin: Array
    end: Array

    @staticmethod
    def none() -> Unread:
        """Returns an object for epochs that read everything."""
        return Unread(np.empty(0, "u8"), np.empty(0, "u8"))

    def holds(self, keys: Array) -> Array:
        """Returns whether the epoch of each key left out the region."""
        row = np.searchsorted(self.begin, keys, "right") - 1
        out: Array = row >= 0
        out[out] = keys[out] < self.end[row[out]]
        return out

    def left_out(self, region: int, epoch: int) -> bool:
        """Returns whether an epoch left out a region."""
        return bool(self.holds(keys_of(np.array([region]), np.array([epoch])))[0])

    def count(self, first: int, last: int, region: int | None = None) -> int:
        """Returns how often epochs first to last left out a region, or any region."""
        begin, end = self.begin & EPOCH_MASK, np.minimum(self.end & EPOCH_MASK, np.uint64(last + 1))
        begin = np.maximum(begin, np.uint64(first))
        counted = begin < end
        if region is not None:
            counted &= self.begin >> EPOCH_BITS == region
        return int((end[counted] - begin[counted]).sum())

    def joined(self, other: Unread) -> Unread:
        """Returns what either of two objects left out."""
        begin, end = (
            np.concatenate([one, two])
            for one, two in ((self.begin, other.begin), (self.end, other.end))
        )
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order])
        apart = np.append(True, begin[1:] > end[:-1])[: len(begin)]
        last = np.append(apart[1:], True)[: len(begin)]
        return Unread(begin[apart], end[last])


def find_unread(
    flags: Array,
    context: Array,
    regions: tuple[Array, Array, Array, Array],
    digests: Callable[[], tuple[Array, Array]],
) -> Unread:
    """Returns what the epochs of a process left out.

    flags, context: by epoch. regions: id, born, died and context of each. digests: returns region
    and epoch of all digests; it is called only if needed.
    """
    usable = flags & (layout.REFUSED | layout.DROPPED) == 0
    partial = usable & layout.reads_some(flags)
    if not partial.any():
        return Unread.none()
    listed = np.sort(keys_of(*digests()))
    begins: list[Array] = [np.empty(0, "u8")]
    ends: list[Array] = [np.empty(0, "u8")]
    of_context: dict[int, tuple[Array, Array]] = {}
    for number, born, died, owner in zip(*(column.tolist() for column in regions), strict=True):
        if owner not in of_context:
            in_context = usable & (context == owner)
            of_context[owner] = (
                np.flatnonzero(in_context & partial),
                np.flatnonzero(in_context & ~partial),
            )
        some, whole = of_context[owner]
        some = some[np.searchsorted(some, born) : np.searchsorted(some, died)]
        if not len(some):
            continue
        lowest = np.uint64(number << 32)
        first, last = np.searchsorted(listed, [lowest, lowest + EPOCH_MASK])
        read = listed[first:last] & EPOCH_MASK
        missed = some[~np.isin(some, read)]
        read = np.sort(np.concatenate([read, whole]))
        until = np.append(read, died)[np.searchsorted(read, missed)]
        new = np.append(True, until[1:] != until[:-1])[: len(missed)]
        begins.append(lowest | missed[new].astype("u8"))
        ends.append(lowest | np.minimum(until[new], died).astype("u8"))
    begin, end = np.concatenate(begins), np.concatenate(ends)
    order = np.argsort(begin, kind="stable")
    return Unread(begin[order], end[order])
