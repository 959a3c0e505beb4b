"""Writes of the host to page-locked memory that an asynchronous copy still has to read.

The recorder says between which calls such memory changed (--host-writes). The host wrote it if no
work of the device can have done so, and too early if it did not know that the copy was complete.
"""

from __future__ import annotations

from ttanalyze.core.order import COPY, GRAPH_LAUNCH, LAUNCH_HOST, MEM_OP, Call, Clock, Event, Order
from ttanalyze.core.reach import HOST_KINDS, READS, SET, WRITES, Access
from ttanalyze.format import graphs, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process

SOURCE_CHANGE = KIND["source-change"]
SHARED_KINDS = (*HOST_KINDS, layout.REGION_KINDS.index("managed"))
NODE_HOST = graphs.KIND["host"]
HOST_LANE = -1  # of the host's writes


class HostWrites:
    """Takes the calls of a process and the changes that the recorder saw.

    copies: by seq, those whose memory changes: the call, what the host knew then, and what it
    reads. writers: work that may write the host's memory: its last number by row, bytes and lane.
    functions: the same for work that may do anything there, by lane. tellers: by lane, the last
    work that may tell the host something by a value in its memory.
    """

    def __init__(self, process: Process, order: Order) -> None:
        columns = process.event_columns("kind", "src")
        self._changing = set(columns["src"][columns["kind"] == SOURCE_CHANGE].tolist())
        self._order, self._graphs = order, process.graphs
        self._kinds = process.regions.birth["kind"]
        self._period = 0
        self._begin()

    def _begin(self) -> None:
        self._copies: dict[int, tuple[Call, Clock, Access]] = {}
        self._writers: dict[tuple[int, int, int, int], int] = {}
        self._functions: dict[int, int] = {}
        self._tellers: dict[int, Call] = {}

    def take(self, call: Call, accesses: list[Access]) -> None:
        """Takes a call, and what it reaches."""
        if not self._changing:
            return
        if self._period != self._order.period:
            self._period = self._order.period
            self._begin()
        event = call.event
        for access in accesses:
            kind = self._kinds[access.row]
            if access.mode != READS and kind in SHARED_KINDS:
                self._writers[access.row, access.low, access.end, call.lane] = call.number
                if event.kind not in (COPY, SET):
                    self._tellers[call.lane] = call
            elif event.seq in self._changing and kind in HOST_KINDS:
                self._copies[event.seq] = call, self._order.host, access
        if self._may_do_anything(event):
            self._functions[call.lane] = call.number

    def _may_do_anything(self, event: Event) -> bool:
        if event.kind == GRAPH_LAUNCH:
            known = event.id < len(self._graphs) and self._graphs.known(event.id, event.seq)
            nodes = self._graphs.nodes(event.id, event.seq)["kind"] if known else ()
            return not known or NODE_HOST in nodes
        return event.kind == LAUNCH_HOST or (event.kind == MEM_OP and not event.dst)

    def changed(self, event: Event) -> tuple[Call, Access, Call, Access, bool] | None:
        """Returns the copy, what it reads, the write of the host, what it writes, and whether the
        host surely wrote there without knowing that the copy was complete. None if it knew.
        """
        order, found = self._order, self._copies.get(event.src)
        if found is None or order.period != self._period:
            return None
        copy, known, read = found
        if order.host.get(copy.lane, 0) >= copy.number:
            return None
        low = read.low + event.dst - copy.event.src
        high = min(low + event.bytes, read.high)
        if not read.low <= low < high:
            return None
        by_device = any(
            row == read.row and first < high and low < end and known.get(lane, 0) < number
            for (row, first, end, lane), number in self._writers.items()
        )
        sure = not (
            by_device
            or any(known.get(lane, 0) < number for lane, number in self._functions.items())
            or any(teller.after(copy) for teller in self._tellers.values())
        )
        write = Call(event, HOST_LANE, 0, order.host, order.period)
        reach = read._replace(low=low, high=high, end=high)
        return copy, reach, write, reach._replace(mode=WRITES), sure
