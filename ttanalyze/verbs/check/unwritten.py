"""Whether a call makes a value of memory that the program did not write."""

from __future__ import annotations

from typing import Any

from ttanalyze.errors import Error
from ttanalyze.format import contents
from ttanalyze.format.process import Process
from ttanalyze.verbs.blame import Condition, Sighting
from ttanalyze.verbs.check import fills
from ttanalyze.verbs.check.fills import Same
from ttanalyze.verbs.check.findings import Memory
from ttanalyze.verbs.check.naming import memory_of, reached
from ttanalyze.verbs.check.session import Session

FILL = "pattern:1"


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
    name, options = looked
    seq, since = sighting.hits[0].suspects.listed[0].seq, sighting.since
    try:
        run = session.record(f"{name}-filled", **{**options, "fill": FILL}).run
        same = _process(fills.aligned([session.used[name].run, run]), process)
        if same is None or not _gone(same, condition, sighting):
            return []
        return _unwritten(same, since, sighting.epoch, seq, sighting.hits[0].region)
    except Error as e:
        session.say(f"whether {condition.text} comes from uninitialised memory is not known: {e}")
        return []


def _process(runs: list[Same], process: Process) -> Same | None:
    return next((one for one in runs if one.processes[0].index == process.index), None)


def _gone(same: Same, condition: Condition, sighting: Sighting) -> bool:
    """Whether the other run has another value there."""
    hit, rows = sighting.hits[0], dict(same.epochs.tolist())
    if sighting.epoch not in rows or hit.region not in same.regions:
        return False
    first = hit.first[0] * condition.type.itemsize
    where = hit.region, first, first + condition.type.itemsize
    return not condition.test(contents.read(same.processes[1], rows[sighting.epoch], *where)).any()


def _unwritten(same: Same, before: int | None, after: int, seq: int, result: int) -> list[Memory]:
    """The memory of a launch with bytes that nobody wrote, if no other bytes differ. Memory that is
    new since the epoch before is looked at after the launch. result: the region with the value,
    which counts only if no other memory does.
    """
    process, found = same.processes[0], dict[int, Memory]()
    for region in reached(process, seq):
        sorts = None if before is None else fills.sorts(same, before, region)
        if sorts is None and region == result:
            continue
        sorts = sorts or fills.sorts(same, after, region)
        if sorts is None or sorts.copied.count or sorts.computed.count:
            return []
        if sorts.unwritten.count:
            first, count = sorts.unwritten.first, sorts.unwritten.count
            found[region] = memory_of(process, region, first, count, seq)
    return [one for region, one in found.items() if region != result] or list(found.values())
