"""Decides whether accesses of different threads are ordered, by vector clocks.

The clock of a thread is the place in the trace. `known[i, j]` says up to which place the accesses
of source j come before what thread i does next. A source is a thread that is the first of a pair,
or a copy by an engine. What `events` found is applied in order, and pairs are looked up in between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.race.exact.events import Act, Event, Events
from ttanalyze.verbs.race.exact.model import WARP, Launch
from ttanalyze.verbs.race.exact.overlaps import Pairs

CELLS = 1 << 24  # of the matrix of clocks
STEPS = 1 << 21  # events, times the parts that sources are taken in


class TooManyError(Exception):
    """More events than are worth their time."""


def ordered(launch: Launch, events: Events, pairs: Pairs) -> Array:
    """Returns which pairs are ordered. Raises TooManyError."""
    thread = launch.gwarp[pairs.first].astype(np.int64) * WARP + pairs.first_lane
    copies = launch.copy[launch.instruction[pairs.first]]
    source = np.where(copies, -1 - (pairs.first * WARP + pairs.first_lane), thread)
    sources, column = np.unique(source, return_inverse=True)
    warps = np.union1d(events.warps, launch.gwarp[np.concatenate([pairs.first, pairs.second])])
    at_once = max(CELLS // (len(warps) * WARP), 1)
    if len(events.listed) * -(-len(sources) // at_once) > STEPS:
        raise TooManyError
    out = np.zeros(len(pairs), bool)
    row = np.searchsorted(warps, launch.gwarp[pairs.second]) * WARP + pairs.second_lane
    for begin in range(0, len(sources), at_once):
        some = np.flatnonzero((column >= begin) & (column < begin + at_once))
        clocks = _Clocks(warps, sources[begin : begin + at_once])
        out[some] = clocks.run(
            events, row[some], column[some] - begin, pairs.first[some] * 2, pairs.second[some] * 2
        )
    return out


class _Clocks:
    def __init__(self, warps: Array, sources: Array) -> None:
        self._warps = warps
        self._columns = {source: i for i, source in enumerate(sources.tolist())}
        rows = len(warps) * WARP
        self._width = len(sources)
        self._known = np.full((rows, self._width), -1, np.int32)
        threads = (warps.astype(np.int64)[:, None] * WARP + np.arange(WARP)).ravel()
        found = np.searchsorted(sources, threads)
        found[found == len(sources)] = 0
        self._own = np.where(sources[found] == threads, found, -1)
        self._objects: dict[object, Array] = defaultdict(self._nothing)
        self._fenced: dict[tuple[int, int], Array] = {}
        self._pending: dict[tuple[int, int], Array] = {}
        self._acts: dict[Act, Callable[[Event, Array], None]] = {
            Act.GIVE: self._give,
            Act.TAKE: self._take,
            Act.FENCE: self._fence,
            Act.GIVE_FENCED: self._give_fenced,
            Act.TAKE_LATER: self._take_later,
            Act.COPY: self._copy,
        }

    def _nothing(self) -> Array:
        return np.full(self._width, -1, np.int32)

    def run(self, events: Events, row: Array, column: Array, first: Array, second: Array) -> Array:
        """Returns for each pair whether the thread of `row` knows the place `first` of the source
        when it is at the place `second`.
        """
        order = np.argsort(second, kind="stable")
        places = second[order]
        out = np.zeros(len(row), bool)
        asked = 0
        for event in events.listed:
            if asked < len(places) and places[asked] <= event.place:
                until = int(np.searchsorted(places, event.place, side="right"))
                some = order[asked:until]
                out[some] = self._known[row[some], column[some]] >= first[some]
                asked = until
            rows = int(np.searchsorted(self._warps, event.warp)) * WARP
            self._acts[event.act](event, rows + np.flatnonzero(_bits(event.mask)))
        some = order[asked:]
        out[some] = self._known[row[some], column[some]] >= first[some]
        return out

    # ---- what an event does ----

    def _at(self, event: Event, rows: Array) -> Array:
        """Returns what threads know at an event, their own clocks among it."""
        mine = rows[self._own[rows] >= 0]
        self._known[mine, self._own[mine]] = event.place
        out: Array = self._known[rows]
        return out

    def _give(self, event: Event, rows: Array) -> None:
        known = self._at(event, rows).max(axis=0)
        for key in event.keys:
            np.maximum(self._objects[key], known, out=self._objects[key])

    def _take(self, event: Event, rows: Array) -> None:
        for key in event.keys:
            if key in self._objects:
                self._known[rows] = np.maximum(self._known[rows], self._objects[key])

    def _fence(self, event: Event, rows: Array) -> None:
        for level in range(event.level + 1):
            for row in rows.tolist():
                pending = self._pending.pop((level, row), None)
                if pending is not None:
                    np.maximum(self._known[row], pending, out=self._known[row])
        known = self._at(event, rows)
        for level in range(event.level + 1):
            self._fenced.update(((level, row), known[i]) for i, row in enumerate(rows.tolist()))

    def _give_fenced(self, event: Event, rows: Array) -> None:
        for level, key in enumerate(event.keys):
            for row in rows.tolist():
                known = self._fenced.get((level, row))
                if known is not None:
                    np.maximum(self._objects[key], known, out=self._objects[key])

    def _take_later(self, event: Event, rows: Array) -> None:
        for level, key in enumerate(event.keys):
            if key not in self._objects:
                continue
            for row in rows.tolist():
                known = self._pending.get((level, row), self._objects[key])
                self._pending[level, row] = np.maximum(known, self._objects[key])

    def _copy(self, event: Event, rows: Array) -> None:
        for lane in (rows % WARP).tolist():
            column = self._columns.get(-1 - ((event.place // 2) * WARP + lane))
            if column is not None:
                for key in event.keys:
                    self._objects[key][column] = event.place


def _bits(mask: int) -> Array:
    return (mask >> np.arange(WARP)) & 1
