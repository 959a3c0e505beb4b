"""Whether the program reads or writes past the end of its allocations, or in memory that it freed.

Each allocation ends before unmapped memory. The driver reports an illegal address, but not which
one: the launch comes from a recording in which launches wait for each other, the allocation from
the launch's pointers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ttanalyze.core import guard, zones
from ttanalyze.core.order import CAPTURING, HOST_DST, HOST_SRC
from ttanalyze.core.reach import READS, WRITES
from ttanalyze.disassembly.kernel_uses import kernel_uses
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, layout, open_run
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.traces.accesses import STORES
from ttanalyze.verbs.check import bounds
from ttanalyze.verbs.check.bounds import EACH_TENSOR
from ttanalyze.verbs.check.difference import call_text
from ttanalyze.verbs.check.findings import (
    CLEAN,
    CONFIRMED,
    FOUND,
    NOT_COVERED,
    POSSIBLE,
    Finding,
    Outcome,
)
from ttanalyze.verbs.check.instructions import Culprit, Traced, with_instructions
from ttanalyze.verbs.check.naming import call_of, memory_of, memory_text
from ttanalyze.verbs.check.session import PLAIN, Plan, Session, Settings
from ttanalyze.verbs.check.spacing import launch_seqs

NAME = "guard"
DESCRIPTION = "reads and writes past the end of allocations, and of memory that was freed"
ALIGN, CUDAS = "16", "256"  # alignment of the ends; that of CUDA, for programs that need it
MISALIGNED = "CUDA_ERROR_MISALIGNED_ADDRESS"
INVALID_VALUE, ILLEGAL_ADDRESS = 1, 700  # CUDA_ERROR_…
BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}  # a launch returns when it is complete
LIMIT = "600"  # seconds for a program whose launches wait: it may hang
NAMED = 3  # allocations in a sentence
PAST_END, AFTER_FREE = "past the end", "access after free"


def recordings(settings: Settings) -> Plan:
    """One recording, a second one if the program needs CUDA's alignment; more explain a fault."""
    return Plan(("guard",), 1 if settings.quick else 4 + NAMED)


@dataclass(frozen=True)
class _Fault:
    """An illegal address. seq: the likeliest launch, None if there is none. sure: no other was in
    flight. others: launches in flight, if all are known.
    """

    run: Run
    process: Process
    seq: int | None
    sure: bool
    others: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Copy:
    """A copy or a fill past the end of an allocation, which the driver refused."""

    run: Run
    process: Process
    seq: int
    region: int
    reads: bool


def examine(session: Session) -> Outcome:
    """Records the program with guards, and names the launches that fail."""
    outcome = Outcome(NAME, CLEAN)
    run, align = open_run(session.record("guard", EACH_TENSOR, guard=ALIGN, **PLAIN).run), ALIGN
    if any(guard.ended_by(process, MISALIGNED) for process in run.processes):
        session.used.pop("guard")  # that it failed says nothing
        run = open_run(session.record("guard-256", EACH_TENSOR, guard=CUDAS, **PLAIN).run)
        align = CUDAS
    _cover(outcome, run.processes, align)
    faults = [fault for process in run.processes if (fault := _fault(run, process))]
    copies = [copy for process in run.processes for copy in _refused(run, process)]
    other = {one["reason"] for process in run.processes for one in guard.ended_by(process)}
    if other - {guard.ILLEGAL_ADDRESS} and outcome.status == CLEAN:
        outcome.status = NOT_COVERED
        outcome.reason += f"; a context ended with {', '.join(sorted(other))}"
    if faults or copies:
        outcome.status = FOUND
        outcome.findings = [_of_launch(fault, True, False, POSSIBLE) for fault in faults]
        outcome.findings += [_of_copy(copy, POSSIBLE) for copy in copies]
        session.partial = outcome
        if not session.settings.quick:
            outcome.findings = _look(session, faults, copies, align)
            outcome.status = FOUND if outcome.findings else CLEAN
    return outcome


