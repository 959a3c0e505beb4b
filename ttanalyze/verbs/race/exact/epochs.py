"""Counts the barriers that a warp has passed before each record.

Of two records of a block with different counts the smaller is first, so that most pairs need no
further thought. Only barriers of all threads count here, and only where all lanes that access
memory arrive together; `clocks` knows the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.race.exact.model import WARP, Access, Launch, Sync

POSITION = np.uint64(32)


@dataclass(frozen=True)
class Barriers:
    """The barriers of a launch.

    Attributes:
        records: Records that synchronise, in the order of the trace.
        number: Number of the barrier, or mask of the lanes that meet; -1 if it is unknown.
        count: Threads that it waits for, 0 for all; -1 if it is unknown.
        whole: It is a barrier of the whole block.
        uneven: By block: some threads arrive at a whole barrier without the others of their warp.
        apart: By warp: some lanes synchronise without others of the warp.
        users: By warp: its lanes that access memory.
    """

    records: Array
    number: Array
    count: Array
    whole: Array
    uneven: Array
    apart: Array
    users: Array


def barriers(launch: Launch) -> Barriers:
    """Finds the barriers among the records."""
    kind = launch.sync[launch.instruction]
    records = np.flatnonzero(kind)
    kind = kind[records]
    number, count = _operands(launch, records)
    waits = (kind == Sync.BARRIER) | (kind == Sync.BARRIER_ARRIVE)
    all_threads = (count == 0) | (count == launch.warps * WARP)
    whole = (kind == Sync.BARRIER) & all_threads
    users = _users(launch)
    some = (users[launch.gwarp[records]] & ~launch.mask[records]) != 0
    uneven = np.zeros(len(users) // launch.warps, bool)
    uneven[launch.block[records[some & whole]]] = True
    uneven[launch.block[records[(kind == Sync.BARRIER_ARRIVE) & all_threads]]] = True
    apart = np.zeros(len(users), bool)
    apart[launch.gwarp[records[some & ((kind == Sync.WARP) | waits)]]] = True
    return Barriers(records, number, count, whole, uneven, apart, users)


def _operands(launch: Launch, records: Array) -> tuple[Array, Array]:
    """Returns the number and the count of each record that synchronises."""
    instructions = launch.instruction[records]
    number: Array = np.zeros(len(records), np.int64)
    count: Array = np.zeros(len(records), np.int64)
    for one in np.unique(instructions).tolist():
        operation = launch.operations[one]
        at = instructions == one
        known = launch.operands.get(one)
        values = ((number, operation.barrier), (count, operation.count))
        for column, (out, value) in enumerate(values):
            if value is not None:
                out[at] = value
            elif known is not None and len(known) == int(at.sum()):
                out[at] = known[:, column]
            else:
                out[at] = -1
    return number, count


def _users(launch: Launch) -> Array:
    """Returns the lanes of each warp of the launch that access memory."""
    warps = int(launch.gwarp.max()) // launch.warps * launch.warps + launch.warps
    users = np.zeros(warps, np.uint32)
    records = launch.access[launch.instruction] != Access.NONE
    np.bitwise_or.at(users, launch.gwarp[records], launch.mask[records].astype(np.uint32))
    return users


@dataclass(frozen=True)
class Epochs:
    """Which records synchronise a whole block, and which a whole warp, as sorted keys."""

    launch: Launch
    of_block: Array
    of_warp: Array

    def block(self, records: Array) -> Array:
        """Returns how many barriers of its block the warp of each record has passed."""
        return self._passed(self.of_block, records)

    def warp(self, records: Array) -> Array:
        """Returns how often the lanes of the warp have met before each record."""
        return self._passed(self.of_warp, records)

    def _passed(self, keys: Array, records: Array) -> Array:
        if not len(keys):
            return np.zeros(len(records), np.int32)
        warps = self.launch.gwarp[records].astype(np.uint64) << POSITION
        before = np.searchsorted(keys, warps | records.astype(np.uint64))
        return (before - np.searchsorted(keys, warps)).astype(np.int32)


def epochs(launch: Launch, found: Barriers) -> Epochs:
    """Returns the epochs of all warps."""
    records = found.records
    even = found.whole & ~found.uneven[launch.block[records]]
    kind = launch.sync[launch.instruction[records]]
    meets = (kind == Sync.WARP) | (kind == Sync.BARRIER)
    meets &= ~found.apart[launch.gwarp[records]]

    def keys(some: Array) -> Array:
        warps = launch.gwarp[records[some]].astype(np.uint64) << POSITION
        return np.sort(warps | records[some].astype(np.uint64))

    return Epochs(launch, keys(even), keys(meets))
