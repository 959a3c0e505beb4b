"""Whether a launch makes a value of memory that the program did not write, or does not own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttanalyze.core import guard
from ttanalyze.core.reach import WRITES
from ttanalyze.disassembly.kernel_uses import kernel_uses
from ttanalyze.errors import Error
from ttanalyze.format import contents, open_run
from ttanalyze.format.process import Process
from ttanalyze.verbs.blame import Condition, Sighting
from ttanalyze.verbs.check import fills
from ttanalyze.verbs.check.fills import Same
from ttanalyze.verbs.check.findings import Memory
from ttanalyze.verbs.check.naming import memory_of, reached
from ttanalyze.verbs.check.session import Session

FILLED = "filled", {"fill": "pattern:1"}
ZONED = "zoned", {"zones": "256"}


def sources(
    session: Session,
    looked: tuple[str, dict[str, Any]],
    process: Process,
    condition: Condition,
    sighting: Sighting,
) -> list[Memory]:
    """Records again with other contents of new memory.

    Args:
        session: The session.
        looked: The name and the options of the recording, which has zeros in new memory.
        process: The process in that recording.
        condition: What the value fulfils.
        sighting: The value. A single launch may have made it.

    Returns:
        The memory that the launch read and that nobody had written, if the value is not there in
        the other recording and all other memory of the launch was the same. Else nothing.
    """
    try:
        same = _without(session, looked, process, condition, sighting, *FILLED)
        return [] if same is None else _unwritten(same, sighting)
    except Error as e:
        session.say(f"whether {condition.text} comes from uninitialised memory is not known: {e}")
        return []


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


def _unwritten(same: Same, sighting: Sighting) -> list[Memory]:
    """The memory of a launch with bytes that nobody wrote, if no other bytes differ. Memory that is
    new since the epoch before is looked at after the launch. The region with the value counts only
    if no other memory does.
    """
    process, found = same.processes[0], dict[int, Memory]()
    before, result, seq = sighting.since, sighting.hits[0].region, _seq(sighting)
    for region in reached(process, seq):
        sorts = None if before is None else fills.sorts(same, before, region)
        if sorts is None and region == result:
            continue
        sorts = sorts or fills.sorts(same, sighting.epoch, region)
        if sorts is None or sorts.copied.count or sorts.computed.count:
            return []
        if sorts.unwritten.count:
            first, count = sorts.unwritten.first, sorts.unwritten.count
            found[region] = memory_of(process, region, first, count, seq)
    return [one for region, one in found.items() if region != result] or list(found.values())


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
