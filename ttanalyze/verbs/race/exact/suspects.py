"""Selects the records that may race, without comparing any two of them.

Memory is cut into granules, and granules are hashed into tables. A record stays only if one of its
granules is stored to, and also used by other threads that no barrier of their block keeps apart.
Two granules in one place of a table can only make more records stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.race.exact.epochs import Epochs
from ttanalyze.verbs.race.exact.model import WARP, Access, Launch, lanes_of

GRANULE = np.uint64(7)
CHUNK = 1 << 20
LARGEST_TABLE = 24  # bits
MIX, OTHER_MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
MIXES = (MIX, OTHER_MIX, np.uint64(0xD6E8FEB86659FD93))  # of tables one after the other


class Touched:
    """Some records, and the granules that each touches: `granule[i]` is touched by `record[i]`."""

    def __init__(self, launch: Launch, records: Array) -> None:
        self.records = records
        size = launch.size[launch.instruction[records]].astype(np.uint64)
        mask = launch.mask[records].astype(np.uint32)
        first = _lowest(mask)
        last = np.uint64(WARP - 1) - _lowest(_reversed(mask))
        stride = launch.stride[records].astype(np.int64).view(np.uint64)
        ends = launch.base[records] + stride * first, launch.base[records] + stride * last
        low = np.minimum(*ends) >> GRANULE
        count = ((np.maximum(*ends) + size - np.uint64(1)) >> GRANULE) - low + np.uint64(1)
        wide = (launch.row[records] >= 0) | (count > WARP)
        count[wide] = 0
        times = count.astype(np.int64)
        at = np.repeat(np.arange(len(records)), times)
        step = np.arange(len(at)) - np.repeat(np.cumsum(times) - times, times)
        self.record, self.granule = at, low[at] + step.astype(np.uint64)
        if wide.any():
            rows = np.flatnonzero(wide)
            row, lane = np.nonzero(lanes_of(mask[rows]))
            begin = launch.addresses(records[rows])[row, lane]
            low = begin >> GRANULE
            times = (((begin + size[rows[row]] - np.uint64(1)) >> GRANULE) - low).astype(
                np.int64
            ) + 1
            at = np.repeat(np.arange(len(row)), times)
            step = np.arange(len(at)) - np.repeat(np.cumsum(times) - times, times)
            self.record = np.concatenate([self.record, rows[row[at]]])
            self.granule = np.concatenate([self.granule, low[at] + step.astype(np.uint64)])


def _lowest(mask: Array) -> Array:
    """Returns the number of the lowest lane of each mask."""
    lowest = mask & (~mask + np.uint32(1))
    return np.log2(np.maximum(lowest, 1)).astype(np.uint64)


def _reversed(mask: Array) -> Array:
    out = mask.copy()
    for shift, bits in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        out = (out >> np.uint32(shift)) & np.uint32(bits) | (out & np.uint32(bits)) << np.uint32(
            shift
        )
    return out >> np.uint32(16) | out << np.uint32(16)


def suspects(launch: Launch, epochs: Epochs, records: Array) -> Array:
    """Returns the records that may race with others, ascending."""
    for mix in MIXES:
        before = len(records)
        records = _Tables(launch, epochs, records, mix).records()
        if len(records) * 2 > before:
            break
    return records


class _Tables:
    """The tables for some records of a launch."""

    def __init__(self, launch: Launch, epochs: Epochs, records: Array, mix: np.uint64) -> None:
        self._launch, self._epochs = launch, epochs
        bits = min(max(len(records).bit_length() + 1, 10), LARGEST_TABLE)
        self._shift, self._mix = np.uint64(64 - bits), mix
        self._parts = [
            Touched(launch, records[at : at + CHUNK]) for at in range(0, len(records), CHUNK)
        ]
        size = 1 << bits
        self._stored = np.zeros(size, bool)
        self._owner = np.zeros(size, np.uint32)
        self._several = np.zeros(size, bool)

    def records(self) -> Array:
        """Returns the records that stay, ascending."""
        self._over_blocks()
        self._drop()
        if not self._parts:
            return np.zeros(0, np.int64)
        several, owners = self._several.copy(), self._owners
        for table in (self._stored, self._several):
            table[:] = False
        for part, places in self._places(several):
            self._stored[places[self._stores(part)[part.record]]] = True
            self._owner[places] = owners(part)[part.record]
        for part, places in self._places(several):
            differs = self._owner[places] != owners(part)[part.record]
            self._several[places[differs]] = True
        found = []
        for part, places in self._places(several):
            keep = self._stored[places] & self._several[places]
            found.append(part.records[np.unique(part.record[keep])])
        return np.concatenate(found)

    def _over_blocks(self) -> None:
        """Finds what is stored to, and what several blocks use or what engines copy."""
        for part in self._parts:
            places = self._place(part.granule)
            self._stored[places[self._stores(part)[part.record]]] = True
            self._owner[places] = self._launch.block[part.records][part.record]
        for part in self._parts:
            places = self._place(part.granule)
            block = self._launch.block[part.records][part.record]
            copies = self._launch.copy[self._launch.instruction[part.records]][part.record]
            self._several[places[(self._owner[places] != block) | copies]] = True

    def _drop(self) -> None:
        """Drops what nobody stores to."""
        for part in self._parts:
            keep = self._stored[self._place(part.granule)]
            part.record, part.granule = part.record[keep], part.granule[keep]
        self._parts = [part for part in self._parts if len(part.record)]

    def _places(self, several: Array) -> Iterator[tuple[Touched, Array]]:
        """Yields the places of granules, which within one block are new after each barrier."""
        for part in self._parts:
            epoch = (self._epochs.block(part.records).astype(np.uint64) + np.uint64(1)) * OTHER_MIX
            shared = several[self._place(part.granule)]
            places = self._place(part.granule ^ np.where(shared, 0, epoch[part.record]))
            yield part, places

    def _place(self, granule: Array) -> Array:
        out: Array = (granule * self._mix) >> self._shift
        return out.astype(np.int64)

    def _stores(self, part: Touched) -> Array:
        return self._launch.access[self._launch.instruction[part.records]] == Access.STORE

    def _owners(self, part: Touched) -> Array:
        """Returns a number that is the same for records whose lanes have the same addresses."""
        launch, records = self._launch, part.records
        size = launch.size[launch.instruction[records]].astype(np.uint64)
        out = launch.base[records] * MIX
        out ^= (launch.stride[records].astype(np.uint64) + (size << np.uint64(20))) * OTHER_MIX
        out ^= (launch.gwarp[records].astype(np.uint64) + np.uint64(1)) * MIX * OTHER_MIX
        own = launch.row[records] >= 0  # other addresses, or more work than is worth
        own |= np.abs(launch.stride[records]) < launch.size[launch.instruction[records]]
        own |= launch.copy[launch.instruction[records]]
        out[own] = records[own].astype(np.uint64) * MIX
        return (out >> np.uint64(32)).astype(np.uint32)
