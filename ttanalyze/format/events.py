"""events.bin: the calls of a process, checked while they are read."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.digest import wrong_event
from ttanalyze.format.files import PIECE, RecordFile, check_records
from ttanalyze.format.layout import Array
from ttanalyze.format.process_info import ProcessInfo

SLOTS = 512  # of events.bin that are known by the seq they span


class Events(ProcessInfo):
    """The part of Process that reads calls."""

    _events_good = False  # all of them, and none will be added

    @functools.cached_property
    def events(self) -> Array:
        """All used tt_event records, by seq."""
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
        """The number of used records, and whether the file begins with exactly these, by seq."""
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
        """The members of all used tt_event records, by seq, one array each."""
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
        """Returns the number of used records."""
        return self._survey_events()[0]

    def event_pieces(self, size: int = PIECE) -> Iterator[Array]:
        """Yields used tt_event records in file order, at most `size` at a time.

        Each array is valid until the next one.
        """
        for _, records in self.event_slots(size):
            used = records["kind"] != 0
            yield records if used.all() else layout.take(records, used)

    def _event_rows(self, count: int) -> Iterator[tuple[slice, Array]]:
        """Yields the first `count` records of event_pieces with the rows that they fill."""
        row = 0
        for records in self.event_pieces():
            some = records[: count - row]  # a run that goes on has more by now
            yield slice(row, row + len(some)), some
            row += len(some)

    def events_between(self, after: int, until: int, most: int | None = None) -> Array:
        """Returns tt_event records with seq in (after, until], by seq, at most the first `most`.

        The first call reads all of events.bin. Later calls read the parts that have such events.
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
        """The smallest and the largest seq of each SLOTS slots, empty ranges for unused ones, and
        the number of used slots.
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
        """Raises FormatError if events.bin has fewer events than the process counted. Reads all of
        it once.
        """
        wanted = int(self.info.get("counters", {}).get("events", 0))
        count = self._event_spans[2]
        if count < wanted:
            raise self.cut_short("events.bin", f"{count:,} of {wanted:,} calls are there")

    def events_by_seq(self, size: int = PIECE) -> Iterator[Array]:
        """Yields used tt_event records by seq, at most `size` at a time.

        Each array is valid until the next one.
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
        """Yields all slots of events.bin except holes, at most `size` at a time, and the number of
        the first.

        They are checked; unused slots have kind 0. Each array is valid until the next one.
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

    def slots_from(self, first: int, most: int) -> Array:
        """Returns the slots of events.bin from `first` on, at most `most`. Unused ones have kind
        0.
        """
        file = self._files["events.bin"]
        if file is None or first >= file.count:
            return np.empty(0, layout.EVENT)
        records = file.read(first, min(most, file.count - first))
        self._check_slots(file, first, records)
        return records

    def _check_slots(self, file: RecordFile, first: int, records: Array) -> None:
        """Checks records, the slots from `first` on. Slots of an ended process are checked once."""
        if self._events_good:
            return
        while (i := wrong_event(records)) is not None:
            slot = records[i : i + 1]
            check_records(file, first + i, slot)
            if wrong_event(slot) is not None:
                raise file.error(first + i, "kind" if slot["seq"][0] else "seq", "not an event")


def _order(seqs: Array) -> Array | None:
    """Returns the order that sorts events by seq, None if they are sorted."""
    return None if (seqs[1:] >= seqs[:-1]).all() else np.argsort(seqs, kind="stable")
