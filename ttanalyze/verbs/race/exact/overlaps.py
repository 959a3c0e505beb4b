"""Finds pairs of accesses to the same bytes, one of them a store, by different threads.

The accesses to each unit of memory are sorted by their place in the trace. Each is held against the
last store before it, and the next store after it. If all these pairs are ordered, then so are all
others; if one is not, that is the race to report. A strong store is held against loads that are not
strong. The unit is the largest that divides all addresses and sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.race.exact.model import STRIDED, WARP, Access, Launch, lanes_of
from ttanalyze.verbs.race.exact.suspects import CHUNK, GRANULE, MIX, Touched

AT_ONCE = 1 << 23  # accesses to units that are sorted together
LARGEST_UNIT = 16
NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Pairs:
    """Pairs of accesses by different threads, the first one earlier in the trace.

    Attributes:
        first, second: Records.
        first_lane, second_lane: Their lanes.
        address: Of the first byte that both access.
    """

    first: Array
    second: Array
    first_lane: Array
    second_lane: Array
    address: Array

    def some(self, keep: Array) -> Pairs:
        return Pairs(*(column[keep] for column in self._columns()))

    @staticmethod
    def joined(parts: Sequence[Pairs]) -> Pairs:
        columns = zip(*(part._columns() for part in parts), strict=True)
        return Pairs(*(np.concatenate(column) for column in columns))

    def distinct(self) -> Pairs:
        """Returns each pair once, at its lowest address."""
        one = self.first.astype(np.uint64) * np.uint64(WARP) + self.first_lane
        other = self.second.astype(np.uint64) * np.uint64(WARP) + self.second_lane
        order = np.lexsort((self.address, one, other))
        one, other = one[order], other[order]
        keep = np.ones(len(order), bool)
        keep[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
        return self.some(order[keep])

    def _columns(self) -> tuple[Array, ...]:
        return self.first, self.second, self.first_lane, self.second_lane, self.address

    def __len__(self) -> int:
        return len(self.first)


def pairs(launch: Launch, records: Array) -> Iterator[Pairs]:
    """Yields the pairs among some records, in parts that have no byte in common."""
    if not len(records):
        return
    size = launch.size[launch.instruction[records]].astype(np.int64)
    unit = _unit(launch, records, size)
    lanes = np.bitwise_count(launch.mask[records].astype(np.uint32)).astype(np.int64)
    parts = -(-int((lanes * (size // unit)).sum()) // AT_ONCE)
    for part, some in enumerate(_parts(launch, records, parts)):
        units, record, lane = _units(launch, some, unit, part, parts)
        order = np.argsort(units, kind="stable")
        yield _adjacent(launch, units[order], record[order], lane[order], unit)


def _part(granule: Array, parts: int) -> Array:
    out: Array = ((granule * MIX) >> np.uint64(40)) % np.uint64(parts)
    return out


def _parts(launch: Launch, records: Array, parts: int) -> list[Array]:
    """Returns the records that touch each part of the memory."""
    if parts == 1:
        return [records]
    found: list[list[Array]] = [[] for _ in range(parts)]
    for at in range(0, len(records), CHUNK):
        touched = Touched(launch, records[at : at + CHUNK])
        seen = np.zeros((parts, len(touched.records)), bool)
        seen[_part(touched.granule, parts).astype(np.int64), touched.record] = True
        for own, rows in zip(found, seen, strict=True):
            own.append(touched.records[rows])
    return [np.concatenate(own) for own in found]


def _unit(launch: Launch, records: Array, size: Array) -> int:
    """Returns the largest power of two that divides all addresses and sizes."""
    bits = np.uint64(LARGEST_UNIT)
    bits |= np.bitwise_or.reduce(size).astype(np.uint64)
    regular = launch.row[records] < 0
    for column in (launch.base[records[regular]], launch.stride[records[regular]]):
        bits |= np.bitwise_or.reduce(column.astype(np.int64)).view(np.uint64)
    scattered = records[~regular]
    for at in range(0, len(scattered), AT_ONCE // WARP):
        some = scattered[at : at + AT_ONCE // WARP]
        bits |= np.bitwise_or.reduce(launch.addresses(some)[lanes_of(launch.mask[some])])
    return int(bits) & -int(bits)


def _units(
    launch: Launch, records: Array, unit: int, part: int, parts: int
) -> tuple[Array, Array, Array]:
    """Returns the units of one part of the memory, each with the record and lane that accesses
    it, in the order of the trace.
    """
    found: list[tuple[Array, Array, Array]] = []
    step = AT_ONCE // WARP
    for at in range(0, len(records), step):
        some = records[at : at + step]
        row, lane = np.nonzero(lanes_of(launch.mask[some]))
        units = launch.addresses(some)[row, lane] // np.uint64(unit)
        count = (launch.size[launch.instruction[some]] // unit).astype(np.int64)[row]
        if (count > 1).any():
            each = np.repeat(np.arange(len(row)), count)
            within = np.arange(len(each)) - np.repeat(np.cumsum(count) - count, count)
            units = units[each] + within.astype(np.uint64)
            row, lane = row[each], lane[each]
        if parts > 1:
            keep = _part(units * np.uint64(unit) >> GRANULE, parts) == part
            units, row, lane = units[keep], row[keep], lane[keep]
        found.append((units, some[row], lane.astype(np.uint8)))
    if not found:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    units, record, lane = (np.concatenate(column) for column in zip(*found, strict=True))
    return units, record, lane


def _adjacent(launch: Launch, units: Array, record: Array, lane: Array, unit: int) -> Pairs:
    """Returns the pairs of sorted accesses."""
    instruction = launch.instruction[record]
    kind, strong = launch.access[instruction], launch.strong[instruction]
    begins = np.ones(len(units), bool)
    begins[1:] = units[1:] != units[:-1]
    store = (kind == Access.STORE) & ~strong
    loose = (kind == Access.LOAD) & ~strong
    flag = (kind == Access.STORE) & strong
    every = np.ones(len(units), bool)
    found = [
        _neighbours(begins, store, every, before=True),
        _neighbours(begins, store, ~store, before=False),
        _neighbours(begins, flag, loose, before=True),
        _neighbours(begins, flag, loose, before=False),
    ]
    x, y = (np.concatenate(column) for column in zip(*found, strict=True))
    thread = launch.gwarp[record].astype(np.int64) * WARP + lane
    copies = launch.copy[instruction[x]] & (record[x] != record[y])
    keep = ((thread[x] != thread[y]) & (record[x] != record[y])) | copies
    x, y = x[keep], y[keep]
    return Pairs(record[x], record[y], lane[x], lane[y], units[x] * np.uint64(unit))


def _neighbours(begins: Array, wanted: Array, of: Array, before: bool) -> tuple[Array, Array]:
    """Returns indices of pairs: each element of `of` with the wanted one next to it."""
    index = np.arange(len(begins))
    if before:
        last = np.maximum.accumulate(np.where(wanted, index, -1))
        last = np.concatenate([[-1], last[:-1]])
        start = np.maximum.accumulate(np.where(begins, index, 0))
        some = np.flatnonzero(of & (last >= start))
        return last[some], some
    ahead = np.where(wanted, index, len(index))
    following = np.minimum.accumulate(ahead[::-1])[::-1]
    ends = np.where(begins, index, len(index))
    end = np.concatenate([np.minimum.accumulate(ends[::-1])[::-1][1:], [len(index)]])
    some = np.flatnonzero(of & (following < end))
    return some, following[some]


def colliding(launch: Launch, records: Array) -> Iterator[Pairs]:
    """Yields the pairs of lanes that store to the same byte by one execution of an instruction."""
    instruction = launch.instruction[records]
    keep = (launch.access[instruction] == Access.STORE) & ~launch.copy[instruction]
    keep &= np.bitwise_count(launch.mask[records].astype(np.uint32)) > 1
    near = np.abs(launch.stride[records].astype(np.int32)) < launch.size[instruction]
    records = records[keep & (near | (launch.row[records] != STRIDED))]
    for at in range(0, len(records), CHUNK // 8):
        some = records[at : at + CHUNK // 8]
        addresses = np.where(lanes_of(launch.mask[some]), launch.addresses(some), NOWHERE)
        lanes = np.argsort(addresses, axis=1, kind="stable").astype(np.uint8)
        addresses = np.take_along_axis(addresses, lanes.astype(np.int64), axis=1)
        size = launch.size[launch.instruction[some]].astype(np.uint64)[:, None]
        overlap = addresses[:, 1:] - addresses[:, :-1] < size
        row, one = np.nonzero(overlap & (addresses[:, 1:] != NOWHERE))
        if len(row):
            both = lanes[row, one], lanes[row, one + 1]
            yield Pairs(some[row], some[row], *both, addresses[row, one + 1])
