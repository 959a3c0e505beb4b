"""One recorded process: its files, opened when they are needed and checked as they are used.

Invariant: an array or span that a method here gives has passed every check that
docs/format.md asks of a reader, so that what builds on it needs none of its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ttanalyze.errors import Error, FormatError, MissingFileError, system_error
from ttanalyze.format import callstacks, incidents, layout, replayable, statuses
from ttanalyze.format.activities import Activities
from ttanalyze.format.annotations import Annotations
from ttanalyze.format.captures import Captures
from ttanalyze.format.data import PREFIX, DataReader
from ttanalyze.format.digest import wrong_event
from ttanalyze.format.epoch_coverage import Seen
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.files import (
    DATA_KIND,
    PIECE,
    Ending,
    Folder,
    RecordFile,
    begun,
    check_records,
    check_values,
    expect,
    expect_list,
    read_checked,
    read_json,
    require,
)
from ttanalyze.format.graphs import Graphs
from ttanalyze.format.labels import Labels
from ttanalyze.format.layout import Array
from ttanalyze.format.node_timestamps import NodeTimes
from ttanalyze.format.params import Params
from ttanalyze.format.regions import Regions
from ttanalyze.format.strings import Strings
from ttanalyze.format.unread import Unread, find_unread

SLOTS = 512  # of events.bin that are known by the seq they span
EMPTY_SPAN = xxhash.xxh3_64_intdigest(b"")
CONTROL = KIND["control"]


class Process:
    """RUN/pN. index: N. info: its process.json, {} where the process did not come to write one.

    epochs: the committed tt_epoch records, whose position is their number.
    """

    def __init__(self, folder: Path, index: int) -> None:
        """Looks at the headers and at epochs.bin, at nothing else."""
        self.path = folder
        self.index = index
        self.info = self._read_info()
        # Before the files that epochs refer to: in a run that goes on, those may only be ahead.
        self._folder = Folder(folder, _endings(self.info))
        self._epochs_file = self._folder.open("epochs.bin")
        file = self._epochs_file
        self.epochs = read_checked(file) if file else np.empty(0, layout.EPOCH)
        self._files = {
            name: self._folder.open(name)
            for name in (
                *("events.bin", "params.bin", "labels.bin"),
                *("regions.bin", "digests.bin", "blocks.bin"),
            )
        }
        for name in (
            *("frames.bin", "functions.bin", "modules.bin", "timeline.bin"),
            *("graphs.bin", "graphdata.bin", "launches.bin"),
        ):
            self._folder.open(name)
        self.strings = Strings(self._folder)
        self._params = Params(folder, self._files["params.bin"])
        self.segments = self._find_segments()
        if file is not None:
            self._check_epochs(file, self.epochs)
        self._digests_good = np.zeros(len(self.epochs), bool)
        self._blocks_good = np.zeros(len(self.epochs), bool)
        self._events_good = False  # all of them, and none will be added

    # ---- what is read on opening ----

    def _read_info(self) -> dict[str, Any]:
        path = self.path / "process.json"
        if not path.exists():
            return {}
        info = read_json(path)
        check_process(path, "", info)
        return info

    def _find_segments(self) -> dict[int, RecordFile]:
        """The data files that are there, by number, without one that never came to use."""
        found = {}
        needed = set(layout.distinct(self.epochs["segment"]).tolist())
        try:
            entries = os.listdir(self.path)
        except OSError as e:
            raise system_error(self.path, e) from None
        for name in entries:
            match = re.fullmatch(r"data-(\d{5,10})\.bin", name)
            if match:
                index = int(match[1])
                path = self.path / name
                if index not in needed and not begun(path, path):
                    continue
                with contextlib.suppress(MissingFileError):  # --retain removes them meanwhile
                    found[index] = RecordFile(path, *DATA_KIND, index)
        return dict(sorted(found.items()))

    def _check_epochs(self, file: RecordFile, epochs: Array) -> None:
        in_order = epochs["number"] == np.arange(len(epochs), dtype="u4")
        require(file, in_order, "number", "epoch numbers are consecutive from 0")
        check_values(file, epochs, "trigger", list(layout.enum("trigger").values()))
        unknown = ~np.uint32(sum(layout.EPOCH_FLAGS.values()))
        require(file, epochs["flags"] & unknown == 0, "flags", "unknown flags")
        for kind in ("digests", "blocks"):
            self._check_spans(file, epochs, kind)

    def _check_spans(self, file: RecordFile, epochs: Array, kind: str) -> None:
        """Spans follow one another without gaps and end within their file."""
        first, count = epochs[f"{kind}_first"], epochs[f"{kind}_count"]
        spanned = self._files[f"{kind}.bin"]
        room = np.uint64(spanned.count if spanned else 0)
        reason = f"the span ends behind the last record of {kind}.bin"
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
        require(file, (count > 0) | refused | empty, f"{kind}_check", "not the check of nothing")

    # ---- regions ----

    @functools.cached_property
    def regions(self) -> Regions:
        """Every region, by id."""
        file = self._files["regions.bin"]
        return Regions(file, read_checked(file) if file else np.empty(0, layout.REGION))

    @functools.cached_property
    def labels(self) -> Labels:
        """The names of parts of regions, where the program gave any."""
        return Labels(self._files["labels.bin"], self.regions, self.strings)

    # ---- epochs' spans ----

    @functools.cached_property
    def _digest_records(self) -> Array:
        file = self._files["digests.bin"]
        return file.map() if file else np.empty(0, layout.DIGEST)

    @functools.cached_property
    def _block_records(self) -> Array:
        file = self._files["blocks.bin"]
        return file.map() if file else np.empty(0, layout.BLOCK)

    def release(self) -> None:
        """Unmaps what was mapped; it is mapped again when it is asked for."""
        for name in ("_digest_records", "_block_records"):
            self.__dict__.pop(name, None)

    def span_bounds(self, kind: str, first: int, last: int) -> tuple[int, int]:
        """Record indices [begin, end) of the "digests" or "blocks" of epochs first to last - 1."""
        if first >= last:
            return 0, 0
        begin, end = self.epochs[first], self.epochs[last - 1]
        return int(begin[f"{kind}_first"]), int(end[f"{kind}_first"]) + int(end[f"{kind}_count"])

    def epoch_of(self, kind: str, first: int, last: int) -> Array:
        """For each record of span_bounds(kind, first, last): the epoch it belongs to."""
        counts = self.epochs[f"{kind}_count"][first:last].astype("i8")
        return np.repeat(np.arange(first, last, dtype="u4"), counts)

    def digests(self, first: int, last: int) -> Array:
        """tt_digest records of epochs first to last - 1, checked. One contiguous array."""
        begin, end = self.span_bounds("digests", first, last)
        records = self._digest_records[begin:end]
        if not self._digests_good[first:last].all():
            self._check_digests(first, last, records)
            self._digests_good[first:last] = True
        return records

    def blocks(self, first: int, last: int) -> Array:
        """tt_block records of epochs first to last - 1, checked. One contiguous array."""
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
        """Each epoch's span is the one that its record was made for."""
        raw = np.ascontiguousarray(records).view("u1").data
        begin, _ = self.span_bounds(kind, first, last)
        for i in np.flatnonzero(self.epochs[f"{kind}_count"][first:last]).tolist():
            epoch = self.epochs[first + i]
            at = (int(epoch[f"{kind}_first"]) - begin) * records.itemsize
            span = raw[at : at + int(epoch[f"{kind}_count"]) * records.itemsize]
            if xxhash.xxh3_64_intdigest(span) != int(epoch[f"{kind}_check"]):
                reason = f"the records of epoch {first + i} do not match the epoch's check"
                raise self._span_file(kind).error(int(epoch[f"{kind}_first"]), None, reason)

    def _check_regions(self, file: RecordFile, begin: int, records: Array, epochs: Array) -> Array:
        """All records are of captured regions in their lives; gives the regions' rows."""
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
        """No two records agree in epoch, region and sub, which is below 2**32."""
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
        """Contents lie within the epoch's data files; of a segment that was removed nothing can be
        said. bases: each record's epoch's segment, whose first file stays as long as the others.
        """
        offsets, lengths = records["offset"], records["length"].astype("u8")
        # Below its base a file's number wraps around.
        own = records["segment"] - bases < layout.DATA_LANES
        require(file, own, "segment", "not of the epoch's segment", begin)
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
        """require, with the name of the first bad one's data file in the reason."""
        if not good.all():
            name = data_name(int(segments[good.argmin()]))
            require(file, good, field, reason.format(name), begin)

    # ---- the rest ----

    def data(self, segment: int) -> DataReader:
        """A data file, to be closed by the caller. Raises Error where it was removed."""
        path = self.path / data_name(segment)
        try:
            if segment in self.segments:
                return DataReader(path, self.segments[segment].encoding)
        except MissingFileError:
            del self.segments[segment]
        raise Error(f"{path}: removed, its contents are gone")

    @property
    def oldest_segment(self) -> int:
        """The first data file that is still there; behind all epochs where none is."""
        return min(self.segments, default=1 << 32)

    @functools.cached_property
    def events(self) -> Array:
        """tt_event records that are in use, by seq."""
        count, as_they_lie = self._survey_events()
        file = self._files["events.bin"]
        if file is not None and as_they_lie:
            return file.map()[:count]
        out = np.empty(count, layout.EVENT)
        for rows, records in self._event_rows(count):
            layout.whole(out)[rows] = layout.whole(records)
        order = _order(out["seq"])
        return out if order is None else layout.take(out, order)

    def _survey_events(self) -> tuple[int, bool]:
        """How many there are, and whether the file begins with just them, by seq."""
        count, last, as_they_lie = 0, 0, True
        for at, records in self.event_slots():
            used = int(np.count_nonzero(records["kind"]))
            seqs = records["seq"][:used]
            as_they_lie &= not used or (
                at == count
                and bool((records["kind"][:used] != 0).all())
                and int(seqs[0]) >= last
                and _order(seqs) is None
            )
            count += used
            last = int(seqs[-1]) if used else last
        return count, as_they_lie

    def event_columns(self, *fields: str) -> dict[str, Array]:
        """Members of the tt_event records that are in use, by seq: an array each."""
        count = self.count_events()
        wanted = dict.fromkeys([*fields, "seq"])
        kinds = {f: layout.EVENT[f] for f in wanted}
        columns = {f: np.empty((count, *kind.shape), kind.base) for f, kind in kinds.items()}
        for rows, records in self._event_rows(count):
            for field, column in columns.items():
                column[rows] = records[field]
        order = _order(columns["seq"])
        return {f: columns[f] if order is None else columns[f][order] for f in fields}

    def count_events(self) -> int:
        """How many there are, however many that is."""
        return self._survey_events()[0]

    def event_pieces(self, size: int = PIECE) -> Iterator[Array]:
        """tt_event records that are in use, as they lie in the file, at most `size` at a time.

        The arrays are overwritten when the next is asked for.
        """
        for _, records in self.event_slots(size):
            used = records["kind"] != 0
            yield records if used.all() else layout.take(records, used)

    def _event_rows(self, count: int) -> Iterator[tuple[slice, Array]]:
        """The first `count` records of event_pieces, and the rows they make."""
        row = 0
        for records in self.event_pieces():
            some = records[: count - row]  # a run that goes on has more by now
            yield slice(row, row + len(some)), some
            row += len(some)

    def events_between(self, after: int, until: int, most: int | None = None) -> Array:
        """tt_event records with seq in (after, until], by seq; the first `most` of them.

        Looks at all of events.bin once, and from then on at those parts that have such calls.
        """
        lows, highs, _ = self._event_spans
        file = self._files["events.bin"]
        if file is None or after >= until:
            return np.empty(0, layout.EVENT)
        pieces = np.flatnonzero((lows <= until) & (highs > after))
        pieces = pieces[np.argsort(lows[pieces], kind="stable")]
        apart = np.diff(pieces) != 1
        apart[PIECE // SLOTS - 1 :: PIECE // SLOTS] = True  # nor too many at a time
        found, count, at = [np.empty(0, layout.EVENT)], 0, 0
        for run in np.split(pieces, np.flatnonzero(apart) + 1) if len(pieces) else []:
            first = int(run[0]) * SLOTS
            records = file.read(first, min(len(run) * SLOTS, file.count - first))
            self._check_slots(file, first, records)
            inside = (records["seq"] > after) & (records["seq"] <= until) & (records["kind"] != 0)
            found.append(layout.take(records, inside))
            count, at = count + int(inside.sum()), at + len(run)
            # Where all pieces that are left begin behind those that are wanted, none is missed.
            if most is not None and count >= most and at < len(pieces):
                seqs = np.sort(np.concatenate([f["seq"] for f in found]))
                if seqs[most - 1] < lows[pieces[at]]:
                    break
        out = layout.joined(found)
        order = np.argsort(out["seq"], kind="stable")[:most]
        return layout.take(out, order)

    @functools.cached_property
    def _event_spans(self) -> tuple[Array, Array, int]:
        """The least and the greatest seq of each SLOTS slots; none is in them where they are not
        used. And how many slots are.
        """
        file = self._files["events.bin"]
        pieces = -(-file.count // SLOTS) if file else 0
        lows, highs, count = np.full(pieces, ~np.uint64(0)), np.zeros(pieces, "u8"), 0
        for at, records in self.event_slots():
            used = np.flatnonzero(records["kind"])
            count += len(used)
            piece, seqs = (at + used) // SLOTS, records["seq"][used]
            np.minimum.at(lows, piece, seqs)
            np.maximum.at(highs, piece, seqs)
        return lows, highs, count

    def check_events(self) -> None:
        """Raises FormatError where calls are missing that the process counted. Looks at all of
        events.bin once.
        """
        wanted = int(self.info.get("counters", {}).get("events", 0))
        count = self._event_spans[2]
        if count < wanted:
            raise self.cut_short("events.bin", f"{count:,} of {wanted:,} calls are there")

    def cut_short(self, name: str, what: str) -> FormatError:
        """The error for a file that lacks records at its end."""
        file = self._files.get(name)
        end = 0 if file is None else file.at(file.count)
        return FormatError(self.path / name, end, f"cut short: {what}")

    def events_by_seq(self, size: int = PIECE) -> Iterator[Array]:
        """tt_event records that are in use, by seq, at most `size` at a time.

        The arrays are overwritten when the next is asked for.
        """
        count, as_they_lie = self._survey_events()
        file = self._files["events.bin"]
        if file is None or as_they_lie:
            yield from self.event_pieces(size)
            return
        slots, seqs = np.empty(count, "i8"), np.empty(count, "u8")
        row = 0
        for at, records in self.event_slots(size):
            used = np.flatnonzero(records["kind"])[: count - row]
            slots[row : row + len(used)] = at + used
            seqs[row : row + len(used)] = records["seq"][used]
            row += len(used)
        slots = slots[np.argsort(seqs, kind="stable")]
        for row in range(0, count, size):
            yield file.take(slots[row : row + size])

    def event_slots(self, size: int = PIECE) -> Iterator[tuple[int, Array]]:
        """All slots of events.bin but holes, at most `size` at a time, and where they begin.

        Checked; unused ones are of kind 0. The arrays are overwritten when the next is asked for.
        """
        file = self._files["events.bin"]
        buffer = np.empty(min(size, file.count) if file else 0, layout.EVENT)
        at = 0
        while file and (at := file.skip_hole(at)) < file.count:
            records = buffer[: file.count - at]
            file.read_into(at, records)
            self._check_slots(file, at, records)
            yield at, records
            at += len(records)
        self._events_good = self.status != "running"

    def _check_slots(self, file: RecordFile, first: int, records: Array) -> None:
        """records: the slots from `first` on. Only once, where no more will be written."""
        if self._events_good:
            return
        while (i := wrong_event(records)) is not None:
            slot = records[i : i + 1]
            check_records(file, first + i, slot)
            if wrong_event(slot) is not None:
                raise file.error(first + i, "kind" if slot["seq"][0] else "seq", "not an event")

    @functools.cached_property
    def annotations(self) -> Annotations:
        """What the program said of itself through NVTX. Looks at all of events.bin once, unless it
        is known that there is nothing.
        """
        counted = self.info.get("counters", {}).get("annotations")
        nothing = counted == 0 and self.status != "running"
        return Annotations(() if nothing else self.event_pieces(), self.strings)

    @functools.cached_property
    def controls(self) -> tuple[Array, Array]:
        """The seqs at which settings of the recording changed, ascending, and strings of what was
        set from there on. Looks at all of events.bin once.
        """
        found = [records[records["kind"] == CONTROL] for records in self.event_pieces()]
        records = np.sort(np.concatenate([np.empty(0, layout.EVENT), *found]), order="seq")
        return records["seq"], records["id"]

    @functools.cached_property
    def activities(self) -> Activities:
        """What the GPU did for calls, and when."""
        return Activities(self._folder)

    @functools.cached_property
    def seen(self) -> Seen:
        """What epochs have seen of calls and memory."""
        return Seen(self)

    @functools.cached_property
    def unread(self) -> Unread:
        """What epochs left out."""
        of = self.regions
        count = len(self.epochs)
        return find_unread(
            self.epochs["flags"],
            self.epochs["context"],
            (of.id, of.born, of.died, of.birth["context"]),
            lambda: (self.digests(0, count)["region"], self.epoch_of("digests", 0, count)),
        )

    @functools.cached_property
    def captures(self) -> Captures:
        """When the device read epochs, and what waited for it."""
        error = self.info.get("timeline", {}).get("clock_error_ns") or 0
        return Captures(self.epochs, self.regions, self.activities, self.strings, error)

    @functools.cached_property
    def graphs(self) -> Graphs:
        """The executable graphs that were made, and what they consisted of."""
        return Graphs(self._folder)

    @functools.cached_property
    def node_times(self) -> NodeTimes:
        """When the GPU ran the nodes of graphs."""
        return NodeTimes(self.graphs, self.activities, self.strings, self.kernel, self.event_pieces)

    @functools.cached_property
    def functions(self) -> Array:
        """tt_function records, by id."""
        file = self._folder.open("functions.bin")
        if file is None:
            return np.empty(0, layout.FUNCTION)
        records = read_checked(file)
        order = np.argsort(records["id"], kind="stable")
        twice = records["id"][order][1:] == records["id"][order][:-1]
        if twice.any():
            again = int(order[1:][twice].min())
            raise file.error(again, "id", f"a second record with id {int(records['id'][again])}")
        return records[order]

    @functools.cached_property
    def modules(self) -> Array:
        """tt_module records, by id."""
        file = self._folder.open("modules.bin")
        if file is None:
            return np.empty(0, layout.MODULE)
        return replayable.last_of_each(file, read_checked(file))

    @functools.cached_property
    def launches(self) -> Array:
        """tt_launch records, by seq: launches that were recorded so that they can be run again."""
        return replayable.read(self._folder)

    @functools.cached_property
    def kept(self) -> replayable.Kept:
        """What was in force for launches, and how modules were loaded."""
        return replayable.Kept(self._params)

    @functools.cached_property
    def frames(self) -> Array:
        """tt_frame records of whole stacks, by stack and depth."""
        return callstacks.read(self._folder)

    def stack(self, number: int) -> list[callstacks.Frame]:
        """Function, file and line of the frames of a call stack, the innermost first; [] where
        there is no such stack. Functions that the compiler inlined have frames of their own, and
        say so. Of native frames the function may be a place in the object file, and the file may
        be that one, with line 0.
        """
        return [frame for _, frame in self.stack_frames(number)]

    def stack_frames(self, number: int) -> list[tuple[int, callstacks.Frame]]:
        """The same, each with its kind."""
        first, last = np.searchsorted(self.frames["stack"], [number, number + 1])
        return [
            (int(record["kind"]), frame)
            for record in self.frames[first:last]
            for frame in self._frames_of(record)
        ]

    def _frames_of(self, record: Any) -> list[callstacks.Frame]:
        if record["kind"] == callstacks.NATIVE:
            return self._native[int(record["file"]), int(record["address"])]
        function, file = (self.strings.get(int(record[name])) for name in ("function", "file"))
        return [(function or "?", file or "?", int(record["line"]))]

    @functools.cached_property
    def _native(self) -> dict[tuple[int, int], list[callstacks.Frame]]:
        return callstacks.native(self.path, self.frames, self.strings)

    def call(self, index: int) -> str | None:
        """The name of a driver call by its index in records; None where there was none."""
        calls: list[str] = self.info.get("calls", [])
        if index < len(calls):
            return calls[index]
        return None if index in (layout.NO_CALL, layout.NO_ID) else f"call {index}"

    def kernel(self, function: int) -> str | None:
        """The mangled name of a kernel by its function; None where there was none.

        A launch may be recorded just before its function is.
        """
        if function == layout.NO_ID:
            return None
        at = int(np.searchsorted(self.functions["id"], function))
        if at == len(self.functions) or self.functions["id"][at] != function:
            return f"function {function}"
        return self.strings.get(int(self.functions["name"][at]))

    def params(self, event: Any) -> bytes:
        """The parameters of a launch (a tt_event) as its kernel sees them, b"" where they were
        not recorded. Raises FormatError where they are not in params.bin as they were.
        """
        what = f"the parameters of launch {int(event['seq'])}"
        return self._params.piece(int(event["params"]), int(event["params_size"]), what)

    @property
    def status(self) -> str:
        """running, complete, failed or signal, as the process last said."""
        return str(self.info.get("status", "running"))

    @property
    def failure(self) -> str | None:
        """Why the recording ended before the process did; None where it did not, or still runs."""
        if self.status == "running" or self.status in statuses.WITH_THE_PROCESS:
            return None
        reason = self.info.get("reason") or "no reason given"
        return f"the recording ended early ({self.status}): {reason}"

    @property
    def digests_only(self) -> str | None:
        """Since when epochs have no contents, and why; None where they all may have some."""
        only = self.info.get("digests_only")
        if not only:
            return None
        return (
            f"epochs from {only.get('since', '?')} on have digests only: {only.get('reason', '?')}"
        )

    @property
    def without_events(self) -> bool:
        """Whether no calls were recorded, as was asked for."""
        return bool(self.info.get("options", {}).get("TT_EVENTS") == "0")

    def check_files(self) -> None:
        """Raises FormatError where a record file is not as the process said in the end. Reads all
        of each.
        """
        self._folder.check()

    @property
    def ended(self) -> bool:
        """Whether the process came to say how its files end."""
        return bool(self.info.get("files"))

    @property
    def torn(self) -> bool:
        """Whether files end in what no epoch committed: the process was killed, or still runs."""
        if self._epochs_file is not None and self._epochs_file.torn:
            return True
        for kind in ("digests", "blocks"):
            file = self._files[f"{kind}.bin"]
            _, committed = self.span_bounds(kind, 0, len(self.epochs))
            if file is not None and (file.torn or file.count > committed):
                return True
        return False


def _order(seqs: Array) -> Array | None:
    """What sorts events by seq; None where they are in order."""
    return None if (seqs[1:] >= seqs[:-1]).all() else np.argsort(seqs, kind="stable")


def _endings(info: dict[str, Any]) -> dict[str, Ending]:
    """How files end, by name, as process.json says, which passed its checks."""
    return {
        name: Ending(file["size"], int(file["check"], 16) if file.get("check") else None)
        for name, file in info.get("files", {}).items()
    }


def data_name(segment: int) -> str:
    return f"data-{segment:05d}.bin"


def check_process(path: Path, where: str, info: dict[str, Any]) -> None:
    """Raises FormatError where a process object's members aren't of the types they must have."""
    expect(path, where, info, process=int, pid=int, cwd=str, status=str, driver_version=int)
    expect(path, where, info, started_ns=int, options=dict, ring=dict, counters=dict)
    expect(path, where, info, deterministic=bool, ended_ns=(int, None), reason=(str, None))
    expect(path, f"{where}ring.", info.get("ring", {}), bytes=int, place=str)
    expect(path, where, info, timeline=dict, digests_only=(dict, None))
    expect(path, f"{where}digests_only.", info.get("digests_only") or {}, since=int, reason=str)
    texts = {"asked": str, "source": str, "reason": (str, None)}
    numbers = {"missed": int, "clock_error_ns": (int, None)}
    expect(path, f"{where}timeline.", info.get("timeline", {}), **texts, **numbers)
    incidents.check(path, where, info)
    expect(path, where, info, files=dict)
    for name, file in info.get("files", {}).items():
        place = f"{where}files.{name}"
        if not isinstance(file, dict) or "size" not in file:
            raise FormatError(path, place, "an object with a size is expected")
        expect(path, f"{place}.", file, size=int, check=(str, None))
        if not re.fullmatch(r"[0-9a-f]{16}", file.get("check") or "0" * 16):
            raise FormatError(path, f"{place}.check", "16 hexadecimal digits are expected")
    for key in ("argv", "unknown_calls", "warnings", "losses", "calls"):
        expect_list(path, where, info, key, str)
    expect_list(path, where, info, "devices", dict)
    for i, device in enumerate(info.get("devices", [])):
        expect(path, f"{where}devices[{i}].", device, ordinal=int, name=str, memory=int)
    counters = info.get("counters", {})
    expect(path, f"{where}counters.", counters, **dict.fromkeys(counters, int))
