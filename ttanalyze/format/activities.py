"""timeline.bin: the GPU's activities, their times, and the waits of the host.

A run may have many millions of activities. Only an index of them stays in memory: the position of
each call's records and, if asked for, the times of its work.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from ttanalyze.format import event_kinds, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.files import PIECE, Folder, RecordFile, check_records
from ttanalyze.format.layout import Array

KINDS = event_kinds.TIMED + event_kinds.WAIT
SYNC = KIND["sync"]
FLAGS = ("COARSE", "OWN", "STAMPED")
COARSE, OWN, STAMPED = (layout.constant(f"TT_ACTIVITYF_{name}") for name in FLAGS)
LATEST = np.uint64((1 << 63) - 1)  # time


class Activities:
    """The activities of one process. Returned records passed their checks, and none is an
    unused slot.
    """

    def __init__(self, folder: Folder) -> None:
        """Reads the header only."""
        self._file = folder.open("timeline.bin")

    def __len__(self) -> int:
        return len(self._index[0])

    @property
    def there(self) -> bool:
        """Returns whether there is any activity. Stops at the first one."""
        return any(len(records) for records in self.pieces(1 << 9))

    # ---- as they lie in the file ----

    def pieces(self, size: int = PIECE) -> Iterator[Array]:
        """Yields tt_activity records in file order, at most `size` at a time.

        Each array is valid until the next one.
        """
        for _, records in self._slots(size):
            used = records["check"] != 0
            yield records if used.all() else layout.take(records, used)

    def _slots(self, size: int = PIECE) -> Iterator[tuple[int, Array]]:
        """Yields all slots except holes, and the number of the first."""
        file, at = self._file, 0
        buffer = np.empty(min(size, file.count) if file else 0, layout.ACTIVITY)
        while file and (at := file.skip_hole(at)) < file.count:
            records = buffer[: file.count - at]
            file.read_into(at, records)
            self._check(file, at, records)
            yield at, records
            at += len(records)

    @staticmethod
    def _check(file: RecordFile, at: int, records: Array) -> None:
        used = records["check"] != 0
        if not used.any():
            return
        check_records(file, at, records, used)
        for field, reason, wrong in (
            ("kind", "not an activity", ~np.isin(records["kind"], KINDS)),
            ("flags", "unknown flags", records["flags"] & ~np.uint32(COARSE | OWN | STAMPED) != 0),
            ("end_ns", "it ended before it began", records["end_ns"] < records["begin_ns"]),
            ("end_ns", "no time", records["end_ns"] > LATEST),
        ):
            if (wrong & used).any():
                raise file.error(at + int((wrong & used).argmax()), field, reason)

    # ---- by the calls that asked for them ----

    @functools.cached_property
    def _index(self) -> tuple[Array, Array]:
        """Returns the seq of each record, ascending, and the slot of each."""
        seqs, slots = [np.empty(0, "u8")], [np.empty(0, "u4")]
        for at, records in self._slots():
            used = np.flatnonzero(records["check"])
            seqs.append(records["seq"][used])
            slots.append((at + used).astype("u4" if at + PIECE < 1 << 32 else "u8"))
        seq, slot = np.concatenate(seqs), np.concatenate(slots)
        if (seq[1:] >= seq[:-1]).all():
            return seq, slot
        order = np.argsort(seq, kind="stable")
        return seq[order], slot[order]

    def between(self, after: int, until: int) -> Array:
        """Returns tt_activity records of calls with seq in (after, until], by seq and begin.

        With after = -1 the result begins with records whose call is unknown: their seq is 0.
        """
        return self._taken(*self._rows(after, until))

    def by_seq(
        self, size: int = PIECE, after: int = -1, until: int = (1 << 64) - 1
    ) -> Iterator[Array]:
        """Yields what `between` returns, about `size` records at a time. All records of a call are
        in one piece.
        """
        seqs = self._index[0]
        row, last = self._rows(after, until)
        while row < last:
            end = last
            if row + size < last:
                end = int(np.searchsorted(seqs, seqs[row + size]))  # before that call's
                end = end if end > row else int(np.searchsorted(seqs, seqs[row], "right"))
            yield self._taken(row, end)
            row = end

    def _rows(self, after: int, until: int) -> tuple[int, int]:
        if until <= after:
            return 0, 0
        seqs = self._index[0]
        first = 0 if after < 0 else int(np.searchsorted(seqs, np.uint64(after), "right"))
        return first, int(np.searchsorted(seqs, np.uint64(until), "right"))

    def _taken(self, first: int, last: int) -> Array:
        if self._file is None or first >= last:
            return np.empty(0, layout.ACTIVITY)
        records = self._file.take(self._index[1][first:last])
        return np.asarray(records[np.lexsort((records["begin_ns"], records["seq"]))])

    def of_calls(self, seqs: Array) -> tuple[Array, Array]:
        """Returns the tt_activity records of calls, by call and begin, and for each the index of
        its call.

        seqs: ascending.
        """
        if not len(seqs):
            return np.empty(0, layout.ACTIVITY), np.empty(0, "i8")
        records = self.between(int(seqs[0]) - 1, int(seqs[-1]))
        rows = rows_of(seqs, records["seq"])
        mine = rows >= 0
        return (records, rows) if mine.all() else (records[mine], rows[mine])

    def known(self, seqs: Array) -> Array:
        """Returns which calls have any record."""
        return np.asarray(rows_of(self._index[0], seqs) >= 0)

    # ---- when the GPU was at work ----

    def spans(self, seqs: Array, waits: bool = False) -> tuple[Array, Array, Array]:
        """Returns for each call when its GPU work began, when all of it was finished (both int64
        nanoseconds), and whether these are known.

        waits: returns the waits of the host instead. Work that the recorder put into graphs does
        not count.
        """
        known, begins, ends = self._waits if waits else self._work
        rows = rows_of(known, seqs)
        return begins[rows], ends[rows], rows >= 0

    @functools.cached_property
    def _work(self) -> tuple[Array, Array, Array]:
        return self._spans(False)

    @functools.cached_property
    def _waits(self) -> tuple[Array, Array, Array]:
        return self._spans(True)

    def _spans(self, waits: bool) -> tuple[Array, Array, Array]:
        """Returns ascending seqs with the first begin and the last end of each, followed by
        one zero.
        """
        seqs, begins, ends = [], [], []
        for records in self.by_seq():
            meant = (records["flags"] & OWN == 0) & (records["seq"] != 0)
            some = records[meant & ((records["kind"] == SYNC) == waits)]
            first = np.flatnonzero(np.append(True, np.diff(some["seq"]) != 0)[: len(some)])
            if len(first):
                seqs.append(some["seq"][first])
                begins.append(some["begin_ns"][first].astype("i8"))
                ends.append(np.maximum.reduceat(some["end_ns"].astype("i8"), first))
        return (
            np.concatenate([np.empty(0, "u8"), *seqs]),
            np.concatenate([*begins, np.zeros(1, "i8")]),
            np.concatenate([*ends, np.zeros(1, "i8")]),
        )


def rows_of(seqs: Array, wanted: Array) -> Array:
    """Returns the index of each wanted value in ascending seqs (the first of equal ones), -1 if
    missing.
    """
    if not len(seqs):
        return np.full(len(wanted), -1, "i8")
    at = np.searchsorted(seqs, wanted)
    at[at == len(seqs)] = 0
    return np.where(seqs[at] == wanted, at, -1)


def nodes_of(records: Array) -> tuple[Array, Array]:
    """Returns the number of the graph node of each activity, and whether it has one.

    The number is that of graphs.bin if a stamp timed the node, else the driver's.
    """
    stamped = (records["flags"] & STAMPED).astype("u8") // np.uint64(STAMPED)
    there = records["node"] != 0
    return records["node"] - np.where(there, stamped, np.uint64(0)), there
