"""Waits of streams: for events of other streams, and for captures that read what they would write.

The GPU does not report waits. A stream waited if what it waited for ended later than all its
earlier work; then it waited until that end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.format.captures import Captures
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array

RECORD, WAIT = KIND["event-record"], KIND["event-wait"]


@dataclass(frozen=True)
class Found:
    """Waits: the rows of the calls that made their streams wait, with begin and end."""

    rows: Array
    begins: Array
    ends: Array


class Waits:
    """Finds waits in one process, call by call."""

    def __init__(self, captures: Captures) -> None:
        self._captures = captures
        self._idle: dict[int, int] = {}  # by lane of a stream: when all that it had to do is done
        self._reached: dict[int, int] = {}  # by event: when all is done that it was recorded behind

    def find(
        self,
        calls: Array,
        lanes: Array,
        submits: Array,
        made: Array,
        of: Array,
        spans: tuple[Array, Array],
    ) -> tuple[Found, Found]:
        """Returns waits for events, and waits for captures.

        calls: the next calls. lanes: of their streams. submits: which of them submit GPU work.
        made: their times. of: rows of calls with known GPU times, spans.
        """
        known = np.zeros(len(calls), bool)
        known[of] = True
        begins, ends = made.copy(), made.copy()
        begins[of], ends[of] = spans
        through = capture_ends(self._captures, calls)
        marks = submits & np.isin(calls["kind"], (RECORD, WAIT))
        rows = np.flatnonzero(known | marks | (through > 0))
        for_events: list[tuple[int, int, int]] = []
        for_captures: list[tuple[int, int, int]] = []
        for row, kind, mark, lane, event, time, done, begin, end in zip(
            rows.tolist(),
            calls["kind"][rows].tolist(),
            marks[rows].tolist(),
            lanes[rows].tolist(),
            calls["src"][rows].tolist(),
            made[rows].tolist(),
            through[rows].tolist(),
            np.where(known[rows], begins[rows], through[rows]).tolist(),
            ends[rows].tolist(),
            strict=True,
        ):
            idle = max(self._idle.get(lane, 0), time)
            if min(done, begin) > idle:
                for_captures.append((row, idle, min(done, begin)))
                idle = self._idle[lane] = min(done, begin)
            if not mark:
                self._idle[lane] = max(idle, end)
            elif kind == RECORD:
                self._reached[event] = idle
            elif self._reached.get(event, 0) > idle:
                self._idle[lane] = self._reached[event]
                for_events.append((row, idle, self._reached[event]))
        return _found(for_events), _found(for_captures)


def capture_ends(captures: Captures, calls: Array) -> Array:
    """Returns when the captures ended that calls waited for, 0 if they did not wait or it is
    unknown.
    """
    out = np.zeros(len(calls), "i8")
    rows = np.flatnonzero(captures.waited(calls))
    if len(rows):
        epochs = captures.waited_for(calls[rows])
        out[rows] = np.append(captures.ends, 0)[epochs]
    return out


def _found(waits: list[tuple[int, int, int]]) -> Found:
    columns = np.array(waits, "i8").reshape(-1, 3)
    return Found(columns[:, 0], columns[:, 1], columns[:, 2])