def _cover(outcome: Outcome, processes: list[Process], align: str) -> None:
    """The shares of launches before a fault, and of bytes in allocations with guards."""
    launches = seen = 0
    for process in processes:
        seqs = launch_seqs(process)
        launches += len(seqs)
        known = [one["seq"] for one in guard.ended_by(process) if one["seq"]]
        ends = [int(np.searchsorted(seqs, seq)) for seq in known]
        seen += min(ends, default=len(seqs))
    served, count, inside, size = np.sum([guard.coverage(p) for p in processes], axis=0).tolist()
    outcome.launches = seen / launches if launches else None
    outcome.bytes = inside / size if size else None
    verb = "has" if count == 1 else "have"
    outcome.reason = f"{served} of {text.count(count, 'allocation')} {verb} guards"
    if align != ALIGN:
        outcome.reason += f"; the program needs ends aligned to {align} bytes"
    if not served:
        outcome.status, outcome.reason = NOT_COVERED, "no allocation has a guard"


# ---- launches ----


def _fault(run: Run, process: Process, blocking: bool = False) -> _Fault | None:
    """The launch that ended a context. blocking: launches waited for each other."""
    report = next(iter(guard.ended_by(process, guard.ILLEGAL_ADDRESS)), None)
    if report is None:
        return None
    if blocking:
        found = _last_launch(process, report["seq"])
        return _Fault(run, process, found, found is not None)
    calls = [call for stream in report["in_flight"] for call in stream["calls"]]
    seqs = sorted(call["seq"] for call in calls if _is_launch(call["kind"]))
    listed = len(calls) == sum(stream.get("count", 0) for stream in report["in_flight"])
    others = tuple(seqs) if listed else ()
    return _Fault(run, process, seqs[0] if seqs else None, len(others) == 1, others)


def _is_launch(kind: str) -> bool:
    return kind in (layout.EVENT_KINDS[one] for one in event_kinds.LAUNCH)


def _launches(process: Process) -> tuple[Array, Array]:
    """The sequence numbers and the kinds of all launches, failed ones too."""
    columns = process.event_columns("seq", "kind", "flags")
    launched = np.isin(columns["kind"], event_kinds.LAUNCH) & (columns["flags"] & CAPTURING == 0)
    return columns["seq"][launched], columns["kind"][launched]


def _last_launch(process: Process, until: int) -> int | None:
    """The last launch of a kernel up to a call, None if it is one of a graph: none waits for it."""
    seqs, kinds = _launches(process)
    number = (int(np.searchsorted(seqs, until, "right")) if until else len(seqs)) - 1
    return int(seqs[number]) if number >= 0 and kinds[number] == KIND["launch"] else None


def _same_launch(found: _Fault, fault: _Fault) -> _Fault | None:
    """A launch in the recording of another fault, which has its kernel and its parameters: a failed
    launch has none.
    """
    if found.seq is None:
        return None
    number = int(np.searchsorted(_launches(found.process)[0], found.seq))
    seqs = _launches(fault.process)[0]
    if number >= len(seqs) or (fault.others and int(seqs[number]) not in fault.others):
        return found
    return _Fault(fault.run, fault.process, int(seqs[number]), True)


def _fails(process: Process) -> bool:
    """Whether a context was lost: also if no report says so."""
    result = process.event_columns("result")["result"]
    return bool(guard.ended_by(process)) or bool((result == ILLEGAL_ADDRESS).any())


def _look(session: Session, faults: list[_Fault], copies: list[_Copy], align: str) -> list[Finding]:
    """Finds out which launch it was, whether it writes, and what happens without guards."""
    plain = {process.index: process for process in open_run(session.plain().run).processes}
    findings, written = list[Finding](), True
    zoned = None
    if faults:
        recording = bounds.with_zones(session)
        zoned = open_run(recording.run)
        written = session.fault(recording) is not None or any(
            zones.changed_zones(process, 1) for process in zoned.processes
        )
    for fault in faults:
        without = plain.get(fault.process.index)
        anyway = without is not None and _fails(without)
        found = fault if fault.sure else _alone(session, fault, align)
        certainty = CONFIRMED if found.sure and without is not None and not anyway else POSSIBLE
        finding = _of_launch(found, written, anyway, certainty)
        if zoned is not None and not findings and not anyway:
            finding = _with_instruction(session, finding, found, zoned)
        findings.append(finding)
    for copy in copies:
        result = _result_without(copy, plain.get(copy.process.index))
        if not result:
            findings.append(_of_copy(copy, POSSIBLE if result is None else CONFIRMED))
    return findings


