"""Whether a launch makes a value of memory that the program did not write, or does not own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.core import guard
from ttanalyze.core.reach import WRITES
from ttanalyze.disassembly.kernel_uses import kernel_uses
from ttanalyze.errors import Error
from ttanalyze.format import contents, open_run
from ttanalyze.format.process import Process
from ttanalyze.verbs.blame import Condition, Sighting
from ttanalyze.verbs.blame.suspects import suspects
from ttanalyze.verbs.check import fills
from ttanalyze.verbs.check.fills import Same, Sorts
from ttanalyze.verbs.check.findings import Memory
from ttanalyze.verbs.check.naming import memory_of, reached
from ttanalyze.verbs.check.session import Session


@dataclass(frozen=True)
class Origin:
    """Where a value comes from.

    Attributes:
        memory: The memory that nobody had written.
        calls: The calls that passed it on, by sequence number.
    """

    memory: list[Memory]
    calls: list[int]


FILLED = "filled", {"fill": "pattern:1"}
ZONED = "zoned", {"zones": "256"}


def sources(
    session: Session,
    looked: tuple[str, dict[str, Any]],
    process: Process,
    condition: Condition,
    sighting: Sighting,
) -> Origin | None:
    """Records again with other contents of new memory.

    Args:
        session: The session.
        looked: The name and the options of the recording, which has zeros in new memory.
        process: The process in that recording.
        condition: What the value fulfils.
        sighting: The value. A single launch may have made it.

    Returns:
        The memory that the launch read and that nobody had written, or that earlier calls had
        passed on to it, if the value is not there in the other recording and all other memory of
        the launch was the same. Else None.
    """
    try:
        same = _without(session, looked, process, condition, sighting, *FILLED)
        if same is None:
            return None
        where = sighting.since, sighting.epoch, sighting.hits[0].region
        return _origin(same, _seq(sighting), *where)
    except Error as e:
        session.say(f"whether {condition.text} comes from uninitialised memory is not known: {e}")
        return None


def outside(
    session: Session,
    looked: tuple[str, dict[str, Any]],
    process: Process,
    condition: Condition,
    sighting: Sighting,
) -> list[guard.Reached] | None:
    """Records again with other bytes around allocations, and in place of freed ones.

    Args:
        session: The session.
        looked: The name and the options of the recording, which has no zones.
        process: The process in that recording.
        condition: What the value fulfils.
        sighting: The value. A single launch may have made it.

    Returns:
        None if the value is also in the other recording, or memory of the launch differed. Else the
        allocations that it may have left: freed ones, or those with the nearest end first.
    """
    try:
        same = _without(session, looked, process, condition, sighting, *ZONED)
        if same is None or not _alike(same, sighting):
            return None
    except Error as e:
        session.say(f"whether {condition.text} comes from out of bounds is not known: {e}")
        return None
    seq = _seq(sighting)
    uses = kernel_uses(open_run(session.used[looked[0]].run), process, [])
    found = guard.reached(process, seq, uses, every=True)
    read = [one for one in found if one.mode != WRITES] or found
    return [one for one in read if one.freed == read[0].freed]


def _seq(sighting: Sighting) -> int:
    return sighting.hits[0].suspects.listed[0].seq


def _without(
    session: Session,
    looked: tuple[str, dict[str, Any]],
    process: Process,
    condition: Condition,
    sighting: Sighting,
    what: str,
    given: Mapping[str, Any],
) -> Same | None:
    """The recording and one with other options, if that has another value there."""
    name, options = looked
    run = session.record(f"{name}-{what}", **{**options, **given}).run
    found = fills.aligned([session.used[name].run, run])
    same = next((one for one in found if one.processes[0].index == process.index), None)
    return same if same is not None and _gone(same, condition, sighting) else None


def _gone(same: Same, condition: Condition, sighting: Sighting) -> bool:
    """Whether the other run has another value there."""
    hit, rows = sighting.hits[0], dict(same.epochs.tolist())
    if sighting.epoch not in rows or hit.region not in same.regions:
        return False
    first = hit.first[0] * condition.type.itemsize
    where = same.ids[1][hit.region], first, first + condition.type.itemsize
    return not condition.test(contents.read(same.processes[1], rows[sighting.epoch], *where)).any()


def _origin(
    same: Same, seq: int, before: int | None, epoch: int, result: int, own: bool = True
) -> Origin | None:
    """The memory of a call with bytes that nobody wrote, if no other bytes differ but those that
    earlier calls made of such memory. Memory that is new since the epoch before is looked at after
    the call. The region with the result counts only if no other memory does, and if `own`.
    """
    process, found = same.processes[0], dict[int, Memory]()
    earlier: list[Origin] = []
    for region in reached(process, seq):
        sorts = None if before is None else fills.sorts(same, before, region)
        if sorts is None and region == result:
            continue
        sorts = sorts or fills.sorts(same, epoch, region)
        if sorts is None:
            return None
        if sorts.copied.count or sorts.computed.count:
            origin = None if before is None else _made(same, region, before, sorts)
            if origin is None:
                return None
            earlier.append(origin)
        elif sorts.unwritten.count:
            first, count = sorts.unwritten.first, sorts.unwritten.count
            found[region] = memory_of(process, region, first, count, seq)
    direct = [one for region, one in found.items() if region != result]
    if not direct and earlier:
        sources = {one.region: one for origin in earlier for one in origin.memory}
        calls = {call for origin in earlier for call in origin.calls}
        return Origin(list(sources.values()), sorted(calls))
    memory = direct or (list(found.values()) if own else [])
    return Origin(memory, []) if memory else None


def _made(same: Same, region: int, last: int, now: Sorts) -> Origin | None:
    """Where the bytes of a region come from that depend on the contents of new memory, if a single
    call made them all.
    """
    process, before = same.processes[0], None
    row = contents.captured_row(process, region)
    epochs = same.epochs[:, 0][same.epochs[:, 0] <= last]
    for epoch in epochs[epochs >= process.regions.born[row]].tolist():
        sorts = fills.sorts(same, epoch, region)
        if sorts is not None and sorts.copied.count + sorts.computed.count:
            break
        before = epoch
    else:
        return None
    if sorts.copied.count + sorts.computed.count < now.copied.count + now.computed.count:
        return None
    if before is None and epoch != epochs[0]:
        before = int(epochs[np.searchsorted(epochs, epoch) - 1])
    firsts = [one.first for one in (sorts.copied, sorts.computed) if one.first is not None]
    part = min(firsts), min(firsts) + 1
    makers = suspects(process, region, part, before, epoch)
    if makers.count != 1:
        return None
    seq = makers.listed[0].seq
    # Random numbers in new memory differ, too: what the call overwrites says nothing.
    origin = _origin(same, seq, before, epoch, region, own=False)
    return None if origin is None else Origin(origin.memory, [*origin.calls, seq])


def _alike(same: Same, sighting: Sighting) -> bool:
    """Whether all memory that a launch found was the same in both runs. Memory that is new since
    the epoch before holds the same zeros.
    """
    for region in reached(same.processes[0], _seq(sighting)):
        if region not in same.regions:
            return False
        sorts = None if sighting.since is None else fills.sorts(same, sighting.since, region)
        if sorts is not None and (sorts.unwritten.count or sorts.copied.count):
            return False
        if sorts is not None and sorts.computed.count:
            return False
    return True
