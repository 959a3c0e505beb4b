"""How a region changed over the epochs: as a whole, by block, by byte.

The digests of a region tell in which epochs it changed, so only the block records of these are
read, and only the contents of the requested blocks. Memory is bounded by the result and a batch of
epochs.

An epoch without contents (`dropped`) says that a region changed, and not where. The next epoch that
lists its blocks makes them known again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.contents import DataFiles, captured_row
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.util.progress import Progress, tell

BATCH_RECORDS = 1 << 18
GAP_RECORDS = 1 << 12  # records of other epochs that are read rather than skipped
MOST_BYTES = 1 << 20  # of a byte history


def _with_epoch(dtype: np.dtype[Any], *names: str) -> np.dtype[Any]:
    return np.dtype([("epoch", "<u4"), *((name, dtype[name]) for name in names)])


REGION_CHANGE = _with_epoch(layout.DIGEST, "changed", "digest")
BLOCK_CHANGE = _with_epoch(layout.BLOCK, *(layout.BLOCK.names or ()))


def region_history(process: Process, region: int, last: int | None = None) -> Array:
    """Returns REGION_CHANGE rows, one per recorded digest of a region up to epoch `last`.

    changed: the number of its blocks that the epoch lists.
    """
    row = captured_row(process, region)
    begin, end = int(process.regions.born[row]), int(process.regions.died[row])
    end = min(end, len(process.epochs), layout.NO_EPOCH if last is None else last + 1)
    parts = [np.empty(0, REGION_CHANGE)]
    for first, stop in batches(process, "digests", begin, end):
        records = process.digests(first, stop)
        at = np.flatnonzero(records["region"] == region)
        part = np.empty(len(at), REGION_CHANGE)
        part["epoch"] = process.epoch_of("digests", first, stop)[at]
        part["digest"], part["changed"] = records["digest"][at], records["changed"][at]
        parts.append(part)
    return np.concatenate(parts)


def batches(
    process: Process, kind: str, begin: int, end: int, most: int = BATCH_RECORDS
) -> Iterator[tuple[int, int]]:
    """Splits epochs begin to end - 1 into ranges [first, stop) with at most this many "digests" or
    "blocks". A single epoch may have more.
    """
    while begin < end:
        first = process.epochs[f"{kind}_first"][begin:end]
        ends = first + process.epochs[f"{kind}_count"][begin:end]
        stop = int(np.searchsorted(ends, int(first[0]) + most, "right"))
        yield begin, begin + max(1, stop)
        begin += max(1, stop)


def changes(process: Process, region: int, last: int | None = None) -> Array:
    """Returns REGION_CHANGE rows of the epochs in which a region changed, and of its first epoch.

    changed: the number of its blocks that changed. Changes in dropped epochs may count once more in
    the next full one.
    """
    rows = region_history(process, region, last)
    flags = process.epochs["flags"][rows["epoch"]]
    whole = flags & (layout.FULL | layout.DROPPED) == layout.FULL
    if whole[1:].any():  # only full epochs list blocks that did not change
        counts = _changed_blocks(process, region, _listing(process, rows))
        at = np.flatnonzero(whole)
        rows["changed"][at] = [counts.get(epoch, 0) for epoch in rows["epoch"][at].tolist()]
    return rows[_differs(rows["digest"])]


def _changed_blocks(process: Process, region: int, epochs: Array) -> dict[int, int]:
    """Returns for each epoch the number of listed blocks with a new digest."""
    counts: dict[int, int] = {}
    digests = np.zeros(0, "u8")
    seen = np.zeros(0, bool)
    for numbers, records in _listed(process, region, epochs):
        missing = int(records["block"].max()) + 1 - len(seen)
        if missing > 0:
            digests = np.append(digests, np.zeros(missing, "u8"))
            seen = np.append(seen, np.zeros(missing, bool))
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])).tolist()
        for first, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
            block, digest = records["block"][first:stop], records["digest"][first:stop]
            new = ~seen[block] | (digests[block] != digest)
            counts[int(numbers[first])] = int(np.count_nonzero(new))
            digests[block], seen[block] = digest, True
    return counts


def block_history(process: Process, region: int, block: int, last: int | None = None) -> Array:
    """Returns BLOCK_CHANGE rows up to epoch `last`: the first contents of a block, and each change.

    After a dropped epoch or removed data files there is a row where the contents are known again.
    """
    return blocks_history(process, region, block, block + 1, last)


def blocks_history(
    process: Process, region: int, first: int, stop: int, last: int | None = None
) -> Array:
    """Returns the block_history of blocks first to stop - 1, by epoch and block.

    Raises Error if the region has no such blocks.
    """
    return _blocks_history(process, region, first, stop, region_history(process, region, last))


def _blocks_history(process: Process, region: int, first: int, stop: int, rows: Array) -> Array:
    have = int(process.regions.blocks[captured_row(process, region)])
    if not 0 <= first < stop <= have:
        raise Error(f"no blocks {first} to {stop - 1} in region {region}: it has {have}")
    parts = [np.empty(0, BLOCK_CHANGE)]
    for numbers, records in _listed(process, region, _listing(process, rows)):
        at = np.flatnonzero((records["block"] >= first) & (records["block"] < stop))
        part = np.empty(len(at), BLOCK_CHANGE)
        part["epoch"] = numbers[at]
        for name in layout.BLOCK.names or ():
            part[name] = records[name][at]
        parts.append(part)
    out = np.concatenate(parts)
    order = np.lexsort((out["epoch"], out["block"]))
    block, digest = out["block"][order], out["digest"][order]
    before = np.searchsorted(_lost(process, rows), out["epoch"][order])
    there = _there(process, out["segment"][order])
    changed = _differs(block) | _differs(digest) | _differs(before) | _differs(there)
    return out[np.sort(order[changed])]


def _differs(values: Array) -> Array:
    """Returns where a value differs from the one before; True for the first."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def _lost(process: Process, rows: Array) -> Array:
    """Returns the epochs among REGION_CHANGE rows in which the region changed and its contents are
    gone.
    """
    dropped = process.epochs["flags"][rows["epoch"]] & layout.DROPPED != 0
    return np.asarray(rows["epoch"][dropped & _differs(rows["digest"])])


