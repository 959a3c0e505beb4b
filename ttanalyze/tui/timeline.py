"""The data of the screens for one process: rows of epochs, regions and calls, windows of memory.

It does not use a terminal. Every method reads only what it needs, may take a while, and raises
Error for what cannot be shown.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from ttanalyze.code.demangle import demangle, short
from ttanalyze.core.tensors import place_of
from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.history import byte_history
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.tui.calls import CallReader
from ttanalyze.tui.items import Items
from ttanalyze.util.progress import Progress

KEPT_BLOCKS = 512  # contents kept in memory, 32 MiB
FLAG_LETTERS = {
    "full": "F",
    "touched": "t",
    "loose": "L",
    "refused": "R",
    "dropped": "D",
    "gap": "G",
}
LOST = "lost"
SORTS = ("id", "changed", "size")


@dataclass(frozen=True)
class EpochRow:
    """A row of the list of epochs.

    seq: the call that triggered it. changed: the changed bytes of all regions. region_changed:
    whether the selected region changed, None if unreadable.
    """

    number: int
    seq: int
    trigger: str
    label: str
    changed: int
    flags: str
    region_changed: bool | None


@dataclass(frozen=True)
class RegionRow:
    """A row of the list of regions.

    seq: the call that allocated it. changed: the changed blocks in the epoch, None if unreadable.
    note: why there are no contents, else "".
    """

    id: int
    seq: int
    name: str
    kind: str
    base: int
    size: int
    blocks: int
    changed: int | None
    note: str


@dataclass(frozen=True)
class Window:
    """Bytes [start, start + len(raw)) of a region, and their values in the baseline.

    before: None if unknown; note says why. changed: one bool per byte. parts: the named parts of
    the region, as Labels.parts returns them.
    """

    start: int
    raw: Array
    before: Array | None
    changed: Array
    note: str
    parts: Array

    @property
    def stop(self) -> int:
        return self.start + len(self.raw)


@dataclass(frozen=True)
class PastValue:
    """The value of an item from an epoch on. number: None if it has no place on a scale."""

    epoch: int
    what: str
    value: str
    number: float | None


class Timeline:
    """The data of one process. Regions and epochs are given by id and number."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.calls = CallReader(process)
        self._blocks: OrderedDict[tuple[int, int, int], Array] = OrderedDict()

    # ---- epochs ----

    @property
    def epochs(self) -> int:
        return len(self.process.epochs)

    def flags(self, epoch: int) -> int:
        record = self.process.epochs[epoch]
        bits = int(record["flags"])
        segment = int(record["segment"])
        without = segment < self.process.oldest_segment or segment == layout.NO_SEGMENT
        return bits | (layout.DROPPED if without and not bits & layout.REFUSED else 0)

    def epoch_label(self, epoch: int) -> str:
        """Returns trigger and label. Names of kernels have no parameters."""
        record = self.process.epochs[epoch]
        label = self.process.strings.get(int(record["label"]))
        trigger = layout.TRIGGERS[int(record["trigger"])]
        words = [trigger]
        if label:
            words.append(label if trigger in ("api", "nvtx") else self._kernel_name(label))
        return text.printable(" ".join(words))

    def _kernel_name(self, label: str) -> str:
        return short(demangle([label])[0])

    def epoch_rows(self, first: int, last: int, region: int | None) -> list[EpochRow]:
        """Returns epochs first to last - 1. region: the one whose changes are marked."""
        records = self.process.epochs[first:last]
        changed = self._region_changed(first, last, region)
        texts = [self.process.strings.get(label) for label in records["label"].tolist()]
        names = {t: short(d) for t, d in zip(texts, demangle(t or "" for t in texts), strict=True)}
        out = []
        for i, record in enumerate(records):
            bits = self.flags(first + i)
            letters = "".join(
                FLAG_LETTERS[name] for name, bit in layout.EPOCH_FLAGS.items() if bits & bit
            )
            out.append(
                EpochRow(
                    first + i,
                    int(record["seq"]),
                    layout.TRIGGERS[int(record["trigger"])],
                    text.printable(names[texts[i]]),
                    int(record["bytes_changed"]),
                    letters,
                    changed[i],
                )
            )
        return out

    def _region_changed(self, first: int, last: int, region: int | None) -> list[bool | None]:
        """Returns whether a region changed in each of epochs first to last - 1."""
        if region is None:
            return [False] * (last - first)
        try:
            changes = set(self.changes(first, last, region).tolist())
            return [epoch in changes for epoch in range(first, last)]
        except Error:
            if last - first == 1:
                return [None]
            return [
                changed
                for epoch in range(first, last)
                for changed in self._region_changed(epoch, epoch + 1, region)
            ]

    def changes(self, first: int, last: int, region: int) -> Array:
        """Returns those of epochs first to last - 1 in which blocks of a region changed."""
        digests = self.process.digests(first, last)
        mine = (digests["region"] == region) & (digests["changed"] > 0)
        return np.asarray(self.process.epoch_of("digests", first, last)[mine])

    def baseline(self, epoch: int) -> int | None:
        """Returns the last captured epoch before this one, in any context."""
        flags = self.process.epochs["flags"][:epoch]
        found = np.flatnonzero(flags & layout.REFUSED == 0)
        return int(found[-1]) if len(found) else None

    # ---- regions ----

    def region_ids(self, epoch: int, everything: bool, sort: str, also: int | None) -> Array:
        """Returns the regions with contents in an epoch, or all regions, in the order of SORTS.

        also: a region that is always included.
        """
        regions = self.process.regions
        rows = np.arange(len(regions))
        if not everything:
            alive = (regions.born <= epoch) & (epoch < regions.died)
            wanted = alive & (regions.flags & layout.CAPTURED != 0)
            wanted |= False if also is None else regions.id == also
            rows = rows[wanted]
        if sort == "size":
            rows = rows[np.argsort(regions.size[rows], kind="stable")[::-1]]
        elif sort == "changed":
            changed = self._changed(epoch, regions.id[rows])
            rows = rows[np.lexsort((rows, ~changed))]
        return np.asarray(regions.id[rows])

    def _changed(self, epoch: int, ids: Array) -> Array:
        """Returns the number of changed blocks of each region in an epoch, as uint64."""
        digests = (
            self.process.digests(epoch, epoch + 1) if self.epochs else np.empty(0, layout.DIGEST)
        )
        out = np.zeros(len(ids), "u8")
        if len(digests) and len(ids):
            order = np.argsort(digests["region"])
            at = np.searchsorted(digests["region"][order], ids)
            at = np.minimum(at, len(digests) - 1)
            there = digests["region"][order][at] == ids
            out[there] = digests["changed"][order][at[there]]
        return out

    def region_rows(self, ids: Array, epoch: int) -> list[RegionRow]:
        regions = self.process.regions
        rows = regions.rows(ids)
        try:
            changed: list[int | None] = self._changed(epoch, ids).tolist()
        except Error:
            changed = [None] * len(ids)
        return [
            RegionRow(
                int(regions.id[row]),
                int(regions.birth["seq"][row]),
                self.region_name(int(row)),
                self.region_kind(row),
                int(regions.birth["base"][row]),
                int(regions.size[row]),
                int(regions.blocks[row]),
                changed[i],
                self._absence(int(row), epoch),
            )
            for i, row in enumerate(rows.tolist())
        ]

    def region_name(self, row: int) -> str:
        """Returns the label, or else the kind of memory."""
        label = self.process.strings.get(int(self.process.regions.label[row]))
        return text.printable(label or self.region_kind(row))

    def region_kind(self, row: int) -> str:
        return layout.REGION_KINDS[int(self.process.regions.birth["kind"][row])]

    def _absence(self, row: int, epoch: int) -> str:
        regions = self.process.regions
        if not regions.flags[row] & layout.CAPTURED:
            return "not captured"
        if epoch < regions.born[row]:
            return f"from epoch {int(regions.born[row])}"
        return "freed" if epoch >= regions.died[row] else ""

    def row(self, region: int) -> int:
        """Returns the row of a region in process.regions. Raises Error if it does not exist."""
        return contents.region_row(self.process, region)

    def size(self, region: int) -> int:
        return int(self.process.regions.size[self.row(region)])

    # ---- memory ----

    def window(
        self, epoch: int, baseline: int | None, region: int, start: int, stop: int
    ) -> Window:
        """Returns bytes [start, stop) of a region in an epoch, compared with the baseline."""
        stop = min(stop, self.size(region))
        raw = self.bytes(epoch, region, start, stop)
        before, note = None, ""
        regions, row = self.process.regions, self.row(region)
        if baseline is None:
            note = "no epoch before to compare with"
        elif not regions.born[row] <= baseline < regions.died[row]:
            note = f"does not exist in epoch {baseline}"
        else:
            try:
                before = self.bytes(baseline, region, start, stop)
            except Error as e:
                note = str(e)
        changed = raw != before if before is not None else np.zeros(len(raw), bool)
        parts = self.process.labels.parts(region, epoch=epoch)
        return Window(start, raw, before, changed, note, parts)

    def tensor(self, region: int, parts: Array, offset: int) -> str:
        """Returns the tensor at an offset of a region, from a window's parts, "" if there is
        none.
        """
        try:
            part = self.process.labels.part_at(region, parts, offset)
        except Error:
            return ""
        return "" if part is None else str(place_of(part, offset))

    def bytes(self, epoch: int, region: int, start: int, stop: int) -> Array:
        """Returns bytes [start, stop) as uint8. Each block is checked. Raises Error if they
        are gone.
        """
        first, last = start // BLOCK_SIZE, layout.blocks_of(max(start, stop))
        records = contents.block_records(self.process, epoch, region, first=first, last=last)
        pieces = [self.block(records[i : i + 1]) for i in range(len(records))]
        whole = np.concatenate([np.empty(0, np.uint8), *pieces])
        return whole[start - first * BLOCK_SIZE : stop - first * BLOCK_SIZE]

    def block(self, record: Array) -> Array:
        """Returns the contents of a block by its tt_block record, from the cache if it is there."""
        key = (int(record["segment"][0]), int(record["offset"][0]), int(record["length"][0]))
        try:
            found = self._blocks.pop(key)
        except KeyError:
            found = np.empty(key[2], np.uint8)
            contents.read_blocks(self.process, record, found)
        self._blocks[key] = found
        while len(self._blocks) > KEPT_BLOCKS:
            self._blocks.popitem(last=False)
        return found

    def past(
        self, region: int, start: int, items: Items, progress: Progress = None
    ) -> list[PastValue]:
        """Returns the values of the item at an offset, from its first epoch on."""
        stop = min(start + items.itemsize, self.size(region))
        out = []
        for version in byte_history(self.process, region, start, stop, progress=progress):
            value, number = LOST, None
            if version.data is not None:
                raw = np.frombuffer(version.data, np.uint8)
                texts = items.texts(raw)
                value = texts[0] if texts else version.data.hex(" ")
                number = items.number(raw)
            out.append(PastValue(version.first, self.epoch_label(version.first), value, number))
        return out
