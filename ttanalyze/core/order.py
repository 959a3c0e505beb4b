"""The order of calls on the device: by streams, events, graphs and waits of the host.

Invariant: if two calls are reported as unordered, no recorded call orders them. What the host knows
is taken to be known in all its threads, because communication between threads is not recorded. A
stream whose creation was not recorded waits for the legacy default stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ttanalyze.format import event_kinds, graphs, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
SYNC_COPY = layout.constant("TT_EVENTF_SYNC_COPY")
HOST_DST = layout.constant("TT_EVENTF_HOST_DST")
HOST_SRC = layout.constant("TT_EVENTF_HOST_SRC")
DESTROY = layout.constant("TT_EVENTF_DESTROY")
LEGACY, PER_THREAD = 1, 2  # numbers of streams
NON_BLOCKING = 1
MOST = 20_000  # calls that are looked at
ALLOC, FREE, COPY, MEM_OP = (KIND[name] for name in ("alloc", "free", "copy", "mem-op"))
GRAPH_LAUNCH, LAUNCH_HOST = KIND["graph-launch"], KIND["launch-host"]

Clock = dict[int, int]  # the number of finished calls of each lane; immutable, as calls share it
Point = tuple[Clock, int, int]  # what comes before a call, its lane and its number there


class Event(NamedTuple):
    """The members of a tt_event that matter here, as Python numbers."""

    seq: int
    kind: int
    call: int
    thread: int
    result: int
    context: int
    flags: int
    stream: int
    dst: int
    src: int
    bytes: int
    id: int
    shared: int
    params: int
    params_size: int
    stack: int
    grid: list[int]
    block: list[int]
    cluster: list[int]


def plain(records: Array) -> Iterator[Event]:
    """Returns tt_event records as Event objects."""
    columns = (records[name].tolist() for name in Event._fields)
    return map(Event._make, zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class Call:
    """A piece of work.

    number: its position in its lane, from 1. clock: what comes before it. period: the number of
    moments before it at which all work was complete.
    """

    event: Event
    lane: int
    number: int
    clock: Clock
    period: int

    def after(self, other: Call) -> bool:
        """Returns whether this call runs after the other has ended."""
        if self.period != other.period:
            return self.period > other.period
        if self.lane == other.lane:
            return self.number > other.number
        return self.clock.get(other.lane, 0) >= other.number


def unordered(a: Call, b: Call) -> bool:
    """Returns whether nothing orders two calls."""
    return a is not b and not a.after(b) and not b.after(a)


def calls_between(process: Process, after: int, until: int) -> list[Call]:
    """Returns the work with seq in (after, until], in the order of calls, at most the last MOST.

    Two of these calls can be ordered only by calls between them and by a wait before them for a
    value that is written between them, so no other earlier calls matter.
    """
    order, calls = Order(process), []
    for event in plain(process.events_between(min(after, _first_wait(process) - 1), until)):
        call = order.take(event)
        if call is not None and event.kind in event_kinds.WORK and event.seq > after:
            calls.append(call)
    return calls[-MOST:]


def _first_wait(process: Process) -> int:
    """The sequence number of the first wait of a stream for a value, NO_ID if there is none."""
    columns = process.event_columns("seq", "kind", "call")
    made = columns["kind"] == MEM_OP
    waits = [
        call for call in np.unique(columns["call"][made]) if "Wait" in (process.call(call) or "")
    ]
    found = columns["seq"][made & np.isin(columns["call"], waits)]
    return int(found.min()) if len(found) else layout.NO_ID


@dataclass(slots=True)
class _Lane:
    """The work of a stream in order. host: the part of the host's knowledge that it has."""

    index: int
    context: int
    stream: int
    waits: bool  # for the legacy default stream
    number: int = 0
    clock: Clock = field(default_factory=dict)
    host: int = 0

    @property
    def point(self) -> Point:
        return self.clock, self.index, self.number