def _listing(process: Process, rows: Array) -> Array:
    """Returns the epochs among REGION_CHANGE rows that list the changes since the last one that
    did.

    After a loss these are all epochs that list anything, since unchanged blocks may be known again.
    """
    kept = rows[process.epochs["flags"][rows["epoch"]] & layout.DROPPED == 0]
    before = np.searchsorted(_lost(process, rows), kept["epoch"])
    listing = _differs(kept["digest"]) | (before > 0)
    there = _there(process, process.epochs["segment"][kept["epoch"]])
    if not there.all():
        listing |= there
    return np.asarray(kept["epoch"][listing])


def _there(process: Process, segments: Array) -> Array:
    """Returns which data files were not removed."""
    return np.isin(segments, list(process.segments))


def _listed(process: Process, region: int, epochs: Array) -> Iterator[tuple[Array, Array]]:
    """Yields the tt_block records of the region in these epochs, ascending, in batches with their
    epochs.
    """
    firsts = process.epochs["blocks_first"][epochs].astype("i8")
    ends = firsts + process.epochs["blocks_count"][epochs].astype("i8")
    far = np.flatnonzero(firsts[1:] - ends[:-1] > GAP_RECORDS) + 1
    groups = np.split(epochs, far) if len(epochs) else []
    for group in groups:
        for begin, end in batches(process, "blocks", int(group[0]), int(group[-1]) + 1):
            records = process.blocks(begin, end)
            numbers = process.epoch_of("blocks", begin, end)
            of: Array = (records["region"] == region) & np.isin(numbers, group)
            if of.any():
                yield numbers[of], records[of]