def _alone(session: Session, fault: _Fault, align: str) -> _Fault:
    """The same fault in a recording in which each launch waits for the one before it."""
    limit = None if "timeout" in session.settings.record else LIMIT
    environment = {**EACH_TENSOR, **BLOCKING}
    options = {**PLAIN, "guard": align, "timeout": limit}
    try:
        run = open_run(session.record("guard-blocking", environment, **options).run)
        process = run.process(fault.process.index)
    except Error as e:
        session.say(f"the launch was not looked at closely: {e}")
        return fault
    found = _fault(run, process, blocking=True)
    return (found and _same_launch(found, fault)) or fault


def _with_instruction(session: Session, found: Finding, fault: _Fault, zoned: Run) -> Finding:
    """The finding with the instruction that leaves the allocation. With zones the program survives
    that, so it can be traced.
    """
    process = next((one for one in zoned.processes if one.index == fault.process.index), None)
    if process is None or fault.seq is None:
        return found
    number = int(np.searchsorted(_launches(fault.process)[0], fault.seq))
    seqs = _launches(process)[0]
    if number >= len(seqs):
        return found
    likely = found.details["allocations"]
    alike = [one for one in likely if one["freed"] == likely[0]["freed"]]
    for tried, one in enumerate(alike[:NAMED], 1):
        at = _outside(fault.process, one, process)
        if at is None:
            continue
        where = Traced(f"guard-trace-{tried}", process, at, bounds.ZONES, EACH_TENSOR)
        culprit = Culprit(int(seqs[number]), ("load", *STORES))
        named = with_instructions(session, found, where, {"instruction": culprit})
        if "instruction" in named.details:
            return replace(named, certainty=CONFIRMED)
    return found


def _outside(guarded: Process, of: dict[str, Any], zoned: Process) -> range | None:
    """The addresses of the zone behind an allocation, or in its place if it was freed. of: a
    guard.Reached. Allocations are known by their number in both recordings.
    """
    rows = [zones.allocations(one) for one in (guarded, zoned)]
    number = np.flatnonzero(guarded.regions.id[rows[0]] == of["region"])
    if not len(number) or number[0] >= len(rows[1]):
        return None
    regions, row = zoned.regions, int(rows[1][number[0]])
    base, size = int(regions.birth["base"][row]), int(regions.size[row])
    if of["freed"]:
        return range(base, base + size)
    behind = (regions.birth["kind"] == zones.ZONE) & (regions.birth["base"] == base + size)
    found = np.flatnonzero(behind)
    return range(base + size, base + size + int(regions.size[found[0]])) if len(found) else None


