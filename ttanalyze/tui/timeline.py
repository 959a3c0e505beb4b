"""The data of the screens for one process: rows of epochs, regions and calls, windows of memory.

It does not use a terminal. Every method reads only what it needs, may take a while, and raises
Error for what cannot be shown.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.code.demangle import demangle, short
from ttanalyze.core.tensors import place_of
from ttanalyze.core.writers import HOW, writers
from ttanalyze.errors import Error
from ttanalyze.format import activities, contents, event_kinds, layout
from ttanalyze.format.annotations import is_annotation
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.history import byte_history
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.tui.items import Items

KEPT_BLOCKS = 512  # contents kept in memory, 32 MiB
MOST_CALLS = 100_000  # between two epochs, that are looked at
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

    changed: the changed bytes of all regions. region_changed: whether the selected
    region changed, None if unreadable.
    """

    number: int
    trigger: str
    label: str
    changed: int
    flags: str
    region_changed: bool | None


@dataclass(frozen=True)
class RegionRow:
    """A row of the list of regions.

    changed: the changed blocks in the epoch, None if unreadable. note: why there are no contents,
    else "".
    """

    id: int
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
class Calls:
    """The calls between an epoch and `since`, the one before of its context.

    records: tt_event, by seq. more: whether there are others. suspects: by seq, the possible
    writers of the region with an index of HOW, the surest first.
    """

    epoch: int
    since: int | None
    region: int | None
    records: Array
    more: bool
    suspects: dict[int, int]


@dataclass(frozen=True)
class CallRow:
    """A row of the list of calls. how: how sure the write to the region is, or ""."""

    seq: int
    stream: str
    what: str
    how: str


@dataclass(frozen=True)
class PastValue:
    """The value of an item from an epoch on."""

    epoch: int
    what: str
    value: str


class Timeline:
    """The data of one process. Regions and epochs are given by id and number."""

    def __init__(self, process: Process) -> None:
        self.process = process
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

    def past(self, region: int, start: int, items: Items) -> list[PastValue]:
        """Returns the values of the item at an offset, from its first epoch on."""
        stop = min(start + items.itemsize, self.size(region))
        out = []
        for version in byte_history(self.process, region, start, stop):
            value = LOST
            if version.data is not None:
                texts = items.texts(np.frombuffer(version.data, np.uint8))
                value = texts[0] if texts else version.data.hex(" ")
            out.append(PastValue(version.first, self.epoch_label(version.first), value))
        return out

    # ---- calls ----

    @functools.cached_property
    def has_calls(self) -> bool:
        """Whether the run has driver calls."""
        return (self.process.path / "events.bin").exists()

    def calls(self, epoch: int, region: int | None) -> Calls:
        """Returns the calls between an epoch and the one before of its context that has seen the
        region.

        If the region changed, the possible writers are marked.
        """
        seen = self.process.coverage
        since = seen.before(epoch, region)
        after = int(seen.whole[since]) if since is not None else 0
        until = int(seen.some[epoch])
        records = self.process.events_between(after, until, MOST_CALLS + 1)
        more = len(records) > MOST_CALLS
        suspects: dict[int, int] = {}
        if region is not None and not more and len(self.changes(epoch, epoch + 1, region)):
            found = writers(self.process, region, after, until)
            suspects = dict(zip(found.events["seq"].tolist(), found.how.tolist(), strict=True))
        return Calls(epoch, since, region, records[:MOST_CALLS], more, suspects)

    def call_rows(self, calls: Calls, first: int, last: int) -> list[CallRow]:
        """Returns calls first to last - 1."""
        out = []
        took = self._gpu_times(calls.records["seq"][first:last])
        for record in calls.records[first:last]:
            kind = layout.EVENT_KINDS[int(record["kind"])]
            number = int(record["stream"])
            stream = {0: "", 1: "legacy", 2: "thread"}.get(number, str(number))
            seq = int(record["seq"])
            how = calls.suspects.get(seq)
            words = "" if how is None else HOW[how]
            on_gpu = f", {text.duration(took[seq])} on the GPU" if seq in took else ""
            out.append(CallRow(seq, stream, self._call(kind, record) + on_gpu, words))
        return out

    def _gpu_times(self, seqs: Array) -> dict[int, int]:
        """Returns the duration of the GPU work of calls in nanoseconds, by seq, if it is known."""
        records, _ = self.process.activities.of_calls(seqs)
        by_recorder = records["flags"] & activities.OWN != 0
        records = records[(records["kind"] != activities.SYNC) & ~by_recorder]
        different, first = np.unique(records["seq"], return_index=True)
        if not len(first):
            return {}
        took = np.maximum.reduceat(records["end_ns"], first) - records["begin_ns"][first]
        return dict(zip(different.tolist(), took.tolist(), strict=True))

    def _call(self, kind: str, record: Any) -> str:
        if kind == "launch":
            grid, block = (text.extent(record[field].tolist()) for field in ("grid", "block"))
            shared = f", {int(record['shared'])}" if record["shared"] else ""
            return f"{self.kernel(int(record['id']))} <<<{grid}, {block}{shared}>>>"
        words = [self.process.call(int(record["call"])) or kind]
        if is_annotation(record["kind"]):
            words.append(self.process.strings.get(int(record["id"])) or "")
        if record["kind"] in event_kinds.MOVE + event_kinds.REGION:
            words.append(text.size(int(record["bytes"])))
            words.append(f"{'to' if kind == 'copy' else 'at'} {self._address(int(record['dst']))}")
        if kind == "copy":
            words.append(f"from {self._address(int(record['src']))}")
        if record["result"]:
            words.append(f"failed with {int(record['result'])}")
        return text.printable(" ".join(words))

    def _address(self, address: int) -> str:
        return f"{address:#x}"

    def kernel(self, function: int) -> str:
        """Returns the demangled name of a kernel."""
        return text.printable(demangle([self.process.kernel(function) or "?"])[0])

    def calls_line(self, calls: Calls) -> str:
        """Returns the calls in a few words, possible writers first."""
        if not self.has_calls:
            return "calls were not recorded"
        since = "the beginning" if calls.since is None else f"epoch {calls.since}"
        head = f"since {since}: {text.count(len(calls.records), 'call')}"
        head += " and more" if calls.more else ""
        if not calls.suspects:
            tally = self._tally(calls.records)
            return f"{head}{': ' if tally else ''}{tally}"
        surest = min(calls.suspects.values())
        seqs = [seq for seq, how in calls.suspects.items() if how == surest]
        tally = self._tally(calls.records[np.isin(calls.records["seq"], seqs)])
        return f"{head}; {HOW[surest]}: {tally}"

    def _tally(self, records: Array) -> str:
        """Returns counts: launches by kernel, then other calls that change memory."""
        kinds = records["kind"]
        launch = KIND["launch"]
        functions, counts = np.unique(records["id"][kinds == launch], return_counts=True)
        order = np.argsort(counts, kind="stable")[::-1].tolist()
        parts = [_times(short(self.kernel(int(functions[i]))), int(counts[i])) for i in order[:8]]
        parts += ["…"] if len(order) > 8 else []
        for kind in event_kinds.WRITES + event_kinds.REGION:
            number = int(np.count_nonzero(kinds == kind))
            if number and kind != launch:
                parts.append(_times(layout.EVENT_KINDS[kind], number))
        return ", ".join(parts)


def _times(what: str, number: int) -> str:
    return what if number == 1 else f"{what} x{number:,}"
