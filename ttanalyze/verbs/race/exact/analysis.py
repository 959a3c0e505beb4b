"""Races within one launch: accesses to the same byte that nothing orders.

Most pairs are ordered by the barriers of their block, or are by nothing that orders at all. Only
the rest goes through `clocks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.race.exact import clocks, events, overlaps
from ttanalyze.verbs.race.exact.epochs import Barriers, Epochs, barriers, epochs
from ttanalyze.verbs.race.exact.model import Access, Launch, Sync
from ttanalyze.verbs.race.exact.overlaps import Pairs
from ttanalyze.verbs.race.exact.suspects import suspects

LARGEST = 1 << 25  # pairs that wait for clocks
FENCE, UNKNOWN, MANY, UNTOLD = 1, 2, 3, 4
WHY = {
    FENCE: "the thread that reads the flag has no fence or acquire behind it",
    UNKNOWN: "an instruction synchronises in a way that is not modelled",
    MANY: "too many instructions synchronise to compare all",
    UNTOLD: "the code has instructions that synchronise, of which the trace has no record",
}


@dataclass
class Conflict:
    """The races between two instructions.

    Attributes:
        instructions: Their numbers, ascending.
        records, lanes, address: One race.
        count: Pairs of accesses.
        why: The reasons why it may be none, [] if it is certain.
        same_value: Both store, and always the same.
    """

    instructions: tuple[int, int]
    records: tuple[int, int]
    lanes: tuple[int, int]
    address: int
    count: int = 0
    why: set[int] = field(default_factory=set)
    certain: bool = False
    same_value: bool = True

    def reasons(self) -> list[str]:
        return [] if self.certain else [WHY[one] for one in sorted(self.why)]


def conflicts(launch: Launch) -> list[Conflict]:
    """Returns the races of a launch, one for each pair of instructions, certain ones first."""
    if not len(launch.instruction):
        return []
    found = barriers(launch)
    passed = epochs(launch, found)
    accesses = launch.accesses()
    table = _Table(launch)
    for pairs in overlaps.colliding(launch, accesses):
        table.add(pairs, 0)
    _Judge(launch, found, passed, table).judge(suspects(launch, passed, accesses))
    return sorted(
        table.conflicts.values(), key=lambda c: (c.same_value, not c.certain, c.instructions)
    )


class _Table:
    """Conflicts by their instructions."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.conflicts: dict[tuple[int, int], Conflict] = {}

    def add(self, pairs: Pairs, why: int) -> None:
        """Adds pairs that are not ordered."""
        if not len(pairs):
            return
        instruction = self._launch.instruction
        one = instruction[pairs.first].astype(np.int64)
        two = instruction[pairs.second].astype(np.int64)
        low, high = np.minimum(one, two), np.maximum(one, two)
        keys, index = np.unique(low << 32 | high, return_inverse=True)
        for i, key in enumerate(keys.tolist()):
            self._add((key >> 32, key & 0xFFFFFFFF), pairs.some(np.flatnonzero(index == i)), why)

    def _add(self, key: tuple[int, int], pairs: Pairs, why: int) -> None:
        conflict = self.conflicts.get(key)
        if conflict is None or (not why and not conflict.certain):
            at = int(np.argmin(pairs.first))
            records = int(pairs.first[at]), int(pairs.second[at])
            lanes = int(pairs.first_lane[at]), int(pairs.second_lane[at])
            made = Conflict(key, records, lanes, int(pairs.address[at]))
            if conflict is not None:
                made.count, made.same_value = conflict.count, conflict.same_value
            conflict = self.conflicts[key] = made
        conflict.count += len(pairs)
        conflict.certain |= not why
        conflict.why.add(why)
        conflict.same_value &= self._same_value(key, pairs)

    def _same_value(self, key: tuple[int, int], pairs: Pairs) -> bool:
        launch = self._launch
        if any(launch.access[one] != Access.STORE or one not in launch.values for one in key):
            return False
        if launch.size[key[0]] != launch.size[key[1]]:
            return False
        stored, places = [], []
        for records, lanes in ((pairs.first, pairs.first_lane), (pairs.second, pairs.second_lane)):
            unique, index = np.unique(records, return_inverse=True)
            places.append(launch.addresses(unique)[index, lanes])
            stored.append(self._stored(records, lanes))
        return all(np.array_equal(one, two) for one, two in (places, stored))

    def _stored(self, records: Array, lanes: Array) -> Array:
        """Returns the bytes that lanes store."""
        launch = self._launch
        kinds = launch.instruction[records]
        out = np.zeros((len(records), int(launch.size[kinds[0]])), np.uint8)
        for one in np.unique(kinds).tolist():
            own = np.flatnonzero(launch.instruction == one)
            some = np.flatnonzero(kinds == one)
            out[some] = launch.values[one][np.searchsorted(own, records[some]), lanes[some]]
        return out


