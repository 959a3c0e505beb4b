"""digests.bin and blocks.bin: the digests and blocks of epochs, checked while they are read."""

from __future__ import annotations

import functools

import numpy as np
import xxhash

from ttanalyze.format import layout
from ttanalyze.format.data import PREFIX
from ttanalyze.format.digest import digests_of_spans
from ttanalyze.format.files import RecordFile, Records, read_checked, require
from ttanalyze.format.layout import Array
from ttanalyze.format.process_info import ProcessInfo
from ttanalyze.format.regions import Regions
from ttanalyze.util import libraries

MOST_PLACES = 1 << 28  # regions, and blocks of these, that get a word each
EMPTY_SPAN = xxhash.xxh3_64_intdigest(b"")


class Spans(ProcessInfo):
    """The part of Process that reads digests and blocks."""

    epochs: Array
    segments: dict[int, RecordFile]
    _digests_good: Array
    _blocks_good: Array

    @functools.cached_property
    def regions(self) -> Regions:
        """All regions by id."""
        file = self._files["regions.bin"]
        return Regions(file, read_checked(file) if file else np.empty(0, layout.REGION))

    def _check_spans(self, file: RecordFile, epochs: Array, kind: str) -> None:
        """Checks that spans have no gaps and end within their file."""
        first, count = epochs[f"{kind}_first"], epochs[f"{kind}_count"]
        spanned = self._files[f"{kind}.bin"]
        room = np.uint64(spanned.count if spanned else 0)
        reason = f"the span ends after the last record of {kind}.bin"
        require(file, (count <= room) & (first <= room - count), f"{kind}_count", reason)
        follows = np.concatenate([np.zeros(1, "u8"), (first + count)[:-1]])[: len(epochs)]
        require(file, first == follows, f"{kind}_first", "the span does not follow the last one")
        refused = epochs["flags"] & layout.REFUSED != 0
        require(file, ~refused | (count == 0), f"{kind}_count", "a refused epoch has no contents")
        if kind == "blocks":
            dropped = epochs["flags"] & layout.DROPPED != 0
            reason = "a dropped epoch has no contents"
            require(file, ~dropped | (count == 0), "blocks_count", reason)
        empty = epochs[f"{kind}_check"] == np.uint64(EMPTY_SPAN)
        require(file, (count > 0) | refused | empty, f"{kind}_check", "not that of an empty span")

    @functools.cached_property
    def _digest_records(self) -> Records:
        file = self._files["digests.bin"]
        return file.map() if file else np.empty(0, layout.DIGEST)

    @functools.cached_property
    def _block_records(self) -> Records:
        file = self._files["blocks.bin"]
        return file.map() if file else np.empty(0, layout.BLOCK)

    def release(self) -> None:
        """Unmaps the files. They are mapped again at their next use."""
        for name in ("_digest_records", "_block_records"):
            self.__dict__.pop(name, None)

    def span_bounds(self, kind: str, first: int, last: int) -> tuple[int, int]:
        """Returns the record indices [begin, end) of the "digests" or "blocks" of epochs first to
        last - 1.
        """
        if first >= last:
            return 0, 0
        begin, end = self.epochs[first], self.epochs[last - 1]
        return int(begin[f"{kind}_first"]), int(end[f"{kind}_first"]) + int(end[f"{kind}_count"])

    def epoch_of(self, kind: str, first: int, last: int) -> Array:
        """Returns the epoch of each record of span_bounds(kind, first, last)."""
        counts = self.epochs[f"{kind}_count"][first:last].astype("i8")
        return np.repeat(np.arange(first, last, dtype="u4"), counts)

    def digests(self, first: int, last: int) -> Array:
        """Returns the checked tt_digest records of epochs first to last - 1 as one contiguous
        array.
        """
        begin, end = self.span_bounds("digests", first, last)
        records = self._digest_records[begin:end]
        if not self._digests_good[first:last].all():
            self._check_digests(first, last, records)
            self._digests_good[first:last] = True
        return records

    def blocks(self, first: int, last: int) -> Array:
        """Returns the checked tt_block records of epochs first to last - 1 as one contiguous
        array.
        """
        begin, end = self.span_bounds("blocks", first, last)
        records = self._block_records[begin:end]
        if not self._blocks_good[first:last].all():
            self._check_blocks(first, last, records)
            self._blocks_good[first:last] = True
        return records

    def _span_file(self, kind: str) -> RecordFile:
        file = self._files[f"{kind}.bin"]
        assert file is not None, "spans that hold records end within a file"
        return file

    def _check_digests(self, first: int, last: int, records: Array) -> None:
        if not len(records):
            return
        self._check_sums("digests", first, last, records)
        if not self._doubtful("digests", first, last, records):
            return
        file, begin = self._span_file("digests"), self.span_bounds("digests", first, last)[0]
        epochs = self.epoch_of("digests", first, last)
        rows = self._check_regions(file, begin, records, epochs)
        self._check_once(file, begin, epochs, rows)
        possible = records["changed"] <= self.regions.blocks[rows]
        require(file, possible, "changed", "more blocks than the region has", begin)

    def _check_blocks(self, first: int, last: int, records: Array) -> None:
        if not len(records):
            return
        self._check_sums("blocks", first, last, records)
        file, begin = self._span_file("blocks"), self.span_bounds("blocks", first, last)[0]
        if not self._doubtful("blocks", first, last, records):
            bases = self.epochs["segment"][first:last]
            if not (bases == layout.NO_SEGMENT).all() or (records["segment"] < bases[0]).any():
                epochs = self.epoch_of("blocks", first, last)
                self._check_places(file, begin, records, self.epochs["segment"][epochs])
            return
        epochs, index = self.epoch_of("blocks", first, last), records["block"]
        rows = self._check_regions(file, begin, records, epochs)
        self._check_once(file, begin, epochs, rows, index)
        inside = index < self.regions.blocks[rows]
        require(file, inside, "block", "the region has no such block", begin)
        left = self.regions.size[rows] - index.astype("u8") * np.uint64(layout.BLOCK_SIZE)
        length = np.minimum(left, np.uint64(layout.BLOCK_SIZE))
        require(file, records["length"] == length, "length", "not the block's length", begin)
        self._check_places(file, begin, records, self.epochs["segment"][epochs])

    def _check_sums(self, kind: str, first: int, last: int, records: Array) -> None:
        """Checks the span of each epoch against the checksum in the epoch's record."""
        epochs = self.epochs[first:last]
        numbers = np.flatnonzero(epochs[f"{kind}_count"])
        firsts, counts = (epochs[f"{kind}_{of}"][numbers] for of in ("first", "count"))
        begins = (firsts - firsts[0]) * np.uint64(records.itemsize)
        ends = begins + counts * np.uint64(records.itemsize)
        raw = np.ascontiguousarray(records).view("u1")
        bad = digests_of_spans(raw, begins, ends) != epochs[f"{kind}_check"][numbers]
        if bad.any():
            at = int(bad.argmax())
            reason = f"the records of epoch {first + numbers[at]} do not match the epoch's check"
            raise self._span_file(kind).error(int(firsts[at]), None, reason)

    @functools.cached_property
    def _lives(self) -> tuple[list[Array], int, int] | None:
        """The epochs, the size and the first block of each region by id, for `tt_doubtful_record`,
        and how many regions and blocks there are. None if ids or sizes are absurd.
        """
        of = self.regions
        count = int(of.id.max()) + 1 if len(of) else 0
        blocks = int(of.blocks.astype("f8").sum())
        if count > MOST_PLACES or blocks > MOST_PLACES:
            return None
        born, died = np.full(count, layout.NO_EPOCH, "u4"), np.zeros(count, "u4")
        sizes, places = np.zeros((2, count), "u8")
        captured = np.flatnonzero(of.flags & layout.CAPTURED)
        ids = of.id[captured]
        born[ids], died[ids] = of.born[captured], of.died[captured]
        sizes[of.id], places[of.id] = of.size, np.cumsum(of.blocks) - of.blocks
        return [born, died, sizes, places], count, blocks

    def _doubtful(self, kind: str, first: int, last: int, records: Array) -> bool:
        """Returns whether a record may be wrong in itself, so that each check must look."""
        if self._lives is None:
            return True
        lives, regions, blocks = self._lives
        if kind == "digests":
            lives = [*lives[:3], np.arange(regions, dtype="u8")]
        seen = np.zeros(blocks if kind == "blocks" else regions, "u4")
        counts = np.ascontiguousarray(self.epochs[f"{kind}_count"][first:last])
        found = libraries.toolkit().tt_doubtful_record(
            layout.pointer(records, "void"),
            records.itemsize,
            len(records),
            first,
            last - first,
            layout.pointer(counts),
            regions,
            *map(layout.pointer, lives),
            layout.pointer(seen),
        )
        return int(found) < len(records)

    def _check_regions(self, file: RecordFile, begin: int, records: Array, epochs: Array) -> Array:
        """Checks that all records belong to live captured regions, and returns the rows of
        these.
        """
        regions = self.regions
        rows = regions.rows(records["region"])
        require(file, rows >= 0, "region", "no such region", begin)
        captured = (regions.flags[rows] & layout.CAPTURED) != 0
        require(file, captured, "region", "the region is not captured", begin)
        alive = (regions.born[rows] <= epochs) & (epochs < regions.died[rows])
        require(file, alive, "region", "the region does not live in this epoch", begin)
        return rows

    def _check_once(
        self, file: RecordFile, begin: int, epochs: Array, rows: Array, sub: Array | int = 0
    ) -> None:
        """Checks that no two records agree in epoch, region and sub, which is below 2**32."""
        group = (epochs - epochs[0]).astype("u8") * np.uint64(len(self.regions)) + rows.astype("u8")
        if group.max() >= 1 << 32:
            group = np.unique(group, return_inverse=True)[1].astype("u8")
        key = (group << np.uint64(32)) | np.asarray(sub, "u8")
        in_order = np.sort(key)
        twice = in_order[1:][in_order[1:] == in_order[:-1]]
        if len(twice):
            again = np.flatnonzero(np.isin(key, twice))
            _, first = np.unique(key[again], return_index=True)
            at = int(np.delete(again, first).min())
            raise file.error(begin + at, None, "listed twice in one epoch")

    def _check_places(self, file: RecordFile, begin: int, records: Array, bases: Array) -> None:
        """Checks that contents lie within the data files of their epoch, unless the segment was
        removed.

        bases: the segment of each record's epoch, whose first file stays as long as the others.
        """
        offsets, lengths = records["offset"], records["length"].astype("u8")
        # Below its base a file's number wraps around.
        in_segment = records["segment"] - bases < layout.DATA_LANES
        require(file, in_segment, "segment", "not of the epoch's segment", begin)
        names = layout.distinct(records["segment"])
        which = np.searchsorted(names, records["segment"])
        known = [self.segments.get(segment) for segment in names.tolist()]
        missing = np.array([one is None for one in known], bool)[which]
        good = ~missing | ~np.isin(bases, list(self.segments))
        self._require_in(file, good, records["segment"], "segment", "{} is missing", begin)
        size = np.array([one.size if one else 0 for one in known], "u8")[which]
        # How much room compressed contents take shows when they are read.
        packed = np.array([bool(one and one.encoding) for one in known], bool)[which]
        room = np.where(packed, np.uint64(PREFIX), lengths)
        good = (offsets >= layout.HEADER_SIZE) & (room <= size)
        good &= offsets <= size - np.minimum(room, size)
        self._require_in(file, good | missing, records["segment"], "offset", "outside {}", begin)

    @staticmethod
    def _require_in(
        file: RecordFile, good: Array, segments: Array, field: str, reason: str, begin: int
    ) -> None:
        """Does what `require` does, with the name of the first bad data file in the reason."""
        if not good.all():
            name = data_name(int(segments[good.argmin()]))
            require(file, good, field, reason.format(name), begin)


def data_name(segment: int) -> str:
    return f"data-{segment:05d}.bin"
