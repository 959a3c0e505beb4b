"""Searches epochs and regions: for changes, NaNs, bytes, values, names.

A search may take long. It reports its progress and stops on request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ttanalyze.code.demangle import demangle
from ttanalyze.core.values import Type
from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.tui.timeline import Timeline

PIECE_BLOCKS = 16  # blocks looked through at a time
STRETCH = 4096  # epochs looked at together, at most
MOST_RECORDS = 1 << 18  # of blocks, unless one epoch has more
Matcher = Callable[[Array], Array]  # offsets, ascending, of what is found in bytes


class StoppedError(Exception):
    """The search was stopped."""


class Pace:
    """The progress of a search, from 0 to 1, and whether to go on."""

    def __init__(self) -> None:
        self.share = 0.0
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def report(self, done: int, total: int) -> None:
        """Sets the progress. Raises StoppedError if the search is to stop."""
        self.share = done / total if total else 1.0
        if self._stop.is_set():
            raise StoppedError


def _stretches(timeline: Timeline, epoch: int, step: int, pace: Pace) -> Iterator[tuple[int, int]]:
    """Yields stretches [first, last) of the epochs after (step 1) or before (-1) an epoch."""
    length, done = 1, 0
    total = timeline.epochs - epoch - 1 if step > 0 else epoch
    while done < total:
        pace.report(done, total)
        length = min(length, total - done)
        first = epoch + 1 + done if step > 0 else epoch - done - length
        begin, end = timeline.process.span_bounds("blocks", first, first + length)
        if end - begin > MOST_RECORDS and length > 1:
            length //= 2
            continue
        yield first, first + length
        done += length
        length = min(2 * length, STRETCH)


# ---- in time ----


def region_change(timeline: Timeline, region: int, epoch: int, step: int, pace: Pace) -> int | None:
    """Returns the next (or previous) epoch in which the region changed."""
    for first, last in _stretches(timeline, epoch, step, pace):
        found = timeline.changes(first, last, region)
        if len(found):
            return int(found[0] if step > 0 else found[-1])
    return None


def item_change(
    timeline: Timeline, region: int, start: int, stop: int, epoch: int, step: int, pace: Pace
) -> int | None:
    """Returns the next epoch in which bytes [start, stop) of a block differ from this one, or the
    last epoch before it in which they got their present value.
    """
    block, at = start // BLOCK_SIZE, start % BLOCK_SIZE
    item = slice(at, at + stop - start)
    if step > 0:
        now = timeline.bytes(epoch, region, start, stop)
        for number, record in _records(timeline, region, block, epoch, 1, pace):
            if (timeline.block(record)[item] != now).any():
                return number
        return None
    newer: tuple[int, Array] | None = None
    for number, record in _records(timeline, region, block, epoch + 1, -1, pace):
        then = timeline.block(record)[item]
        if newer is not None and newer[0] < epoch and (then != newer[1]).any():
            return newer[0]
        newer = number, then
    return newer[0] if newer is not None and newer[0] < epoch else None


def _records(
    timeline: Timeline, region: int, block: int, epoch: int, step: int, pace: Pace
) -> Iterator[tuple[int, Array]]:
    """Yields epoch and tt_block record of a block, after or before an epoch."""
    process = timeline.process
    for first, last in _stretches(timeline, epoch, step, pace):
        records = process.blocks(first, last)
        mine = np.flatnonzero((records["region"] == region) & (records["block"] == block))
        numbers = process.epoch_of("blocks", first, last)[mine].tolist()
        for i in range(len(mine))[::step]:
            pace.report(abs(numbers[i] - epoch), timeline.epochs)
            yield numbers[i], records[mine[i] : mine[i] + 1]


def first_match(
    timeline: Timeline, region: int, epoch: int, step: int, match: Matcher, pace: Pace
) -> tuple[int, int] | None:
    """Returns the next (or previous) epoch with a new block that has a match, and the offset of the
    first match in the region.
    """
    process = timeline.process
    without: set[int] = set()  # digests of blocks that have none
    for first, last in _stretches(timeline, epoch, step, pace):
        for number in timeline.changes(first, last, region).tolist()[::step]:
            records = process.blocks(number, number + 1)
            records = records[records["region"] == region]
            for i in np.argsort(records["block"]).tolist():
                pace.report(abs(number - epoch), timeline.epochs)
                record = records[i : i + 1]
                digest = int(record["digest"][0])
                if digest in without:
                    continue
                found = match(timeline.block(record))
                if not len(found):
                    without.add(digest)
                elif not _as_before(timeline, region, number, record):
                    return number, int(record["block"][0]) * BLOCK_SIZE + int(found[0])
    return None


def _as_before(timeline: Timeline, region: int, epoch: int, record: Array) -> bool:
    """Returns whether a block that a full epoch lists is unchanged."""
    block = int(record["block"][0])
    before = timeline.baseline(epoch)
    if before is None:
        return False
    try:
        old = contents.block_records(timeline.process, before, region, first=block, last=block + 1)
    except Error:  # not there then, or lost
        return False
    return bool(old["digest"][0] == record["digest"][0])


# ---- in space ----


def in_region(
    timeline: Timeline,
    epoch: int,
    region: int,
    start: int,
    step: int,
    match: Matcher,
    length: int,
    pace: Pace,
) -> int | None:
    """Returns the offset of the first match at or after start; with step -1, of the last one before
    it.

    length: the bytes of a match, which may cross blocks.
    """
    size = timeline.size(region)
    records = contents.block_records(timeline.process, epoch, region)
    whole = PIECE_BLOCKS * BLOCK_SIZE
    firsts = range(start // whole, -(-size // whole)) if step > 0 else range(start // whole, -1, -1)
    without: set[bytes] = set()
    for done, piece in enumerate(firsts):
        pace.report(done, len(firsts))
        begin = piece * whole
        # A match that begins in this piece may end in the next block.
        wanted = records[piece * PIECE_BLOCKS : (piece + 1) * PIECE_BLOCKS + (length > 1)]
        known = np.ascontiguousarray(wanted["digest"]).tobytes()
        if known in without:
            continue
        raw = np.empty(int(wanted["length"].sum(dtype="u8")), np.uint8)
        contents.read_blocks(timeline.process, wanted, raw)
        found = match(raw[: whole + length - 1]) + begin
        if not len(found):
            without.add(known)
        found = found[found >= start] if step > 0 else found[found < start]
        if len(found):
            return int(found[0] if step > 0 else found[-1])
    return None


def not_finite(of: Type) -> Matcher:
    """Returns a matcher of NaNs and infinities."""

    def match(raw: Array) -> Array:
        raw = raw[: len(raw) // of.itemsize * of.itemsize]
        return np.flatnonzero(of.is_nan(raw) | of.is_inf(raw)) * of.itemsize

    return match


def same_bytes(pattern: bytes) -> Matcher:
    """Returns a matcher of a byte sequence at any offset."""

    def match(raw: Array) -> Array:
        data, found = raw.tobytes(), []
        at = data.find(pattern)
        while at >= 0:
            found.append(at)
            at = data.find(pattern, at + 1)
        return np.array(found, "i8")

    return match


def same_value(of: Type, value: Any) -> Matcher:
    """Returns a matcher of items equal to a value."""

    def match(raw: Array) -> Array:
        items = of.view(raw[: len(raw) // of.itemsize * of.itemsize])
        return np.flatnonzero(items == value) * of.itemsize

    return match


def parse_bytes(words: str) -> bytes:
    """Parses hexadecimal digits ("de ad be ef" or 0xdeadbeef, in memory order) or "text" in quotes.

    Raises Error for anything else.
    """
    words = words.strip()
    if len(words) > 2 and words[0] == words[-1] == '"':
        return words[1:-1].encode()
    try:
        found = bytes.fromhex(words.removeprefix("0x"))
    except ValueError:
        found = b""
    if not found:
        raise Error(f'{words}: expected bytes such as de ad be ef, or "text"')
    return found


def parse_value(of: Type, words: str) -> Any:
    """Returns the item of a type that is nearest to a number. Raises Error if the text is no
    number.
    """
    try:
        if of.kind in ("float", "complex"):
            number = (
                complex(words.strip().replace("i", "j")) if of.kind == "complex" else float(words)
            )
            return _nearest(of, number)
        number = int(words, 0)
    except ValueError:
        raise Error(f"{words}: expected a value of type {of.name}") from None
    if of.kind == "bool":
        return bool(number)
    limits = np.iinfo(of.view(np.zeros(of.itemsize, np.uint8)).dtype)
    if not limits.min <= number <= limits.max:
        raise Error(f"{words}: a value of type {of.name} is from {limits.min} to {limits.max}")
    return number


def _nearest(of: Type, number: Any) -> Any:
    items = of.view(np.zeros(of.itemsize, np.uint8))
    if of.name not in ("bf16", "e4m3", "e5m2"):
        with np.errstate(over="ignore"):
            return items.dtype.type(number)
    every = np.arange(1 << (8 * of.itemsize), dtype=f"<u{of.itemsize}").view(np.uint8)
    values = of.view(every)
    values = values[np.isfinite(values)]
    return values[np.abs(values - number).argmin()] if np.isfinite(number) else np.float32(number)


# ---- by name ----


def epoch_named(timeline: Timeline, words: str, epoch: int, step: int, pace: Pace) -> int | None:
    """Returns the next (or previous) epoch whose trigger or label contains these words."""
    process, words = timeline.process, words.lower()
    pace.report(0, 1)
    offsets = layout.distinct(process.epochs["label"]).tolist()
    texts = [process.strings.get(offset) or "" for offset in offsets]
    whole = zip(offsets, texts, demangle(texts), strict=True)
    labels = [o for o, mangled, name in whole if words in f"{mangled}\n{name}".lower()]
    triggers = [i for i, name in enumerate(layout.TRIGGERS) if name and words in name]
    good = np.isin(process.epochs["label"], labels) | np.isin(process.epochs["trigger"], triggers)
    found = np.flatnonzero(good)
    found = found[found > epoch] if step > 0 else found[found < epoch][::-1]
    return int(found[0]) if len(found) else None


def region_named(timeline: Timeline, words: str, region: int, step: int, pace: Pace) -> int | None:
    """Returns the next (or previous) region, by id, whose label or kind contains these words."""
    regions, words = timeline.process.regions, words.lower()
    rows = range(len(regions))[::step]
    for done, row in enumerate(rows):
        pace.report(done, len(rows))
        other = int(regions.id[row])
        if (other - region) * step <= 0:
            continue
        if words in timeline.region_name(row).lower() or words in timeline.region_kind(row):
            return other
    return None
