"""Repeats the device work of a process from epoch to epoch, and compares memory at each.

The work between two epochs is a graph, ordered by streams, events and waits of the host. If memory
differs at an epoch, it is corrected before the work goes on, so each result concerns one stretch
only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.process import Process
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.driver import DriverError
from ttanalyze.gpu.rebuild.address_map import State
from ttanalyze.gpu.rebuild.dependency_graph import span
from ttanalyze.gpu.rebuild.epochs import good_epochs, is_partial
from ttanalyze.gpu.rebuild.graph import build, check_kinds, written_by_others
from ttanalyze.gpu.rebuild.replay_context import ReplayContext, WorkBuilder, moved_notes
from ttanalyze.gpu.rebuild.steps import Launch, Span, Upload, summary
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.replay.compare import RegionDifference, Tolerances, Types, differences
from ttanalyze.verbs.replay.plan import PARTIAL, lacking
from ttanalyze.verbs.replay.run import DIFFERS, FAILED, REFUSED, SAME, is_lost, status_of
from ttanalyze.verbs.replay.uninitialized import settled


@dataclass
class Stretch:
    """The outcome of the work between two epochs.

    status: "same", "differs", "refused" (it cannot be repeated, or others may have written what
    differs) or "failed" (or the run is damaged). reason: for the last two. work: the work in words.
    regions: the number of compared regions. uploads: the number of copies from the host, with
    upload_bytes; their data comes from the next epoch. notes: assumptions.
    """

    first: int
    last: int
    status: str = SAME
    reason: str = ""
    work: str = ""
    regions: int = 0
    differences: list[RegionDifference] = field(default_factory=list)
    uploads: int = 0
    upload_bytes: int = 0
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"differences": [one.as_dict() for one in self.differences]}


def replay_span(
    process: Process,
    first: int | None = None,
    last: int | None = None,
    types: Types | None = None,
    tolerances: Tolerances | None = None,
    device: Callable[[], Device] = Device.default,
    progress: Progress = None,
) -> list[Stretch]:
    """Repeats the work between two epochs, by default the first and the last of the first context.

    progress: called with the finished and the total number of stretches. Raises Error if there are
    no such epochs, no usable driver, or not enough memory.
    """
    planned = _plan(process, first, last)
    there = np.zeros(len(process.regions), bool)
    for one in planned:
        if isinstance(one, Span):
            there[one.regions] = True
    if not there.any():
        return [one if isinstance(one, Stretch) else _begun(one) for one in planned]
    replay_context = ReplayContext(process, device(), np.flatnonzero(there).tolist())
    out: list[Stretch] = []
    now: State | None = None  # what memory holds
    lost = False
    for done, one in enumerate(planned):
        tell(progress, done, len(planned))
        if isinstance(one, Stretch):
            out.append(one)
            now = None
            continue
        stretch = _begun(one)
        out.append(stretch)
        if lost:
            stretch.status, stretch.reason = FAILED, "not run: earlier work failed"
            continue
        try:
            now = _do(stretch, one, replay_context, now, types or {}, tolerances or {})
        except Error as e:
            stretch.status, stretch.reason = status_of(e), str(e)
            stretch.notes += moved_notes(
                replay_context.addresses, sorted(replay_context.addresses.moved)
            )
            now, lost = None, isinstance(e, DriverError) and is_lost(replay_context.device)
    return out


def _plan(process: Process, first: int | None, last: int | None) -> list[Span | Stretch]:
    """Returns the stretches from each good epoch to the next."""
    if not len(process.epochs):
        raise Error("no epochs to replay between: record with --params and --epoch")
    start = _first(process) if first is None else first
    contents.check_epoch(process, start)
    context = int(process.epochs["context"][start])
    good = good_epochs(process, context).tolist()
    for bound in (start, *(() if last is None else (last,))):
        if bound not in good:
            contents.check_epoch(process, bound)
            of = int(process.epochs["context"][bound])
            what = "has no contents, or may be torn" if of == context else f"is of context {of}"
            if int(process.epochs["trigger"][bound]) == layout.TRIGGERS.index("graph-node"):
                what = "lies inside a graph: take one before or after its launch"
            raise Error(f"epoch {bound} can't be a bound: it {what}")
    if last is None and start == good[-1]:
        raise Error(f"epoch {start} is the last of context {context}: there is nothing to compare")
    end = good[-1] if last is None else last
    if start >= end:
        raise Error(f"epochs {start} to {end}: the first must come before the second")
    bounds = good[good.index(start) : good.index(end) + 1]
    out: list[Span | Stretch] = []
    for begin, stop in itertools.pairwise(bounds):
        try:
            found = span(process, begin, stop)
            check_kinds(found)
            out.append(found)
        except Error as e:
            out.append(Stretch(begin, stop, status_of(e), str(e)))
    return out


def _first(process: Process) -> int:
    for context in dict.fromkeys(process.epochs["context"].tolist()):
        good = good_epochs(process, context)
        if len(good):
            return int(good[0])
    raise Error(f"process {process.index} has no epoch to begin from")


def _begun(found: Span) -> Stretch:
    assert found.last is not None
    out = Stretch(found.first, found.last, work=summary(found.steps))
    uploads = [step.what for step in found.steps if isinstance(step.what, Upload)]
    out.uploads, out.upload_bytes = len(uploads), sum(what.reach for what in uploads)
    out.notes = [
        f"region {what.region}: a copy from the host is taken from epoch {what.epoch}, "
        f"though {what.doubt}"
        for what in uploads
        if what.doubt
    ]
    given = [step.what for step in found.steps if isinstance(step.what, Launch)]
    out.notes += lacking(found.process, given)
    out.notes += [f"{what}: left out" for what in found.left_out]
    return out


def _do(
    out: Stretch,
    found: Span,
    replay_context: ReplayContext,
    now: State | None,
    types: Types,
    tolerances: Tolerances,
) -> State | None:
    """Repeats one stretch. Returns the state of memory afterwards if it is as recorded, else
    None.
    """
    addresses, process, rows = replay_context.addresses, found.process, found.regions.tolist()
    stream = replay_context.device.stream
    loaded = len(replay_context.modules)
    builder = WorkBuilder(replay_context, found)
    with build(builder) as graph:
        before = State.of_epoch(process, found.first, rows)
        known = now is not None and before.records.keys() <= now.records.keys()
        if not known or len(replay_context.modules) > loaded:  # whose variables are as in its image
            addresses.restore(before)
        after = State.of_epoch(process, out.last, rows)
        with graph.instantiate() as executable:

            def work() -> None:
                executable.launch(stream)

            work()
            findings, notes = settled(
                replay_context, before, after, addresses.compare(after, before), work
            )
    out.regions, out.notes = len(findings), [*out.notes, *notes]
    out.differences = differences(replay_context, after, findings, types, tolerances)
    moved = set(addresses.moved)
    if out.differences or len(findings) < sum(addresses.has(row) for row in after.records):
        partial = any(is_partial(process, epoch) for epoch in (found.first, out.last))
        out.notes += [PARTIAL] if partial else []
    others = written_by_others(found)
    if any(not one.tolerated for one in out.differences):
        out.status = REFUSED if others else DIFFERS
        out.reason = f"its result differs, but {others[0]}" if others else ""
    else:
        moved.difference_update(addresses.moved_variables)
    out.notes += moved_notes(addresses, sorted(moved))
    return None if out.differences else after
