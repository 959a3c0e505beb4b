"""Streams that waited for another stream's work, by events that were recorded there.

The GPU does not say when a stream waits. But it is known when what came before the event was
through: where that is later than all that the waiting stream had to do, it waited until then.
"""

from __future__ import annotations

import numpy as np

from ttanalyze.model import layout
from ttanalyze.model.layout import Array

RECORD, WAIT = (layout.EVENT_KINDS.index(kind) for kind in ("event-record", "event-wait"))


class Waits:
    """Of one process, call after call."""

    def __init__(self) -> None:
        self._idle: dict[int, int] = {}  # by lane of a stream: when all that it had to do is done
        self._reached: dict[int, int] = {}  # by event: when all is done that it was recorded behind

    def find(
        self, calls: Array, lanes: Array, submits: Array, made: Array, of: Array, ends: Array
    ) -> tuple[Array, Array, Array]:
        """calls: the next ones, with the lanes of their streams, which of them asked the GPU for
        something, and when they were made. of: rows of those whose work is known to end at ends.

        Gives the rows of those that made a stream wait, and from when until when it did.
        """
        marks = np.flatnonzero(submits & np.isin(calls["kind"], (RECORD, WAIT)))
        rows = np.concatenate([of, marks])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        found: list[tuple[int, int, int]] = []
        for row, kind, lane, event, time, end in zip(
            rows.tolist(),
            calls["kind"][rows].tolist(),
            lanes[rows].tolist(),
            calls["src"][rows].tolist(),
            made[rows].tolist(),
            np.append(ends, made[marks])[order].tolist(),
            strict=True,
        ):
            idle = max(self._idle.get(lane, 0), time)
            if kind == RECORD:
                self._reached[event] = idle
            elif kind != WAIT:
                self._idle[lane] = max(idle, end)
            elif self._reached.get(event, 0) > idle:
                self._idle[lane] = self._reached[event]
                found.append((row, idle, self._reached[event]))
        waits = np.array(found, "i8").reshape(-1, 3)
        return waits[:, 0], waits[:, 1], waits[:, 2]