@dataclass(frozen=True)
class Version:
    """Bytes of a region from epoch `first` on.

    data: None if the contents of epochs first to last are gone; the bytes may have changed in each
    of them. The next version has them again.
    """

    first: int
    last: int
    data: bytes | None


def byte_history(
    process: Process,
    region: int,
    start: int,
    stop: int,
    last: int | None = None,
    progress: Progress = None,
) -> list[Version]:
    """Returns the versions of bytes [start, stop) of a region up to epoch `last`. Each block is
    checked.

    Raises Error if the region has no such bytes, or for more than MOST_BYTES of them. progress:
    called with the finished and the total number of contents.
    """
    size = int(process.regions.size[captured_row(process, region)])
    if not 0 <= start < stop <= size:
        raise Error(f"bytes {start} to {stop} are not in region {region}: it has {size}")
    if stop - start > MOST_BYTES:
        raise Error(f"{stop - start} bytes are too many for a history: {MOST_BYTES} are allowed")
    first, end = start // BLOCK_SIZE, layout.blocks_of(stop)
    rows = region_history(process, region, last)
    lost = _lost(process, rows).tolist()[::-1]
    history = _Bytes(process, start, stop)
    records = _blocks_history(process, region, first, end, rows)
    with DataFiles(process) as files:
        for done, record in enumerate(records):
            tell(progress, done, len(records))
            while lost and lost[-1] < record["epoch"]:
                history.lose(lost.pop())
            history.take(files, record)
    while lost:
        history.lose(lost.pop())
    history.finish()
    return history.versions


class _Bytes:
    """Builds the versions of a range of bytes, epoch by epoch."""

    def __init__(self, process: Process, start: int, stop: int) -> None:
        self.versions: list[Version] = []
        self._process = process
        self._start, self._stop = start, stop
        blocks = range(start // BLOCK_SIZE, layout.blocks_of(stop))
        self._parts: dict[int, bytes | None] = dict.fromkeys(blocks)
        self._seen: dict[tuple[int, ...], bytes] = {}  # parts, by block and place of their contents
        self._epoch: int | None = None
        self._last: bytes | None = None

    def take(self, files: DataFiles, record: Any) -> None:
        """Reads new contents of blocks. The calls for one epoch follow each other."""
        if record["epoch"] != self._epoch:
            self.finish()
        self._epoch = int(record["epoch"])
        self._parts[int(record["block"])] = self._read(files, record)

    def _read(self, files: DataFiles, record: Any) -> bytes | None:
        if int(record["segment"]) not in self._process.segments:
            return None
        location = int(record["block"]), int(record["segment"]), int(record["offset"])
        if location not in self._seen:
            if len(self._seen) * (self._stop - self._start) > MOST_BYTES:
                self._seen.clear()
            block = np.empty(int(record["length"]), np.uint8)
            files.read(np.array([record]), block.data)
            begin = int(record["block"]) * BLOCK_SIZE
            part = block[max(0, self._start - begin) : max(0, self._stop - begin)]
            self._seen[location] = part.tobytes()
        return self._seen[location]

    def finish(self) -> None:
        """Ends the current epoch."""
        if self._epoch is None:
            return
        epoch, self._epoch = self._epoch, None
        parts = list(self._parts.values())
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            self._gone(epoch)
            return
        data = b"".join(known)
        if data != self._last:
            self.versions.append(Version(epoch, epoch, data))
        self._last = data

    def lose(self, epoch: int) -> None:
        """Notes a change in an epoch whose contents are gone."""
        self.finish()
        self._parts = dict.fromkeys(self._parts)
        self._gone(epoch)

    def _gone(self, epoch: int) -> None:
        self._last = None
        before = self.versions[-1] if self.versions else None
        if before is not None and before.data is None:
            self.versions[-1] = Version(before.first, epoch, None)
        else:
            self.versions.append(Version(epoch, epoch, None))
