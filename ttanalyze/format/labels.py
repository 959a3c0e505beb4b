"""labels.bin: names of parts of regions, such as tensors in the memory of an allocator.

A part has its name from an epoch or a call on, until another name replaces it or the region ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.files import RecordFile, read_checked, require
from ttanalyze.format.layout import Array
from ttanalyze.format.regions import Regions
from ttanalyze.format.strings import Strings

PARTS = np.dtype(
    [("offset", "u8"), ("bytes", "u8"), ("start", "u8"), ("label", "u4"), ("type", "u4")]
)
KEPT = 256  # states of regions that are remembered

WITHIN = " within "  # before the tolerance, in the type of a part


@dataclass(frozen=True)
class Part:
    """A named part of a region: bytes [offset, offset + bytes).

    start: the offset of the part in the named object, which may lie in several regions. type: the
    type of its items, None if unknown. tolerance: how far items may differ in a replay, as
    `replay --tolerance` takes it, None if the program declared nothing.
    """

    region: int
    offset: int
    bytes: int
    name: str
    start: int
    type: str | None
    tolerance: str | None = None

    def within(self, offset: int) -> int:
        """Returns the offset in the named object of a byte of the region."""
        return self.start + offset - self.offset


class Labels:
    """The names of one process. records: tt_label records in file order."""

    def __init__(self, file: RecordFile | None, regions: Regions, strings: Strings) -> None:
        """Raises FormatError for a record that no recorder can have written."""
        self.records = read_checked(file) if file else np.empty(0, layout.LABEL)
        self._strings = strings
        self._table = regions
        self._states: dict[tuple[int, int], Array] = {}
        rows = regions.rows(self.records["region"])
        if file is not None and len(self.records):
            self._check(file, rows)
        self._order = np.argsort(rows, kind="stable")
        self._regions = self.records["region"][self._order]

    def _check(self, file: RecordFile, rows: Array) -> None:
        records, regions = self.records, self._table
        require(file, rows >= 0, "region", "no such region")
        size = regions.size[rows]
        inside = (records["offset"] < size) & (records["size"] <= size - records["offset"])
        require(file, inside & (records["size"] > 0), "offset", "no part of the region")
        epochs = records["epoch"]
        alive = (regions.born[rows] <= epochs) & (epochs <= regions.died[rows])
        require(file, alive, "epoch", "the region does not live then")
        in_order = np.append(True, epochs[1:] >= epochs[:-1])[: len(epochs)]
        require(file, in_order, "epoch", "before that of an earlier record")

    def __len__(self) -> int:
        return len(self.records)

    def _until(self, region: int, epoch: int | None, seq: int | None) -> Array:
        """Returns the records of a region up to an epoch or a call, none if the region is dead by
        then.
        """
        if self._gone(region, epoch, seq):
            return self.records[:0]
        first, last = np.searchsorted(self._regions, [region, region + 1])
        records: Array = self.records[self._order[first:last]]
        if epoch is not None:
            records = records[: int(np.searchsorted(records["epoch"], epoch, "right"))]
        if seq is not None:
            seqs = np.maximum.accumulate(records["seq"])  # threads may overtake each other a little
            records = records[: int(np.searchsorted(seqs, seq, "right"))]
        return records

    def _gone(self, region: int, epoch: int | None, seq: int | None) -> bool:
        row = int(self._table.rows(np.array([region]))[0])
        if row < 0:
            return True
        died, death_seq = int(self._table.died[row]), int(self._table.death_seq[row])
        if epoch is None and seq is None:
            return died != layout.NO_EPOCH
        return (epoch is not None and epoch >= died) or (seq is not None and 0 < death_seq <= seq)

    def at(
        self, region: int, offset: int, *, epoch: int | None = None, seq: int | None = None
    ) -> Part | None:
        """Returns the part that a byte of a region lies in, in an epoch or after a call, None if it
        has no name.

        Default: at the end of the run.
        """
        if not len(self.records):
            return None
        return self.part_at(region, self.parts(region, epoch=epoch, seq=seq), offset)

    def part_at(self, region: int, parts: Array, offset: int) -> Part | None:
        """Returns the part among the rows of parts() that a byte lies in."""
        at = int(np.searchsorted(parts["offset"], offset, "right")) - 1
        if at < 0 or offset - int(parts["offset"][at]) >= int(parts["bytes"][at]):
            return None
        return self.part(region, parts[at])

    def part(self, region: int, row: Array) -> Part:
        """Returns a row of parts() with its texts."""
        name = self._strings.get(int(row["label"]))
        assert name is not None, "a part without a name"
        kind, _, tolerance = (self._strings.get(int(row["type"])) or "").partition(WITHIN)
        return Part(
            region,
            int(row["offset"]),
            int(row["bytes"]),
            name,
            int(row["start"]),
            kind or None,
            tolerance or None,
        )

    def parts(self, region: int, *, epoch: int | None = None, seq: int | None = None) -> Array:
        """Returns the named parts of a region, by offset: offset, bytes, start, label, type. They
        do not overlap.

        label and type are offsets in strings.bin.
        """
        records = self._until(region, epoch, seq)
        key = region, len(records)
        if key not in self._states:
            if len(self._states) >= KEPT:
                del self._states[next(iter(self._states))]
            self._states[key] = _painted(records)
        return self._states[key]

    def all_parts(
        self, *, epoch: int | None = None, seq: int | None = None
    ) -> Iterator[tuple[int, Array]]:
        """Yields the regions with named parts, and these parts."""
        for region in layout.distinct(self._regions).tolist():
            parts = self.parts(region, epoch=epoch, seq=seq)
            if len(parts):
                yield region, parts

    def named(self, name: str, epoch: int | None = None) -> list[Part]:
        """Returns the parts with a name in an epoch, by region and offset. Default: the last epoch
        with any.

        There are several if the object lies in several regions, or if other names replaced its
        middle.
        """
        wanted = self._offsets_of(name)
        mine = np.isin(self.records["label"], wanted)
        epochs = layout.distinct(self.records["epoch"][mine])
        if epoch is not None:
            epochs = epochs[epochs <= epoch][-1:]
        for number in reversed(epochs.tolist()):
            at = number if epoch is None else epoch
            regions = layout.distinct(self.records["region"][mine & (self.records["epoch"] <= at)])
            found = [
                self.part(region, row)
                for region in regions.tolist()
                for row in self.parts(region, epoch=at)
                if int(row["label"]) in wanted
            ]
            if found:
                return found
        return []

    def regions_of(self, name: str) -> Array:
        """Returns the ids of the regions that ever had a part with a name, in order."""
        mine = np.isin(self.records["label"], self._offsets_of(name))
        return layout.distinct(self.records["region"][mine])

    def _offsets_of(self, name: str) -> list[int]:
        """Returns where a name is among the strings."""
        strings = layout.distinct(self.records["label"]).tolist()
        return [offset for offset in strings if self._strings.get(offset) == name]


def _painted(records: Array) -> Array:
    """Returns what remains of parts when later ones replace earlier ones: PARTS by offset."""
    begins, ends = records["offset"], records["offset"] + records["size"]
    # Of parts in the same place only the last can be left, and in a loop all of them come again.
    order = np.lexsort((ends, begins))
    last = (begins[order][1:] != begins[order][:-1]) | (ends[order][1:] != ends[order][:-1])
    kept = np.sort(order[np.append(last, True)[: len(order)]])
    edges = layout.distinct(np.concatenate([begins[kept], ends[kept]]))
    first, stop = np.searchsorted(edges, begins[kept]), np.searchsorted(edges, ends[kept])
    owner: Array = np.full(len(edges), -1, "i8")  # of the bytes from each edge to the next
    named = np.where(records["label"][kept] == layout.NO_ID, -1, kept)
    for record, a, b in zip(named.tolist(), first.tolist(), stop.tolist(), strict=True):
        owner[a:b] = record
    begin = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(owner)])
    end = np.append(begin[1:], len(edges))
    begin, end = begin[owner[begin] >= 0], end[owner[begin] >= 0]
    of = records[owner[begin]]
    out = np.empty(len(begin), PARTS)
    out["offset"], out["bytes"] = edges[begin], edges[end] - edges[begin]
    out["start"] = of["start"] + (edges[begin] - of["offset"])
    out["label"], out["type"] = of["label"], of["type"]
    return out