def _of_launch(fault: _Fault, written: bool, anyway: bool, certainty: str) -> Finding:
    """The finding of a launch. written: whether the program writes out of bounds, as far as is
    known; anyway: whether it fails without guards, too.
    """
    process, seq = fault.process, fault.seq
    command = ["ttanalyze", "info", str(fault.run.path)]
    error = f"{guard.ILLEGAL_ADDRESS}{', without guards, too' if anyway else ''}"
    details: dict[str, Any] = {"error": guard.ILLEGAL_ADDRESS, "without_guards": anyway}
    if seq is None:
        summary = f"Something accesses an illegal address ({error})."
        return Finding(NAME, "illegal address", POSSIBLE, summary, None, command=command)
    call = call_of(process, seq)
    reached = guard.reached(process, seq, kernel_uses(fault.run, process, []))
    if not written:  # zones were around all allocations, and none changed
        reached = [one for one in reached if one.freed or one.mode != WRITES] or reached
    kind = f"{'access' if written else 'read'} {PAST_END}"
    if anyway or not reached:
        kind = "illegal address"
    elif reached[0].freed:
        kind = AFTER_FREE
    verb = "accesses an illegal address" if kind == "illegal address" else _verb(kind)
    memories = [memory_of(process, one.region, seq=seq) for one in reached]
    alike = sum(one.freed == reached[0].freed for one in reached)
    names = " or ".join(map(memory_text, memories[: min(alike, NAMED)]))
    if alike > NAMED:
        names += f" or {alike - NAMED} more"
    if kind == "illegal address":
        names = f"; it has pointers to {names}" if memories else ""
    elif kind == AFTER_FREE:
        names = f" {names}, which was freed"
    elif written and all(one.mode == READS for one in reached):
        certainty = POSSIBLE
        names = f" {names} or memory that it finds by pointers in memory"
    else:
        names = f" {names}"
    summary = f"{call_text(call)} {verb}{names} ({error})."
    if not fault.sure:
        summary += " Other launches were in flight."
    details["allocations"] = [asdict(one) for one in reached]
    memory = memories[0] if memories else None
    return Finding(NAME, kind, certainty, summary, call, memory, command=command, details=details)


def _verb(kind: str) -> str:
    """ "reads past the end of"."""
    if kind == AFTER_FREE:
        return "accesses"
    what = kind.split()[0]
    return f"{what}{'es' if what == 'access' else 's'} {PAST_END} of"


# ---- copies and fills ----


def _refused(run: Run, process: Process) -> Iterator[_Copy]:
    """Copies and fills that the driver refused, and that leave an allocation with a guard."""
    fields = ("seq", "kind", "flags", "result", "dst", "src", "bytes")
    columns = process.event_columns(*fields)
    rows = np.isin(columns["kind"], event_kinds.MOVE) & (columns["result"] == INVALID_VALUE)
    rows &= columns["flags"] & CAPTURING == 0
    regions = process.regions
    guarded = regions.flags & layout.GUARDED != 0
    for row in np.flatnonzero(rows).tolist():
        event = {name: int(columns[name][row]) for name in fields}
        copies = event["kind"] == KIND["copy"]
        for side, host in (("src", HOST_SRC), ("dst", HOST_DST)):
            if event["flags"] & host or (side == "src" and not copies):
                continue
            lives = guarded & (regions.birth["seq"] < event["seq"])
            lives &= (regions.death_seq == 0) | (regions.death_seq > event["seq"])
            from_base = np.uint64(event[side]) - regions.birth["base"]
            leaves = (from_base < regions.size) & (from_base + event["bytes"] > regions.size)
            for found in np.flatnonzero(lives & leaves).tolist():
                region = int(regions.id[found])
                yield _Copy(run, process, event["seq"], region, side == "src")


def _result_without(copy: _Copy, plain: Process | None) -> int | None:
    """The result of the same copy without guards, None if it is not known which one it is."""
    if plain is None:
        return None
    columns, others = (
        process.event_columns("seq", "kind", "bytes", "result") for process in (copy.process, plain)
    )
    moves = np.flatnonzero(np.isin(columns["kind"], event_kinds.MOVE))
    number = int(np.searchsorted(columns["seq"][moves], copy.seq))
    same = np.flatnonzero(np.isin(others["kind"], event_kinds.MOVE))
    if number >= len(same):
        return None
    row, other = moves[number], same[number]
    if any(columns[name][row] != others[name][other] for name in ("kind", "bytes")):
        return None
    return int(others["result"][other])


def _of_copy(copy: _Copy, certainty: str) -> Finding:
    """The finding of a copy or a fill."""
    process, seq = copy.process, copy.seq
    call = call_of(process, seq)
    kind = f"{'read' if copy.reads else 'write'} {PAST_END}"
    memory = memory_of(process, copy.region, seq=seq)
    summary = f"{call_text(call)} {_verb(kind)} {memory_text(memory)} (the driver refuses it)."
    command = ["ttanalyze", "info", str(copy.run.path)]
    return Finding(NAME, kind, certainty, summary, call, memory, command=command)
