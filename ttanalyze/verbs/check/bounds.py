"""Whether the program writes outside its allocations, or to memory that it freed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.core import zones
from ttanalyze.core.graph_epochs import nodes_between
from ttanalyze.core.writers import HOW, POINTER, WRITES, node_writers, writers
from ttanalyze.core.writers import POSSIBLE as POSSIBLE_WRITER
from ttanalyze.core.zones import ChangedZone
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, layout, open_run
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.check.difference import call_text
from ttanalyze.verbs.check.findings import (
    CLEAN,
    CONFIRMED,
    FOUND,
    NOT_COVERED,
    POSSIBLE,
    Call,
    Finding,
    Outcome,
)
from ttanalyze.verbs.check.instructions import Culprit, Traced, addresses, with_instructions
from ttanalyze.verbs.check.naming import call_of, call_of_node, memory_of, memory_text
from ttanalyze.verbs.check.session import PLAIN, Plan, Session, Settings
from ttanalyze.verbs.check.spacing import launch_seqs
from ttanalyze.verbs.record.series import Recording

NAME = "bounds"
DESCRIPTION = "writes outside of allocations, and to memory that was freed"
ZONES = {**PLAIN, "zones": "256"}
# The first recording only tells whether a zone changes. It is compared with no other, so new memory
# need not be the same; what names a culprit costs time, and comes with the next recording.
FIRST = {
    "contents": "none",
    "deterministic": True,
    "zones": "256",
    "regions": "zones",
    "fill": "keep",
}
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
GRAPH_LAUNCH = event_kinds.KIND["graph-launch"]
LAUNCHES = ("launch", "graph-launch", "kernel")  # the last one: a node of a graph
WINDOWS = 3  # stretches of launches that are looked at closely
MOST = 2000  # changes of a process that are looked at, and the first of each zone
TOGETHER = 1024  # launches that are one such stretch, if changes are no further apart
# What makes frameworks allocate each tensor by itself: PyTorch in the order of a stream, which
# waits for nothing, and where it cannot, without its cache.
EACH_TENSOR = {
    "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
}


def recordings(settings: Settings) -> Plan:
    """One recording; more look closer at what it shows."""
    return Plan(("zones",), 0 if settings.quick else WINDOWS + 2)


@dataclass(frozen=True, order=True)
class _Window:
    """The launches after launch first, and up to launch last, of a process."""

    process: int
    first: int
    last: int

    def holds(self, other: _Window) -> bool:
        inside = self.first <= other.first and other.last <= self.last
        return self.process == other.process and inside


@dataclass(frozen=True)
class _Write:
    """A change of a zone, and what made it.

    run, process: where it was seen. calls: the write lies in calls (after, until]. window: their
    launches. seq: of the most likely call. call: that call, or the node of a graph that it
    launched, whose number is node. sure: whether nothing else can have written.
    """

    run: Path
    process: Process
    zone: ChangedZone
    calls: tuple[int, int]
    window: _Window
    seq: int | None = None
    call: Call | None = None
    node: int | None = None
    sure: bool = False

    @property
    def owner(self) -> int:
        """The region that the zone belongs to, or the zone itself."""
        return self.zone.region if self.zone.allocation is None else self.zone.allocation

    @property
    def key(self) -> tuple[int, ...]:
        """The zone, the same in each recording."""
        return _key(self.process, self.zone.region)

    @property
    def sort(self) -> tuple[Any, ...]:
        """The same for all writes that are one finding."""
        site = self.call and (self.call.kernel, self.call.call, self.call.stack)
        return _key(self.process, self.owner), self.zone.side == zones.FREED, repr(site)


def _key(process: Process, region: int) -> tuple[int, ...]:
    """A region by its address, or by its id if recordings have other addresses."""
    birth = _birth(process, region)
    place = birth["id"] if birth["flags"] & layout.UNSTABLE else birth["base"]
    return process.index, int(place), int(birth["size"])


def _birth(process: Process, region: int) -> Any:
    regions = process.regions
    return regions.birth[int(regions.rows(np.array([region]))[0])]


def with_zones(session: Session) -> Recording:
    """Returns the recording with zones.

    Args:
        session: The session.
    """
    options = ZONES if session.settings.quick else FIRST
    return session.record("zones", EACH_TENSOR, **{**options, **session.budget})


def examine(session: Session) -> Outcome:
    """Records the program with zones, and names the calls that changed some."""
    recording = with_zones(session)
    run = open_run(recording.run)
    outcome = Outcome(NAME, CLEAN)
    _cover(outcome, run.processes)
    writes = _writes(recording.run, run.processes)
    if not writes:
        return outcome
    outcome.status = FOUND
    outcome.findings = _findings(writes)
    session.partial = outcome
    if not session.settings.quick:
        writes = _look(session, outcome, _with_callers(session, outcome, writes))
        _name_instruction(session, outcome, writes)
    return outcome


def _cover(outcome: Outcome, processes: list[Process]) -> None:
    """The shares of launches before the last epoch, and of bytes in allocations with zones."""
    launches = seen = 0
    for process in processes:
        seqs = launch_seqs(process)
        usable = process.epochs["flags"] & layout.REFUSED == 0
        launches += len(seqs)
        if usable.any():
            last = int(process.coverage.whole[usable].max())
            seen += int(np.searchsorted(seqs, last, "right"))
    served, count, inside, size = np.sum([zones.coverage(p) for p in processes], axis=0).tolist()
    outcome.launches = seen / launches if launches else None
    outcome.bytes = inside / size if size else None
    verb = "has" if count == 1 else "have"
    outcome.reason = f"{served} of {text.count(count, 'allocation')} {verb} zones"
    tails = sum(map(zones.tails, processes))
    if tails:
        others = text.count(tails, "other")
        outcome.reason += f"; of {others} the rest of the last 256 bytes is watched"
    if not served or (launches and not seen):
        outcome.status = NOT_COVERED
        outcome.reason = "no epoch was captured" if served else "no allocation has zones"


# ---- which call ----


def _with_callers(session: Session, outcome: Outcome, writes: list[_Write]) -> list[_Write]:
    """Records the program again, with call stacks and parameters. Returns the writes that show in
    this recording, and those that do not show again.
    """
    try:
        found = session.record("zones-callers", EACH_TENSOR, **{**ZONES, **session.budget})
        again = _writes(found.run, open_run(found.run).processes)
    except Error as e:
        session.say(f"the callers of the writes are not known: {e}")
        return writes
    keys = {write.key for write in again}
    every = [*again, *(write for write in writes if write.key not in keys)]
    outcome.findings = _findings(every)
    return every


def _look(session: Session, outcome: Outcome, writes: list[_Write]) -> list[_Write]:
    """Looks closer at stretches in which zones changed, with an epoch after each call. Returns what
    is known then.
    """
    every = writes
    known: list[_Write] = []
    for number, stretch in enumerate(_stretches(writes), 1):
        epoch = f"launch,memcpy,sync,@{stretch.first}-{stretch.last};graph-node:."
        options = {**ZONES, "contents": "changed", "epoch": epoch}
        try:
            found = session.record(f"zones-{number}", EACH_TENSOR, **options)
            process = open_run(found.run).process(stretch.process)
        except Error as e:
            session.say(f"the writes were not looked at closely: {e}")
            return every
        closer = [one for one in _writes(found.run, [process]) if stretch.holds(one.window)]
        keys = {one.key for one in closer}
        writes = [w for w in writes if w.key not in keys or not stretch.holds(w.window)]
        known += closer
        every = [*known, *_attributed(writes, known)]
        every.sort(key=lambda one: (one.process.index, one.calls))
        outcome.findings = _findings(every)
    return every


def _name_instruction(session: Session, outcome: Outcome, writes: list[_Write]) -> None:
    """Traces the launch of the first finding that is one."""
    for number, group in enumerate(_groups(writes)):
        one, found = group[0], outcome.findings[number]
        if one.seq is None or found.call is None or found.call.kind not in LAUNCHES:
            continue
        first, last = one.zone.first, one.zone.last
        size = None if first is None or last is None else last - first + 1
        at = addresses(one.process, one.zone.region, first, size)
        where = Traced("bounds-trace", one.process, at, ZONES, EACH_TENSOR)
        named = with_instructions(
            session, found, where, {"instruction": Culprit(one.seq, node=one.node)}
        )
        if "instruction" in named.details and not one.sure:
            summary = found.summary.replace(" may have written ", " writes ", 1)
            named = replace(named, certainty=CONFIRMED, summary=summary)
        outcome.findings[number] = named
        return


def _stretches(writes: Sequence[_Write]) -> list[_Window]:
    """Windows that are near to each other as one, those with other culprits first."""
    out: list[_Window] = []
    for window in sorted({write.window for write in writes}):
        last = out[-1] if out else window
        together = replace(last, last=max(last.last, window.last))
        if out and last.process == window.process and together.last - last.first <= TOGETHER:
            out[-1] = together
        else:
            out.append(window)
    first = {write.sort: write.window for write in reversed(writes)}.values()
    return sorted(out, key=lambda one: not any(one.holds(window) for window in first))[:WINDOWS]


def _attributed(writes: list[_Write], known: list[_Write]) -> list[_Write]:
    """Takes for the culprit of a write, if there may be several, one that is known to write to this
    zone and that is called again.
    """
    culprits: dict[Any, dict[Any, _Write]] = {}
    for one in known:
        culprits.setdefault(one.key, {}).setdefault(_site(one.process, one.seq), one)

    def attributed(write: _Write) -> _Write:
        again = culprits.get(write.key, {})
        site = None if write.sure or not again else next(filter(again.get, _sites(write)), None)
        return write if site is None else replace(write, seq=None, call=again[site].call)

    return [attributed(write) for write in writes]


def _sites(write: _Write) -> list[Any]:
    """What its window launches, and where in the program."""
    events = _launches(write.process, *write.calls)
    kept = np.unique(events[["kind", "id", "stack"]], return_index=True)[1]
    return [_site(write.process, seq) for seq in events["seq"][kept].tolist()]


def _site(process: Process, seq: int | None) -> Any:
    call = None if seq is None else call_of(process, seq)
    return call and (call.kernel, call.call, tuple(call.stack))


def _launches(process: Process, after: int, until: int) -> Any:
    """Events of launches that succeeded."""
    events = process.events_between(after, until)
    launches = np.isin(events["kind"], event_kinds.LAUNCH) & (events["flags"] & CAPTURING == 0)
    return events[launches & (events["result"] == 0)]


def _writes(run: Path, processes: list[Process]) -> list[_Write]:
    out = []
    for process in processes:
        seqs = launch_seqs(process)
        for zone in zones.changed_zones(process, MOST):
            calls = _calls(process, zone)
            window = _Window(process.index, *np.searchsorted(seqs, calls, "right").tolist())
            out.append(_with_call(_Write(run, process, zone, calls, window)))
    return out


def _calls(process: Process, zone: ChangedZone) -> tuple[int, int]:
    coverage = process.coverage
    after = 0 if zone.before is None else int(coverage.whole[zone.before])
    born = int(_birth(process, zone.region)["seq"])
    return max(after, born), int(coverage.some[zone.epoch])


def _with_call(one: _Write) -> _Write:
    seq, sure = _culprit(one)
    sure &= not one.zone.tail
    if seq is None:
        return one
    event = one.process.events_between(seq - 1, seq)[0]
    graph = int(event["id"])
    node = alone = None
    if event["kind"] == GRAPH_LAUNCH and one.process.graphs.known(graph, seq):
        node, alone = _node(one, graph, seq)
    if node is None:
        return replace(one, seq=seq, call=call_of(one.process, seq), sure=sure)
    call = call_of_node(one.process, graph, seq, node)
    return replace(one, seq=seq, call=call, node=node, sure=sure and bool(alone))


def _node(one: _Write, graph: int, seq: int) -> tuple[int | None, bool]:
    """The node of a graph launch that wrote, if it can be told, and whether no other may have."""
    how = node_writers(one.process, one.zone.region, graph, seq)
    exact = np.flatnonzero(how == WRITES).tolist()
    if exact:
        return exact[-1], len(exact) == 1
    between = nodes_between(one.process, seq, one.zone.before, one.zone.epoch)
    likely = [node for node in between if how[node] < len(HOW)]
    if len(likely) == 1:
        return likely[0], True
    given = node_writers(one.process, one.owner, graph, seq)
    likely = [node for node in likely if given[node] <= POINTER]
    return (likely[0] if len(likely) == 1 else None), False


def _culprit(one: _Write) -> tuple[int | None, bool]:
    """The seq of the most likely writer, and whether there is no other."""
    process, zone = one.process, one.zone
    after, until = one.calls
    direct = writers(process, zone.region, after, until)
    exact = direct.events["seq"][direct.how == WRITES]
    if len(exact):
        return int(exact[-1]), len(exact) == 1
    # What copies and sets write to is known, so only launches are left.
    seqs = _launches(process, after, until)["seq"].tolist()
    if len(seqs) == 1:
        return seqs[0], True
    found: dict[int, int] = {}
    for region in (zone.allocation, zones.neighbour(process, zone), zone.region):
        if region is None:
            continue
        likely = writers(process, region, after, until)
        for seq, how in zip(likely.events["seq"].tolist(), likely.how.tolist(), strict=True):
            if seq in seqs:
                found[seq] = min(how, found.get(seq, how))
    if not found:
        return (seqs[-1] if seqs else None), False
    if min(found.values()) == POSSIBLE_WRITER:  # it is not known what any of them was given
        return None, False
    return min(found, key=lambda seq: (found[seq], -seq)), False


# ---- what is said ----


def _findings(writes: Sequence[_Write]) -> list[Finding]:
    """One for each call site and allocation."""
    least = "at least " if len(writes) >= MOST else ""
    return [_finding(group, least) for group in _groups(writes)]


def _groups(writes: Sequence[_Write]) -> list[list[_Write]]:
    """The writes of each finding, those that are sure first."""
    groups: dict[Any, list[_Write]] = {}
    for write in writes:
        groups.setdefault(write.sort, []).append(write)
    return [sorted(group, key=lambda one: not one.sure) for group in groups.values()]


def _finding(group: list[_Write], least: str) -> Finding:
    """Describes the first of the writes."""
    one = group[0]
    process, zone, call = one.process, one.zone, one.call
    offset = _offset(process, zone, one.owner)
    memory = memory_of(process, one.owner, offset, zone.count, one.seq)
    who = call_text(call) if call else "Something"
    verb = "writes" if one.sure else "may have written"
    bytes_ = text.count(zone.count, "byte") + " " if zone.count is not None else ""
    where = _distance(process, zone, one.owner)
    times = f"; {least}{len(group)} epochs show such a write" if len(group) > 1 else ""
    summary = f"{who} {verb} {bytes_}{where} {memory_text(memory)}{times}."
    details: dict[str, Any] = {"epoch": zone.epoch, "zone": zone.region, "times": len(group)}
    if zone.first is not None and zone.last is not None:
        details |= {"first": zone.first, "last": zone.last, "sample": zone.sample.hex(" ")}
    near = zones.neighbour(process, zone)
    if near is not None:
        details["neighbour"] = memory_text(memory_of(process, near))
    command = ["ttanalyze", "blame", str(one.run), "-r", str(zone.region)]
    certainty = CONFIRMED if one.sure else POSSIBLE
    step = f"epoch {zone.epoch}"
    return Finding(
        NAME, f"write {zone.side}", certainty, summary, call, memory, step, command, details
    )


def _offset(process: Process, zone: ChangedZone, owner: int) -> int | None:
    """The first changed byte as seen from the start of the allocation; it may be negative."""
    if zone.first is None:
        return None
    regions = process.regions
    rows = regions.rows(np.array([zone.region, owner]))
    base, start = regions.birth["base"][rows].tolist()
    return int(base) + zone.first - int(start)


def _distance(process: Process, zone: ChangedZone, owner: int) -> str:
    """ "4 bytes past the end of"."""
    if zone.side == zones.FREED:
        return "after the free of"
    if zone.first is None or zone.last is None:
        return f"{zone.side} of"
    size = int(process.regions.size[int(process.regions.rows(np.array([zone.region]))[0])])
    gap = zone.first if zone.side == zones.END else size - zone.last - 1
    return f"{text.count(gap, 'byte') if gap else 'directly'} {zone.side} of"
