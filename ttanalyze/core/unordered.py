"""Pairs of calls that reach the same memory, at least one of them writing, with nothing that orders
them: found in one pass over the calls of a process.

Of each piece of a region, the last call of each stream is kept that read there, and the last that
wrote. It is enough to hold a call against these: if an earlier call of a stream has no order with
it, the later one has none either. Calls that are over when a writer runs are forgotten with it:
what comes later and is not ordered with them is not ordered with the writer either.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from ttanalyze.core.host_writes import SOURCE_CHANGE, HostWrites
from ttanalyze.core.order import GRAPH_LAUNCH, MEM_OP, Call, Event, Order, plain
from ttanalyze.core.reach import WRITES, Access, Reach, Uses, certain, conflict, uses_of
from ttanalyze.core.unordered_nodes import unordered_nodes
from ttanalyze.format.files import PIECE
from ttanalyze.format.process import Process
from ttanalyze.util.progress import Progress, counted

PENDING = 10_000  # pairs that a value written later may order
CROWDED = 4096  # pieces of regions before those are joined again that the host knows to be over
KINDS = 8  # of what a lane's calls do to a piece: the mode, and whether it is known to go so far


@dataclass(frozen=True)
class Side:
    """A call, and what it does to the memory that a pair is about."""

    call: Call
    access: Access


@dataclass
class Unordered:
    """Two calls, the first of them called first. row: of process.regions. low, high: bytes of the
    region that both reach; of pointers whose reach is not known only the first. sure: how far both
    reach is known, and that one of them writes. times: how often the same happened, with calls of
    the same kernels from the same places.
    """

    first: Side
    second: Side
    row: int
    low: int
    high: int
    sure: bool = True
    times: int = 1


Identity = tuple[object, ...]
Entry = tuple[int, Call, Access]  # by lane and mode, the last one: its number, and it


def find_unordered(
    process: Process, *, every: bool = False, uses: Uses | None = None, progress: Progress = None
) -> list[Unordered]:
    """The pairs of all calls of a process, in the order of the second calls; one for each two
    kernels or copies, from the same places of the program.

    every: also those that are guesses: where pointers are into the same region, but not to the same
    place, where nothing says that one of both writes, and where functions that the device called on
    the host may have told it that the first is over. uses: what kernels do through their
    parameters, by default as their PTX says. progress: calls done and those in all.
    """
    search = _Search(process, every, uses_of(process) if uses is None else uses)
    advance = counted(progress, process.count_events() if progress else 0)
    for records in process.events_by_seq(PIECE):
        for event in plain(records):
            call = search.order.take(event)
            if call is not None:
                search.take(call)
            elif event.kind == SOURCE_CHANGE:
                search.changed(event)
        advance(len(records))
    return search.result()


class _Pieces:
    """A region, cut where calls begin and end to reach it.

    begins: of pieces, ascending. latest: by lane, the number of the last call that reached it.
    """

    def __init__(self, size: int) -> None:
        self.begins = [0]
        self.held: list[dict[int, Entry]] = [{}]
        self.latest: dict[int, int] = {}
        self.size = size

    def cut(self, low: int, high: int) -> list[dict[int, Entry]]:
        """What is held of the pieces that make up [low, high)."""
        first, stop = self._cut(low), self._cut(high)
        return self.held[first:stop]

    def _cut(self, at: int) -> int:
        if at >= self.size:
            return len(self.begins)
        i = bisect.bisect_left(self.begins, at)
        if i < len(self.begins) and self.begins[i] == at:
            return i
        self.begins.insert(i, at)
        self.held.insert(i, dict(self.held[i - 1]))
        return i

    def forget(self, over: dict[int, int]) -> None:
        """What is over for the host, and cuts between pieces that are then alike."""
        begins, held = self.begins, self.held
        self.begins, self.held = [], []
        for begin, piece in zip(begins, held, strict=True):
            left = {k: e for k, e in piece.items() if over.get(k // KINDS, 0) < e[0]}
            if not self.held or self.held[-1] != left:
                self.begins.append(begin)
                self.held.append(left)


class _Search:
    def __init__(self, process: Process, every: bool, uses: Uses) -> None:
        self.order = Order(process)
        self._process = process
        self._every = every
        self._reach = Reach(process, uses)
        self._host_writes = HostWrites(process, self.order)
        self._regions: dict[int, _Pieces] = {}
        self._period = 0
        self._crowded = CROWDED
        self._count = 0  # of pieces, about
        self._found: dict[Identity, Unordered] = {}
        self._pending: list[tuple[Unordered, set[int], set[int]]] = []
        self._graphs: set[tuple[int, int, int]] = set()

    def take(self, call: Call) -> None:
        if self._period != self.order.period:
            self._regions.clear()
            self._period, self._count = self.order.period, 0
        accesses = self._reach.of(call.event)
        self._host_writes.take(call, accesses)
        if call.event.kind == GRAPH_LAUNCH:
            self._inside(call, accesses)
        for access in dict.fromkeys(accesses):
            self._access(call, access)
        if call.event.kind == MEM_OP:
            self._written(call)
        if self._count > self._crowded:
            self._forget()

    def changed(self, event: Event) -> None:
        """Takes a change of memory that a copy reads."""
        found = self._host_writes.changed(event)
        if found is None:
            return
        copy, read, write, written, sure = found
        sure = sure and not self._waited(copy)
        if sure or self._every:
            sides = Side(copy, read), Side(write, written)
            self._add(Unordered(*sides, read.row, read.low, read.high, sure))

    # ---- memory ----

    def _access(self, call: Call, access: Access) -> None:
        region = self._regions.get(access.row)
        if region is None:
            size = int(self._process.regions.size[access.row])
            region = self._regions[access.row] = _Pieces(size)
        before = len(region.begins)
        clock, seen = call.clock, set[int]()
        after = all(
            lane == call.lane or clock.get(lane, 0) >= number
            for lane, number in region.latest.items()
        )
        reached = self._follows if after else self._reached
        reached(region, call, access, False, seen)
        if self._every and access.end > access.high:
            reached(region, call, access, True, seen)
        region.latest[call.lane] = call.number
        self._count += len(region.begins) - before

    def _follows(
        self, region: _Pieces, call: Call, access: Access, guess: bool, _: set[int]
    ) -> None:
        """Does what _reached does, for a call that runs after all calls of other lanes there."""
        key, entry = call.lane * KINDS + 2 * access.mode + guess, (call.number, call, access)
        low, high = (access.high, access.end) if guess else (access.low, access.high)
        for held in region.cut(low, high):
            if access.mode == WRITES and not guess:
                for other in [other for other in held if other // KINDS != call.lane]:
                    del held[other]
            held[key] = entry

    def _reached(
        self, region: _Pieces, call: Call, access: Access, guess: bool, seen: set[int]
    ) -> None:
        """Pieces that a call reaches for certain, or those that it may reach besides."""
        key, entry = call.lane * KINDS + 2 * access.mode + guess, (call.number, call, access)
        clock, writes = call.clock, access.mode == WRITES and not guess
        low, high = (access.high, access.end) if guess else (access.low, access.high)
        for held in region.cut(low, high):
            over = []
            for other, known in held.items():
                lane = other // KINDS
                if lane == call.lane:
                    continue
                if clock.get(lane, 0) >= known[0]:
                    over.append(other)
                elif id(known) not in seen:
                    seen.add(id(known))
                    self._meet(Side(known[1], known[2]), Side(call, access))
            if writes:
                for other in over:
                    del held[other]
            held[key] = entry

    def _forget(self) -> None:
        for row in list(self._regions):
            region = self._regions[row]
            region.forget(self.order.host)
            if region.held == [{}]:
                del self._regions[row]
        self._count = sum(len(region.begins) for region in self._regions.values())
        self._crowded = max(CROWDED, 2 * self._count)

    def _inside(self, call: Call, accesses: Sequence[Access]) -> None:
        """Nodes of the graph that a call launches."""
        known, event = self._process.graphs, call.event
        if not accesses:
            return
        at = event.id, event.seq
        key = event.id, known.state(*at), hash(tuple(accesses))
        if key in self._graphs:
            return
        self._graphs.add(key)
        nodes = known.nodes(*at), known.edges(*at), known.order(*at)
        for one, other in unordered_nodes(*nodes, accesses):
            self._meet(Side(call, one), Side(call, other))

    # ---- pairs ----

    def _meet(self, first: Side, second: Side) -> None:
        one, other = first.access, second.access
        if not conflict(one, other):
            return
        low, high = max(one.low, other.low), min(one.high, other.high)
        sure = certain(one, other)
        if self.order.rumour.get(first.call.lane, 0) >= first.call.number:
            sure = False
        if not sure and not self._every:
            return
        high = high if low < high else min(one.end, other.end)
        pair = Unordered(first, second, one.row, low, high, sure)
        if self.order.waits and first.call is not second.call and len(self._pending) < PENDING:
            waited = self._waited(first.call), self._waited(second.call)
            if any(waited):
                self._pending.append((pair, *waited))
                return
        self._add(pair)

    def _waited(self, call: Call) -> set[int]:
        """Addresses of which it waits for values, itself or by what is before it."""
        numbers = {call.lane: call.number}
        return {
            address
            for address, lanes in self.order.waits.items()
            for lane, (first, _) in lanes.items()
            if numbers.get(lane, call.clock.get(lane, 0)) >= first
        }

    def _written(self, write: Call) -> None:
        """A value that is written after one call, and that the other waited for, orders them."""
        if not self._pending:
            return
        address = write.event.dst
        self._pending = [
            (pair, by_first, by_second)
            for pair, by_first, by_second in self._pending
            if not (address in by_first and write.after(pair.second.call))
            and not (address in by_second and write.after(pair.first.call))
        ]

    def _add(self, pair: Unordered) -> None:
        identity = (*self._identity(pair.first), *self._identity(pair.second), pair.sure)
        known = self._found.setdefault(identity, pair)
        if known is not pair:
            known.times += 1

    def _identity(self, side: Side) -> Identity:
        event = side.call.event
        what = event.id if event.kind not in (MEM_OP,) else event.dst
        node = side.access.node
        return event.kind, event.call, what, event.stream, event.stack, node

    def result(self) -> list[Unordered]:
        for pair, by_first, by_second in self._pending:
            if not by_first | by_second <= self.order.written:
                pair.sure = False  # somebody else writes there, who knows when
            if pair.sure or self._every:
                self._add(pair)
        self._pending.clear()
        found = sorted(self._found.values(), key=lambda pair: pair.second.call.event.seq)
        return [pair for pair in found if pair.sure] + [pair for pair in found if not pair.sure]