class Order:
    """Takes the events of a process by seq, and returns for each piece of work what comes before
    it.

    period: how often all work was complete so far. host: the work that the host knows to be
    complete. rumour: work that it may know besides, from its host functions. waits: by address, the
    first and the last wait of each lane for a value there. written: the addresses that streams
    wrote values to.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._free = _streams_that_do_not_wait(process)
        self._links: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        self._calls: dict[int, str] = {}
        self.period = 0
        self.written: set[int] = set()
        self._begin()

    def _begin(self) -> None:
        self.host: Clock = {}
        self.rumour: Clock = {}
        self.waits: dict[int, dict[int, tuple[int, int]]] = {}
        self._version = 0  # of what the host knows
        self._lanes: dict[tuple[int, int, int], _Lane] = {}
        self._by_index: list[_Lane] = []
        self._of_context: dict[int, list[_Lane]] = {}
        self._blocking: dict[int, list[_Lane]] = {}
        self._legacy: dict[int, _Lane] = {}
        self._events: dict[int, Point] = {}
        self._values: dict[int, list[Point]] = {}
        self._graphs: dict[int, Point] = {}

    # ---- clocks ----

    def _lane(self, event: Event) -> _Lane:
        thread = event.thread if event.stream == PER_THREAD else 0
        key = event.context, event.stream, thread
        lane = self._lanes.get(key)
        if lane is None:
            waits = event.stream != LEGACY and event.stream not in self._free
            lane = _Lane(len(self._lanes), event.context, event.stream, waits)
            self._lanes[key] = lane
            self._by_index.append(lane)
            self._of_context.setdefault(event.context, []).append(lane)
            if waits:
                self._blocking.setdefault(event.context, []).append(lane)
            if event.stream == LEGACY:
                self._legacy[event.context] = lane
        return lane

    def _next(self, event: Event, points: Iterable[Point] = ()) -> _Lane:
        """Adds an event to its lane. Returns the lane, and what the event waits for."""
        lane = self._lane(event)
        clock = lane.clock
        if lane.host != self._version:
            clock, lane.host = _joined(clock, self.host), self._version
        if lane.waits:
            legacy = self._legacy.get(lane.context)
            if legacy is not None:
                clock = _after(clock, legacy.point)
        elif lane.stream == LEGACY:
            for other in self._blocking.get(lane.context, ()):
                clock = _after(clock, other.point)
        for point in points:
            clock = _after(clock, point)
        lane.clock = clock
        lane.number += 1
        return lane

    def _submit(self, event: Event, points: Iterable[Point] = ()) -> Call:
        lane = self._next(event, points)
        return Call(event, lane.index, lane.number, lane.clock, self.period)

    def _learn(self, points: Iterable[Point]) -> None:
        known = self.host
        for point in points:
            known = _after(known, point)
        if known is not self.host:
            self.host = known
            self._version += 1

    def _wait_for_all(self, context: int) -> None:
        """The host waits for a context. If all work is complete, earlier work no longer matters."""
        self._learn(lane.point for lane in self._of_context.get(context, ()))
        if all(self.host.get(lane.index, 0) >= lane.number for lane in self._lanes.values()):
            self.period += 1
            self._begin()

    # ---- calls ----

    def take(self, event: Event) -> Call | None:
        """Returns the call if the event is work, or a stream-ordered allocation or free."""
        if event.result or event.flags & CAPTURING:
            return None
        handler = _HANDLERS.get(event.kind)
        return None if handler is None else handler(self, event)

    def name(self, event: Event) -> str:
        """Returns the name of the driver call, "" if it is unknown."""
        if event.call not in self._calls:
            self._calls[event.call] = self._process.call(event.call) or ""
        return self._calls[event.call]

    def _record(self, event: Event) -> None:
        self._events[event.src] = self._next(event).point

    def _wait(self, event: Event) -> None:
        recorded = self._events.get(event.src)
        self._next(event, () if recorded is None else (recorded,))

    def _sync(self, event: Event) -> None:
        if event.src:
            recorded = self._events.get(event.src)
            self._learn(() if recorded is None else (recorded,))
        elif event.stream:
            self._learn((self._next(event).point,))
        else:
            self._wait_for_all(event.context)

    def _context(self, event: Event) -> None:
        if event.flags & DESTROY:
            self._wait_for_all(event.context)

    def _free_memory(self, event: Event) -> Call | None:
        """A free waits for the device, unless it is stream-ordered."""
        if "Async" not in (self.name(event) or "Async"):
            self._wait_for_all(event.context)
            return None
        return self._submit(event) if event.stream else None

    def _allocate(self, event: Event) -> Call | None:
        return self._submit(event) if event.stream and "Async" in self.name(event) else None

    def _work(self, event: Event) -> Call:
        return self._submit(event)

    def _host_function(self, event: Event) -> Call:
        """A host function. What it tells other threads is not recorded."""
        call = self._submit(event)
        self.rumour = _after(self.rumour, (call.clock, call.lane, call.number))
        return call

    def _copy(self, event: Event) -> Call:
        call = self._submit(event)
        if event.flags & (HOST_DST | HOST_SRC) and event.flags & SYNC_COPY:
            self._learn(((call.clock, call.lane, call.number),))  # others return before
        return call

    def _mem_op(self, event: Event) -> Call | None:
        """A write of a value, or a wait for one, by a stream.

        A wait comes after all earlier writes to the address, and later work of its stream also
        after later writes, unless the host knows before them that the wait is over. What a batch
        does is not recorded: it has address 0 and comes after all.
        """
        values, batch = self._values, not event.dst and not event.src
        if batch:
            told = [point for points in values.values() for point in points]
        else:
            told = values.get(0, []) + values.get(event.src, [])
        if "Wait" in self.name(event):
            lane = self._next(event, told)
            lanes = self.waits.setdefault(event.src, {})
            lanes[lane.index] = lanes.get(lane.index, (lane.number,))[0], lane.number
            return None
        call = self._submit(event, told if batch else ())
        point = call.clock, call.lane, call.number
        values[event.dst] = [p for p in values.get(event.dst, []) if p[1] != call.lane] + [point]
        self.written.add(event.dst)
        for index, (_, last) in self.waits.get(event.dst, {}).items():
            if index != call.lane and self.host.get(index, 0) < last:
                lane = self._by_index[index]
                lane.clock = _after(lane.clock, point)
                lane.number += 1
        return call

    def _graph(self, event: Event) -> Call:
        """A graph launch. Launches of one executable graph do not overlap."""
        waited, recorded = self._links_of(event)
        points = [self._events[handle] for handle in waited if handle in self._events]
        if event.id in self._graphs:
            points.append(self._graphs[event.id])
        call = self._submit(event, points)
        point = call.clock, call.lane, call.number
        if event.id != layout.NO_ID:
            self._graphs[event.id] = point
        self._events |= dict.fromkeys(recorded, point)
        return call

    def _links_of(self, event: Event) -> tuple[list[int], list[int]]:
        """Returns the events that a graph waits for, and those that it records."""
        known = self._process.graphs
        if event.id >= len(known) or not known.known(event.id, event.seq):
            return [], []
        key = event.id, known.state(event.id, event.seq)
        if key not in self._links:
            nodes = known.nodes(event.id, event.seq)
            waited, recorded = (
                nodes["src"][nodes["kind"] == graphs.KIND[kind]].tolist()
                for kind in ("event-wait", "event-record")
            )
            self._links[key] = waited, recorded
        return self._links[key]


_HANDLERS: dict[int, Any] = {
    **dict.fromkeys(event_kinds.WORK, Order._work),
    KIND["event-record"]: Order._record,
    KIND["event-wait"]: Order._wait,
    KIND["sync"]: Order._sync,
    KIND["query"]: Order._sync,
    KIND["context"]: Order._context,
    ALLOC: Order._allocate,
    FREE: Order._free_memory,
    COPY: Order._copy,
    MEM_OP: Order._mem_op,
    GRAPH_LAUNCH: Order._graph,
    LAUNCH_HOST: Order._host_function,
}


def _streams_that_do_not_wait(process: Process) -> set[int]:
    columns = process.event_columns("kind", "stream", "result", "bytes")
    made = (columns["kind"] == KIND["stream-create"]) & (columns["result"] == 0)
    made &= columns["bytes"] & NON_BLOCKING != 0
    return set(np.unique(columns["stream"][made]).tolist())


def _after(clock: Clock, point: Point) -> Clock:
    """Returns the clock with a call and everything before it."""
    known, lane, number = point
    if clock.get(lane, 0) >= number:
        return clock
    out = dict(_joined(clock, known))
    out[lane] = number
    return out


def _joined(one: Clock, other: Clock) -> Clock:
    if not one or not other:
        return one or other
    out = dict(one)
    for lane, number in other.items():
        if out.get(lane, 0) < number:
            out[lane] = number
    return out