class _Judge:
    """Decides which pairs are ordered."""

    def __init__(self, launch: Launch, found: Barriers, passed: Epochs, table: _Table) -> None:
        self._launch, self._found, self._passed, self._table = launch, found, passed, table
        self._block, self._warp = (np.zeros(len(launch.instruction), np.int32) for _ in range(2))
        self._flagged = events.flags(launch, found)
        kind = launch.sync[launch.instruction[found.records]]
        blocks = int(launch.block.max()) + 1
        slow = np.isin(kind, (Sync.BARRIER_ARRIVE, Sync.MBARRIER_ARRIVE, Sync.MBARRIER_WAIT))
        slow |= np.isin(kind, (Sync.CLUSTER_ARRIVE, Sync.CLUSTER_WAIT, Sync.COPY_WAIT))
        slow |= (kind == Sync.BARRIER) & ~found.whole
        own = found.records[slow]
        self._slow = np.zeros(blocks, bool)
        self._slow[launch.block[own]] = True
        self._slow[launch.block[self._flagged]] = True
        self._slow |= found.uneven[:blocks]
        self._clustered = math.prod(launch.cluster) > 1
        unclear = (kind == Sync.UNKNOWN) | ((found.count < 0) | (found.number < 0)) & np.isin(
            kind, (Sync.BARRIER, Sync.BARRIER_ARRIVE)
        )
        self._unclear = np.zeros(blocks, bool)
        self._unclear[launch.block[found.records[unclear]]] = True

    def judge(self, records: Array) -> None:
        """Adds the pairs of some records that are not ordered to the table."""
        waiting: list[Pairs] = []
        for epochs_of, column in (
            (self._passed.block, self._block),
            (self._passed.warp, self._warp),
        ):
            column[records] = epochs_of(records)
        for pairs in overlaps.pairs(self._launch, records):
            pairs = pairs.some(~self._by_barriers(pairs)).distinct()
            slow = self._needs_clocks(pairs)
            self._add(pairs.some(~slow), 0)
            if slow.any():
                waiting.append(pairs.some(slow))
            if sum(map(len, waiting)) > LARGEST:
                self._clocks(Pairs.joined(waiting))
                waiting = []
        if waiting:
            self._clocks(Pairs.joined(waiting))

    def _by_barriers(self, pairs: Pairs) -> Array:
        """Returns which pairs the barriers of the block or the meetings of the warp order."""
        launch, x, y = self._launch, pairs.first, pairs.second
        ordered = (launch.block[x] == launch.block[y]) & (self._block[x] < self._block[y])
        ordered |= (launch.gwarp[x] == launch.gwarp[y]) & (self._warp[x] < self._warp[y])
        return ordered & ~launch.copy[launch.instruction[x]]

    def _needs_clocks(self, pairs: Pairs) -> Array:
        launch = self._launch
        one, two = launch.block[pairs.first], launch.block[pairs.second]
        near = one == two
        out = near & self._slow[one]
        out |= near & self._found.apart[launch.gwarp[pairs.first]]
        out |= near & self._found.apart[launch.gwarp[pairs.second]]
        if len(self._flagged):
            out |= ~near
        elif self._clustered:
            out |= ~near & (launch.cluster_of(one) == launch.cluster_of(two))
        return out | launch.copy[launch.instruction[pairs.first]]

    def _clocks(self, pairs: Pairs) -> None:
        """Adds those of the pairs that clocks do not order."""
        try:
            left = self._unordered(pairs, lenient=False)
            certain = self._unordered(left, lenient=True) if len(self._flagged) else left
        except clocks.TooManyError:
            self._table.add(pairs, MANY)
            return
        keys = [p.first.astype(np.int64) << 32 | p.second for p in (left, certain)]
        self._add(certain, 0)
        self._table.add(left.some(~np.isin(keys[0], keys[1])), FENCE)

    def _unordered(self, pairs: Pairs, lenient: bool) -> Pairs:
        if not len(pairs):
            return pairs
        launch = self._launch
        blocks = np.unique(launch.block[np.concatenate([pairs.first, pairs.second])])
        blocks = np.union1d(blocks, launch.block[self._flagged])
        if self._clustered:
            every = np.arange(int(launch.block.max()) + 1)
            blocks = every[np.isin(launch.cluster_of(every), launch.cluster_of(blocks))]
        listed = events.of_blocks(launch, self._found, self._flagged, blocks, lenient)
        return pairs.some(~clocks.ordered(launch, listed, pairs))

    def _add(self, pairs: Pairs, why: int) -> None:
        launch = self._launch
        unclear = self._unclear[launch.block[pairs.first]]
        unclear |= self._unclear[launch.block[pairs.second]]
        near = launch.gwarp[pairs.first] == launch.gwarp[pairs.second]
        untold = near & bool(launch.untold) | ~near & bool(launch.untold - {Sync.WARP})
        self._table.add(pairs.some(~unclear & ~untold), why)
        self._table.add(pairs.some(unclear), UNKNOWN)
        self._table.add(pairs.some(untold & ~unclear), UNTOLD)
