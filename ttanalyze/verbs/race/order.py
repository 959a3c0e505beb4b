"""Which calls come after which on the device: by streams, events and waits of the host.

Invariant: of two calls that are said to have no order, no call in between orders them. What the
host knows it knows in all threads, as how threads tell each other is not recorded; a stream whose
making was not recorded waits for the legacy default stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.format import event_kinds, graphs, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
SYNC_COPY = layout.constant("TT_EVENTF_SYNC_COPY")
HOST_DST = layout.constant("TT_EVENTF_HOST_DST")
HOST_SRC = layout.constant("TT_EVENTF_HOST_SRC")
LEGACY, PER_THREAD = 1, 2  # numbers of streams
NON_BLOCKING = 1
MOST = 20_000  # calls that are looked at

Lane = tuple[int, int, int]  # context, stream, and thread of a per-thread default stream
Clock = dict[Lane, int]  # how many calls of each lane are over


@dataclass(frozen=True)
class Call:
    """A piece of work. number: of it in its lane, from 1. clock: what comes before it."""

    event: Any
    lane: Lane
    number: int
    clock: Clock

    def after(self, other: Call) -> bool:
        """Whether this one runs when the other is over."""
        return self.clock.get(other.lane, 0) >= other.number


def unordered(a: Call, b: Call) -> bool:
    """Whether nothing says which of two calls comes first."""
    return a.lane != b.lane and not a.after(b) and not b.after(a)


def calls_between(process: Process, context: int, after: int, until: int) -> list[Call]:
    """The work with seq in (after, until] in a context, in the order of calls; of more than MOST
    calls the last. What orders two of them was called between them, so nothing before matters.
    """
    return _Reader(process, context).read(after, until)


class _Reader:
    def __init__(self, process: Process, context: int) -> None:
        self._process, self._context = process, context
        self._lanes: dict[Lane, Clock] = {}  # after the last call of each
        self._host: Clock = {}
        self._events: dict[int, Clock] = {}
        self._values: dict[int, Clock] = {}  # by address, what was before a stream wrote there
        self._free: set[int] = set()  # streams that don't wait for the legacy one
        self._legacy: Clock = {}

    def read(self, after: int, until: int) -> list[Call]:
        self._learn_streams()
        calls: list[Call] = []
        for event in self._process.events_between(after, until):
            if event["result"] or event["flags"] & CAPTURING:
                continue
            if event["context"] != self._context:
                continue
            call = self._event(event)
            if call is not None:
                calls.append(call)
        return calls[-MOST:]

    def _learn_streams(self) -> None:
        columns = self._process.event_columns("kind", "stream", "result", "bytes")
        made = (columns["kind"] == KIND["stream-create"]) & (columns["result"] == 0)
        made &= columns["bytes"] & NON_BLOCKING != 0
        self._free = set(columns["stream"][made].tolist())

    # ---- clocks ----

    def _lane(self, event: Any) -> Lane:
        stream = int(event["stream"])
        thread = int(event["thread"]) if stream == PER_THREAD else 0
        return int(event["context"]), stream, thread

    def _waits_for_legacy(self, lane: Lane) -> bool:
        return lane[1] != LEGACY and lane[1] not in self._free

    def _before(self, lane: Lane) -> Clock:
        """What the next call of a lane comes after."""
        parts = [self._host, self._lanes.get(lane, {})]
        if lane[1] == LEGACY:
            others = self._lanes.items()
            parts += [clock for other, clock in others if self._waits_for_legacy(other)]
        elif self._waits_for_legacy(lane):
            parts.append(self._legacy)
        return _joined(parts)

    def _submit(self, event: Any) -> Call:
        lane = self._lane(event)
        before = self._before(lane)
        number = before.get(lane, 0) + 1
        self._set(lane, {**before, lane: number})
        return Call(event.copy(), lane, number, before)

    def _set(self, lane: Lane, clock: Clock) -> None:
        self._lanes[lane] = clock
        if lane[1] == LEGACY:
            self._legacy = clock

    # ---- calls ----

    def _event(self, event: Any) -> Call | None:
        kind, lane = int(event["kind"]), self._lane(event)
        if kind == KIND["event-record"]:
            self._events[int(event["src"])] = self._before(lane)
        elif kind == KIND["event-wait"]:
            recorded = self._events.get(int(event["src"]), {})
            self._set(lane, _joined([self._before(lane), recorded]))
        elif kind == KIND["sync"]:
            self._wait(event, lane)
        elif kind == KIND["free"]:
            self._free_waits(event)
        elif kind in event_kinds.WORK:
            return self._work(event, kind, lane)
        return None

    def _wait(self, event: Any, lane: Lane) -> None:
        if event["src"]:
            self._learn(self._events.get(int(event["src"]), {}))
        elif event["stream"]:
            self._learn(self._before(lane))
        else:
            self._learn(_joined(self._lanes.values()))

    def _learn(self, clock: Clock) -> None:
        self._host = _joined([self._host, clock])

    def _free_waits(self, event: Any) -> None:
        """A free waits for the device, unless it is one in a stream."""
        if "Async" not in (self._process.call(int(event["call"])) or "Async"):
            self._learn(_joined(self._lanes.values()))

    def _work(self, event: Any, kind: int, lane: Lane) -> Call | None:
        if kind == KIND["mem-op"]:
            return self._mem_op(event, lane)
        if kind == KIND["graph-launch"]:
            self._graph_waits(event, lane)
        call = self._submit(event)
        if kind == KIND["graph-launch"]:
            for node in self._nodes(event, "event-record"):
                self._events[int(node["src"])] = self._lanes[lane]
        with_host = event["flags"] & (HOST_DST | HOST_SRC) and event["flags"] & SYNC_COPY
        if kind == KIND["copy"] and with_host:  # others return before they are over
            self._learn(self._lanes[lane])
        return call

    def _mem_op(self, event: Any, lane: Lane) -> Call | None:
        """Streams tell each other by values, too: a wait comes after all that wrote there."""
        if "Wait" in (self._process.call(int(event["call"])) or ""):
            written = self._values.get(int(event["src"]), {})
            self._set(lane, _joined([self._before(lane), written]))
            return None
        call = self._submit(event)
        address = int(event["dst"])
        self._values[address] = _joined([self._values.get(address, {}), self._lanes[lane]])
        return call

    def _graph_waits(self, event: Any, lane: Lane) -> None:
        clocks = [self._events.get(int(n["src"]), {}) for n in self._nodes(event, "event-wait")]
        self._set(lane, _joined([self._before(lane), *clocks]))

    def _nodes(self, event: Any, kind: str) -> Array:
        number, seq = int(event["id"]), int(event["seq"])
        known = self._process.graphs
        if number >= len(known) or not known.known(number, seq):
            return np.empty(0, layout.EVENT)
        nodes = known.nodes(number, seq)
        return np.asarray(nodes[nodes["kind"] == graphs.KIND[kind]])


def _joined(clocks: Any) -> Clock:
    out: Clock = {}
    for clock in clocks:
        if not out:
            out = dict(clock)
            continue
        for lane, number in clock.items():
            if out.get(lane, 0) < number:
                out[lane] = number
    return out
