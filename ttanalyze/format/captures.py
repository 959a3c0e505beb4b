"""The times at which the device read epochs, and the calls that waited for it.

The drain notices the end of a capture with some delay. A timeline has the capture kernels
themselves: in a context they run one after the other, and one lists changes for each epoch.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from ttanalyze.format import event_kinds, layout
from ttanalyze.format.activities import OWN
from ttanalyze.format.epoch_coverage import BEFORE, INSIDE
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array

if TYPE_CHECKING:
    from ttanalyze.format.process import Process

WAITED = layout.constant("TT_EVENTF_WAITED")
LAUNCH = KIND["launch"]
DIGESTS = ("tt_capture_digest", "tt_capture_digest_at")  # the first kernel of each epoch
NO_CAPTURES = tuple(f"tt_capture_{name}" for name in ("front_at", "turn_at", "stamp_at", "stamp"))
SLACK = 100_000  # nanoseconds that clocks may be apart, beside what is known of it
LATEST = np.uint64(1 << 62)  # time: a hostile file may have any


class Captures:
    """The captures of one process."""

    def __init__(self, process: Process) -> None:
        self._epochs = epochs = process.epochs
        self._regions, self._activities = process.regions, process.activities
        self._strings = process.strings
        clock_error: int = process.info.get("timeline", {}).get("clock_error_ns") or 0
        self._slack = clock_error + SLACK
        self._cut = np.minimum(epochs["time_ns"], LATEST).astype("i8")
        self._seen = np.minimum(epochs["captured_ns"], LATEST).astype("i8")

    # ---- when ----

    @property
    def begins(self) -> Array:
        """When the device began to read each epoch, 0 without a timeline."""
        return self._times[0]

    @property
    def ends(self) -> Array:
        """When the device finished each epoch. Without a timeline, when the drain noticed it. 0 if
        unknown.
        """
        return self._times[1]

    @functools.cached_property
    def cuts(self) -> Array:
        """When each epoch was cut. For epochs inside graphs, when the device began or finished
        reading.
        """
        read = np.where(self.begins > 0, self.begins, self.ends)
        inside = self._epochs["trigger"] == INSIDE
        return np.asarray(np.where(inside, np.maximum(read, self._cut), self._cut))

    @functools.cached_property
    def _times(self) -> tuple[Array, Array]:
        begins, ends = np.zeros(len(self._epochs), "i8"), self._seen.copy()
        if len(self._epochs) and self._activities.there:
            self._time_apart(begins, ends)
            self._time_inside(begins, ends)
        return begins, ends

    def _time_apart(self, begins: Array, ends: Array) -> None:
        """Fills in the times of epochs that are not inside graphs."""
        epochs = self._epochs
        all_kernels = self._kernels(self._activities.between(-1, 0))
        meant = (epochs["trigger"] != INSIDE) & (epochs["flags"] & layout.REFUSED == 0)
        for context in layout.distinct(all_kernels["context"]).tolist():
            rows = np.flatnonzero(meant & (epochs["context"] == context))
            if len(rows):
                until = self._seen[rows[-1]] + self._slack
                kernels = all_kernels[
                    (all_kernels["context"] == context) & (all_kernels["begin_ns"] <= until)
                ]
                self._pair(rows, kernels, begins, ends)

    def _time_inside(self, begins: Array, ends: Array) -> None:
        """Fills in the times of epochs inside graphs, from the activities of the graph launch."""
        rows = np.flatnonzero(self._epochs["trigger"] == INSIDE)
        if not len(rows):
            return
        launches = self._epochs["seq"][rows]
        rows = rows[np.argsort(launches, kind="stable")]
        activities, which = self._activities.of_calls(layout.distinct(launches))
        kept = activities["flags"] & OWN != 0
        activities, which = activities[kept], which[kept]
        first = np.searchsorted(self._epochs["seq"][rows], layout.distinct(launches))
        for launch, of_launch in enumerate(np.split(rows, first[1:])):
            self._pair(of_launch, self._kernels(activities[which == launch]), begins, ends)

    @staticmethod
    def _kernels(records: Array) -> Array:
        """Returns the capture kernels among activities, by begin."""
        kernels = records[(records["kind"] == LAUNCH) & (records["flags"] & OWN != 0)]
        return np.asarray(kernels[np.argsort(kernels["begin_ns"], kind="stable")])

    def _pair(self, rows: Array, kernels: Array, begins: Array, ends: Array) -> None:
        """Matches epochs with capture kernels in order. Does nothing if their numbers differ."""
        names = layout.distinct(kernels["name"])
        reads = [name for name in names.tolist() if self._strings.get(name) not in NO_CAPTURES]
        kernels = kernels[np.isin(kernels["name"], reads)]
        lists = [name for name in names.tolist() if self._strings.get(name) in DIGESTS]
        first = np.flatnonzero(np.isin(kernels["name"], lists))
        if len(first) != len(rows) or not len(rows):
            return
        began = kernels["begin_ns"][first].astype("i8")
        ended = np.maximum.reduceat(kernels["end_ns"].astype("i8"), first)
        good = (began >= self._cut[rows] - self._slack) & (began <= self._seen[rows] + self._slack)
        begins[rows[good]], ends[rows[good]] = began[good], ended[good]

    # ---- what waited ----

    @staticmethod
    def waited(events: Array) -> Array:
        """Returns which calls made their stream wait for a capture."""
        return np.asarray(events["flags"] & WAITED != 0)

    def waited_for(self, events: Array) -> Array:
        """Returns the number of the epoch that each call (tt_event) waited for, -1 if none."""
        out = np.full(len(events), -1, "i8")
        for context in layout.distinct(events["context"]).tolist():
            of = np.flatnonzero(events["context"] == context)
            rows = self._captured.get(context)
            if rows is not None:
                out[of] = np.append(rows, -1)[self._last_before(rows, events[of])]
        return out

    @functools.cached_property
    def _captured(self) -> dict[int, Array]:
        """The captured epochs of each context."""
        rows = np.flatnonzero(self._epochs["flags"] & layout.REFUSED == 0)
        contexts = self._epochs["context"][rows]
        return {c: rows[contexts == c] for c in layout.distinct(contexts).tolist()}

    def _last_before(self, rows: Array, events: Array) -> Array:
        """Returns the last of these epochs of a context before each call, -1 if none."""
        seqs, cut, seen = self._epochs["seq"][rows], self._cut[rows], self._seen[rows]
        made = np.minimum(events["time_ns"], LATEST).astype("i8")
        by_seq = np.searchsorted(np.maximum.accumulate(seqs), events["seq"]) - 1
        # The epoch of a waiting call may be cut after later calls of other threads returned.
        by_time = np.searchsorted(np.maximum.accumulate(cut), made, "right") - 1
        at = np.where((made > 0) & cut.all(), by_time, by_seq)
        # A finished epoch makes no call wait: it was the next one, cut while the call began.
        over = (at >= 0) & (seen[at] > 0) & (seen[at] < made) & (at + 1 < len(rows))
        over |= at < 0
        follows = np.minimum(at + 1, len(rows) - 1)
        at = np.where(over & (seqs[follows] < events["seq"]), follows, at)
        before_launch = np.flatnonzero(self._epochs["trigger"][rows] == BEFORE)
        if len(before_launch):
            order = before_launch[np.argsort(seqs[before_launch], kind="stable")]
            position = np.minimum(np.searchsorted(seqs[order], events["seq"]), len(order) - 1)
            at = np.where(seqs[order[position]] == events["seq"], order[position], at)
        return np.asarray(at)

    def regions_of(self, events: Array) -> Array:
        """Returns the row of the region for which each call waited, -1 if it is unknown."""
        out = np.full(len(events), -1, "i8")
        given = np.flatnonzero(np.isin(events["kind"], event_kinds.LAUNCH) & (events["dst"] != 0))
        order, bases = self._by_base
        for i in given.tolist():
            base, seq = events["dst"][i], events["seq"][i]
            first, last = np.searchsorted(bases, base), np.searchsorted(bases, base, "right")
            for row in order[first:last][::-1].tolist():  # the last one that was there
                died = self._regions.death_seq[row]
                if self._regions.birth["seq"][row] < seq and (died == 0 or died > seq):
                    out[i] = row
                    break
        return out

    @functools.cached_property
    def _by_base(self) -> tuple[Array, Array]:
        """The rows of captured regions by base and birth, and their bases."""
        rows = np.flatnonzero(self._regions.flags & layout.CAPTURED)
        birth = self._regions.birth[rows]
        rows = rows[np.lexsort((birth["seq"], birth["base"]))]
        return rows, self._regions.birth["base"][rows]
