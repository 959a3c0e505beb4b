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
from ttanalyze.verbs.check.findings import Call, Memory
from ttanalyze.verbs.check.naming import memory_of
from ttanalyze.verbs.check.session import Session
from ttanalyze.verbs.check.work import Work, work_on


@dataclass(frozen=True)
class Origin:
    """Where a value comes from.

    Attributes:
        memory: The memory that nobody had written.
        calls: The calls that passed it on, in their order.
    """

    memory: list[Memory]
    calls: list[Call]


FILLED = "filled", {"fill": "pattern:1"}
ZONED = "zoned", {"zones": "256"}


def sources(
    session: Session,
    looked: tuple[str, dict[str, Any]],
    work: Work,
    condition: Condition,
    sighting: Sighting,
) -> Origin | None:
    """Records again with other contents of new memory.

    Args:
        session: The session.
        looked: The name and the options of the recording, which has zeros in new memory.
        work: The launch, or the kernel of a graph, that made the value in that recording.
        condition: What the value fulfils.
        sighting: The value.

    Returns:
        The memory that the launch read and that nobody had written, or that earlier calls had
        passed on to it, if the value is not there in the other recording and all other memory of
        the launch was the same. Else None.
    """
    try:
        same = _without(session, looked, work.process, condition, sighting, *FILLED)
        return None if same is None else _origin(same, work, sighting.hits[0].region)
    except Error as e:
        session.say(f"whether {condition.text} comes from uninitialised memory is not known: {e}")
        return None


def outside(
    session: Session,
    looked: tuple[str, dict[str, Any]],
    work: Work,
    condition: Condition,
    sighting: Sighting,
) -> list[guard.Reached] | None:
    """Records again with other bytes around allocations, and in place of freed ones.

    Args:
        session: The session.
        looked: The name and the options of the recording, which has no zones.
        work: The launch, or the kernel of a graph, that made the value in that recording.
        condition: What the value fulfils.
        sighting: The value.

    Returns:
        None if the value is also in the other recording, or memory of the launch differed. Else the
        allocations that it may have left: freed ones, or those with the nearest end first.
    """
    try:
        same = _without(session, looked, work.process, condition, sighting, *ZONED)
        if same is None or not _alike(same, work):
            return None
    except Error as e:
        session.say(f"whether {condition.text} comes from out of bounds is not known: {e}")
        return None
    uses = kernel_uses(open_run(session.used[looked[0]].run), work.process, [])
    found = guard.reached(work.process, work.seq, uses, every=True, node=work.node)
    read = [one for one in found if one.mode != WRITES] or found
    return [one for one in read if one.freed == read[0].freed]


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


def _origin(same: Same, work: Work, result: int, own: bool = True) -> Origin | None:
    """The memory of a launch with bytes that nobody wrote, if no other bytes differ but those that
    earlier calls made of such memory. Memory that is new since the epoch before is looked at after
    the launch. The region with the result counts only if no other memory does, and if `own`.
    """
    found: dict[int, Memory] = {}
    earlier: list[Origin] = []
    for region in work.regions():
        at = work.found_in(region)
        sorts = None if at is None else fills.sorts(same, at, region)
        if sorts is None and region == result:
            continue
        sorts = sorts or fills.sorts(same, work.epoch, region)
        if sorts is None:
            return None
        if sorts.copied.count or sorts.computed.count:
            origin = None if at is None else _made(same, region, at, sorts)
            if origin is None:
                return None
            earlier.append(origin)
        elif sorts.unwritten.count:
            first, count = sorts.unwritten.first, sorts.unwritten.count
            found[region] = memory_of(work.process, region, first, count, work.seq)
    direct = [one for region, one in found.items() if region != result]
    if not direct and earlier:
        sources = {one.region: one for origin in earlier for one in origin.memory}
        calls = {(one.process, one.seq): one for origin in earlier for one in origin.calls}
        return Origin(list(sources.values()), [calls[key] for key in sorted(calls)])
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
    if before is not None:  # an epoch in a graph reads some regions
        context = int(process.epochs["context"][epoch])
        before = process.coverage.until(before, context, region)
    firsts = [one.first for one in (sorts.copied, sorts.computed) if one.first is not None]
    part = min(firsts), min(firsts) + 1
    makers = suspects(process, region, part, before, epoch)
    if makers.count != 1:
        return None
    maker = work_on(process, makers.listed[0].seq, region, before, epoch)
    # Random numbers in new memory differ, too: what the call overwrites says nothing.
    origin = None if maker is None else _origin(same, maker, region, own=False)
    if maker is None or origin is None:
        return None
    return Origin(origin.memory, [*origin.calls, maker.call()])


def _alike(same: Same, work: Work) -> bool:
    """Whether all memory that a launch found was the same in both runs. Memory that is new since
    the epoch before holds the same zeros.
    """
    for region in work.regions():
        if region not in same.regions:
            return False
        at = work.found_in(region)
        sorts = None if at is None else fills.sorts(same, at, region)
        if sorts is not None and (sorts.unwritten.count or sorts.copied.count):
            return False
        if sorts is not None and sorts.computed.count:
            return False
    return True
