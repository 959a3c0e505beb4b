"""The events that order threads, from the records of what synchronises.

A thread gives what it knows to an object, or takes what an object has: a phase of a barrier, the
address of a flag, an mbarrier. A record precedes its instruction. So one that waits takes just
before the next record of its warp: by then all that it waited for have their records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.race.exact.epochs import Barriers
from ttanalyze.verbs.race.exact.model import (
    ALL_LANES,
    NO_ADDRESS,
    WARP,
    Access,
    Launch,
    Operation,
    Sync,
)
from ttanalyze.verbs.race.exact.suspects import Touched

Keys = Sequence[Hashable]


class Act(Enum):
    """What an event does. Fenced: what was known at the last fence; later: at the next one."""

    GIVE = auto()
    TAKE = auto()
    FENCE = auto()
    GIVE_FENCED = auto()
    TAKE_LATER = auto()
    COPY = auto()


@dataclass(frozen=True)
class Event:
    """place: twice that of its record, or one less than twice that of the next record."""

    place: int
    act: Act
    warp: int
    mask: int
    keys: Keys = ()
    level: int = 0


@dataclass(frozen=True)
class Events:
    """Events in order, and the warps that have some."""

    listed: Sequence[Event]
    warps: Array


def flags(launch: Launch, found: Barriers) -> Array:
    """Returns the records that can order threads through the memory that they access.

    They release or acquire, or they are strong or atomic, and some warp uses the memory in such a
    way behind a fence.
    """
    orders = np.zeros(len(launch.access), bool)
    for number, operation in launch.operations.items():
        orders[number] = operation.release or operation.acquire
    plain = ~launch.strong & (launch.access != Access.ATOMIC)
    may = (orders | ~plain) & (launch.access != Access.NONE) & (launch.sync == Sync.NONE)
    records = np.flatnonzero(may[launch.instruction] & (launch.row != NO_ADDRESS))
    fenced = np.zeros(int(launch.gwarp.max(initial=0)) + 1, bool)
    kind = launch.sync[launch.instruction[found.records]]
    fenced[launch.gwarp[found.records[kind == Sync.FENCE]]] = True
    keep = orders[launch.instruction[records]] | fenced[launch.gwarp[records]]
    if not keep.any():
        return records[:0]
    used = np.unique(Touched(launch, records[keep]).granule)
    rest = Touched(launch, records[~keep])
    also = rest.records[np.unique(rest.record[np.isin(rest.granule, used)])]
    return np.union1d(records[keep], also)


def of_blocks(
    launch: Launch, found: Barriers, flagged: Array, blocks: Array, lenient: bool
) -> Events:
    """Returns the events of some blocks. lenient: a flag that is read needs no fence behind it."""
    wanted = np.isin(launch.block[found.records], blocks)
    flagged = flagged[np.isin(launch.block[flagged], blocks)]
    copies = np.flatnonzero(launch.copy[launch.instruction])
    copies = copies[np.isin(launch.block[copies], blocks)]
    records = np.unique(np.concatenate([found.records[wanted], flagged, copies]))
    made = _Made(launch, found, lenient)
    following = _following(launch, records)
    once = ~_polled(launch, records, following)
    records, following = records[once], following[once]
    listed = [
        event
        for record, after in zip(records.tolist(), following.tolist(), strict=True)
        for event in made.events(record, 2 * after - 1)
    ]
    listed.sort(key=lambda event: event.place)
    return Events(listed, np.unique(launch.gwarp[records]))


def _polled(launch: Launch, records: Array, following: Array) -> Array:
    """Returns which records only wait, and do so again next: what they take, the last one takes."""
    number = launch.instruction[records]
    waits = (launch.access[number] == Access.LOAD) | (launch.sync[number] == Sync.MBARRIER_WAIT)
    at = np.flatnonzero(waits & (following < len(launch.instruction)))
    one, two = records[at], following[at]
    out = np.zeros(len(records), bool)
    out[at] = (launch.row[one] < 0) & (launch.row[one] == launch.row[two])
    for column in (launch.instruction, launch.mask, launch.base, launch.stride):
        out[at] &= column[one] == column[two]
    return out


def _following(launch: Launch, records: Array) -> Array:
    """Returns for each record the next one of its warp with a lane of it; else one past the end."""
    warps = np.unique(launch.gwarp[records])
    known = np.flatnonzero(np.isin(launch.gwarp, warps))
    known = known[np.argsort(launch.gwarp[known], kind="stable")]
    keys = launch.gwarp[known].astype(np.uint64) << np.uint64(32) | known.astype(np.uint64)
    own = launch.gwarp[records].astype(np.uint64) << np.uint64(32) | records.astype(np.uint64)
    at = np.searchsorted(keys, own) + 1
    out = np.full(len(records), len(launch.instruction), np.int64)
    open_ = np.arange(len(records))
    while len(open_):
        open_ = open_[at[open_] < len(known)]
        after = known[at[open_]]
        same = launch.gwarp[after] == launch.gwarp[records[open_]]
        open_, after = open_[same], after[same]
        meets = (launch.mask[after] & launch.mask[records[open_]]) != 0
        out[open_[meets]] = after[meets]
        open_ = open_[~meets]
        at[open_] += 1
    return out


@dataclass
class _Phase:
    """The phase that a barrier is in, and the threads that have arrived."""

    number: int = 0
    threads: int = 0
    lanes: int = 0


@dataclass
class _Made:
    """Makes the events of one record after the other."""

    launch: Launch
    found: Barriers
    lenient: bool
    phases: dict[Hashable, _Phase] = field(default_factory=lambda: defaultdict(_Phase))
    arrived: dict[Hashable, Array] = field(
        default_factory=lambda: defaultdict(lambda: np.zeros(WARP, np.int64))
    )

    def events(self, record: int, after: int) -> Iterator[Event]:
        launch = self.launch
        operation = launch.operations[int(launch.instruction[record])]
        warp, mask = int(launch.gwarp[record]), int(launch.mask[record])
        block = int(launch.block[record])
        match operation.sync:
            case Sync.BARRIER | Sync.BARRIER_ARRIVE:
                keys: Keys = (self._barrier(record, operation, block, warp, mask),)
                yield Event(2 * record, Act.GIVE, warp, mask, keys)
                if operation.sync == Sync.BARRIER:
                    yield Event(after, Act.TAKE, warp, mask, keys)
            case Sync.WARP:
                keys = (self._met(record, warp, mask),)
                yield Event(2 * record, Act.GIVE, warp, mask, keys)
                yield Event(after, Act.TAKE, warp, mask, keys)
            case Sync.FENCE:
                yield Event(2 * record, Act.FENCE, warp, mask, level=operation.scope)
            case Sync.CLUSTER_ARRIVE | Sync.CLUSTER_WAIT:
                wait = operation.sync == Sync.CLUSTER_WAIT
                number = self._ordinal(("cluster", wait, warp), mask)
                keys = (("cluster", self._cluster(block), number),)
                place, act = (after, Act.TAKE) if wait else (2 * record, Act.GIVE)
                yield Event(place, act, warp, mask, keys)
            case Sync.COPY_WAIT:
                for lane in _lanes(mask):
                    key = ("copies", warp, lane)
                    yield Event(after, Act.TAKE, warp, 1 << lane, (key,))
            case Sync.MBARRIER_ARRIVE | Sync.MBARRIER_WAIT:
                yield from self._mbarrier(record, operation, after)
            case _:
                pass
        if operation.copy and operation.sync == Sync.NONE:
            for lane in _lanes(mask):
                key = ("copies", warp, lane)
                yield Event(2 * record, Act.COPY, warp, 1 << lane, (key,))
        elif operation.access != Access.NONE and operation.sync == Sync.NONE:
            yield from self._flag(record, operation, after)

    def _cluster(self, block: int) -> int:
        return int(self.launch.cluster_of(np.array([block]))[0])

    # ---- barriers ----

    def _barrier(
        self, record: int, operation: Operation, block: int, warp: int, mask: int
    ) -> Hashable:
        """Returns the phase of the barrier of a record."""
        at = int(np.searchsorted(self.found.records, record))
        count, number = int(self.found.count[at]), int(self.found.number[at])
        if count == 0 or (self.found.whole[at] and not self.found.uneven[block]):
            return "barrier", block, self._ordinal(("barrier", warp), mask)
        if count < 0 or number < 0:
            return "barrier", block, "unknown"
        phase = self.phases["barrier", block, number]
        key = ("barrier", block, number, phase.number)
        everyone = (int(self.found.users[warp]) & ~mask) == 0
        phase.threads += WARP if everyone else mask.bit_count()
        if phase.threads >= count:
            phase.number, phase.threads = phase.number + 1, 0
        return key

    def _ordinal(self, key: Hashable, mask: int) -> int:
        """Returns how often these lanes were here before, and counts them."""
        counts, lanes = self.arrived[key], _lanes(mask)
        number = int(counts[lanes].max())
        counts[lanes] = number + 1
        return number

    def _met(self, record: int, warp: int, mask: int) -> Hashable:
        """Returns the meeting of lanes of a warp: they may arrive in several records."""
        members = int(self.found.number[np.searchsorted(self.found.records, record)])
        members = mask if members < 0 else members & ALL_LANES
        phase = self.phases["warp", warp, members]
        if phase.lanes & mask:
            phase.number, phase.lanes = phase.number + 1, 0
        phase.lanes |= mask
        key = ("warp", warp, members, phase.number)
        if phase.lanes == members:
            phase.number, phase.lanes = phase.number + 1, 0
        return key

    # ---- memory ----

    def _mbarrier(self, record: int, operation: Operation, after: int) -> Iterator[Event]:
        warp, cluster = (
            int(self.launch.gwarp[record]),
            self._cluster(int(self.launch.block[record])),
        )
        for address, mask in self._places(record, operation):
            wait = operation.sync == Sync.MBARRIER_WAIT
            one: Hashable = ("mbarrier", address)
            every, unknown = ("mbarriers", cluster), ("mbarrier", None, cluster)
            keys: Keys = [one, unknown] if wait else [one, every]
            if address is None:
                keys = [every] if wait else [every, unknown]
            place = after if wait else 2 * record
            act = Act.COPY if operation.copy else Act.TAKE if wait else Act.GIVE
            yield Event(place, act, warp, mask, keys)

    def _flag(self, record: int, operation: Operation, after: int) -> Iterator[Event]:
        launch = self.launch
        warp, block = int(launch.gwarp[record]), int(launch.block[record])
        writes = operation.access != Access.LOAD
        reads = operation.access != Access.STORE and operation.returns
        for address, mask in self._places(record, operation):
            scopes = (("block", block), ("cluster", self._cluster(block)), ("device", 0))
            keys = [("flag", address, scope) for scope in scopes[: operation.scope + 1]]
            if writes:
                act = Act.GIVE if operation.release else Act.GIVE_FENCED
                yield Event(2 * record, act, warp, mask, keys)
            if reads:
                now = operation.acquire or (self.lenient and not operation.release)
                act = Act.TAKE if now else Act.TAKE_LATER
                yield Event(after, act, warp, mask, keys)

    def _places(self, record: int, operation: Operation) -> Iterator[tuple[int | None, int]]:
        """Yields each address of a record with the lanes that use it; None if it is unknown."""
        launch, mask = self.launch, int(self.launch.mask[record])
        if operation.copy or launch.row[record] == NO_ADDRESS:
            yield None, mask
            return
        addresses = launch.addresses(np.array([record]))[0].tolist()
        found: dict[int, int] = defaultdict(int)
        for lane in _lanes(mask):
            found[addresses[lane]] |= 1 << lane
        yield from found.items()


def _lanes(mask: int) -> list[int]:
    return [lane for lane in range(WARP) if mask >> lane & 1]
