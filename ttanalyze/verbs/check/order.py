"""Whether calls of different streams reach the same memory without an order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ttanalyze.core.host_writes import SOURCE_CHANGE
from ttanalyze.core.order import ALLOC, CAPTURING, FREE, GRAPH_LAUNCH, PER_THREAD, Event, plain
from ttanalyze.core.reach import ATOMIC, MAY_WRITE, READS, WRITES, Uses
from ttanalyze.core.unordered import Side, Unordered, find_unordered
from ttanalyze.disassembly.kernel_uses import kernel_uses
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, open_run
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.output.files import private, replacing
from ttanalyze.traces.accesses import STORES
from ttanalyze.verbs.check import difference, host_writes
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
from ttanalyze.verbs.check.traced_uses import MOST as TRACED
from ttanalyze.verbs.check.traced_uses import traced_uses
from ttanalyze.verbs.record.series import Recording

NAME = "order"
DESCRIPTION = "calls of different streams that reach the same memory, with nothing ordering them"
LISTED = 50  # findings
TRIED = 3  # of these, with a delay
DELAY_NS = 100_000_000
CHEAP = {"max_overhead": "1%"}  # pairs are found without epochs
# Kinds of events that the recorder may delay: what numbers in delays.json count.
DELAYABLE = tuple(kind for kind in event_kinds.WORK if kind != KIND["mem-op"])
LAUNCH = KIND["launch"]
NAMES = {READS: "read", WRITES: "write", ATOMIC: "atomic", MAY_WRITE: "access"}
ACCESSES = {READS: ("load",), WRITES: STORES, ATOMIC: ("atomic",), MAY_WRITE: ("load", *STORES)}
VERBS = {READS: "reads", WRITES: "writes", ATOMIC: "atomically updates", MAY_WRITE: "accesses"}


@dataclass(frozen=True)
class Pair:
    """Two calls without an order, in a process of the recording."""

    process: Process
    calls: Unordered
    uses: Uses


def recordings(settings: Settings) -> Plan:
    """The plain recording, or one with fewer epochs if no other check needs that.

    More trace kernels, one is without delays, some have one delay each, and one traces the first
    pair.
    """
    return Plan((), 0 if settings.quick else 2 + TRIED + TRACED, either=("plain", NAME))


def examine(session: Session) -> Outcome:
    """Looks for pairs of calls in one recording, and delays the first call of some of them."""
    recording = session.sound(_recorded(session))
    outcome, pairs = Outcome(NAME, CLEAN), list[Pair]()
    launches = known = lanes = traced = 0
    refused: list[str] = []
    run = open_run(recording.run)
    for process in run.processes:
        uses, in_streams = kernel_uses(run, process, refused), _lanes(process)
        if in_streams > 1 and not session.settings.quick:
            uses, count = traced_uses(session, process, uses)
            traced += count
        if in_streams > 1 or _unordered_in_one_stream(process):
            found = find_unordered(process, every=session.settings.every, uses=uses)
            pairs += [Pair(process, one, uses) for one in found]
        counted = _coverage(process, uses)
        launches, known = launches + counted[0], known + counted[1]
        lanes = max(lanes, in_streams)
    outcome.launches = known / launches if launches else None
    if launches > known:
        _add(outcome, f"unknown accesses of {text.count(launches - known, 'launch', 'launches')}")
        _add(outcome, refused[0] if refused else "")
    if traced:
        kernels = text.count(traced, "kernel")
        _add(outcome, f"of {kernels}, the accesses are those of one traced launch")
    if pairs:
        outcome.status = FOUND
        outcome.findings = [_finding(recording, pair) for pair in pairs[:LISTED]]
        if len(pairs) > LISTED:
            _add(outcome, f"{text.count(len(pairs) - LISTED, 'more pair')} not listed")
        session.partial = outcome
        if not session.settings.quick:
            _confirm(session, recording, pairs, outcome)
            outcome.findings[0] = _with_instructions(session, outcome.findings[0], pairs[0])
    elif lanes > 1 and launches and not known:
        outcome.status = NOT_COVERED
    elif lanes < 2:
        _add(outcome, "all work is in one stream")
    return outcome


def _recorded(session: Session) -> Recording:
    name = session.either("plain", NAME)
    limits = {**session.budget, **CHEAP} if name == NAME and session.budget else {}
    return session.plain(name, **limits)


def _add(outcome: Outcome, reason: str) -> None:
    outcome.reason = "; ".join(filter(None, [outcome.reason, reason]))


def _coverage(process: Process, uses: Uses) -> tuple[int, int]:
    """The number of launches, and of those whose memory is known by parameters and code."""
    columns = process.event_columns("kind", "id", "params", "params_size", "result", "flags")
    launched = (columns["kind"] == LAUNCH) & (columns["result"] == 0)
    launched &= columns["flags"] & CAPTURING == 0
    functions, counts = np.unique(
        columns["id"][launched & ((columns["params"] != 0) | (columns["params_size"] == 0))],
        return_counts=True,
    )
    known = sum(
        count
        for function, count in zip(functions.tolist(), counts.tolist(), strict=True)
        if uses(function) is not None
    )
    return int(launched.sum()), known


def _lanes(process: Process) -> int:
    """In how many streams work was."""
    columns = process.event_columns("kind", "context", "stream", "thread")
    work = np.isin(columns["kind"], event_kinds.WORK)
    thread = np.where(columns["stream"] == PER_THREAD, columns["thread"], 0)
    lanes = np.stack([columns["context"], columns["stream"], thread], 1)[work]
    return len(np.unique(lanes, axis=0))


def _unordered_in_one_stream(process: Process) -> bool:
    """Whether there is what work of a single stream may have no order with: nodes of a graph, the
    host, and memory that is allocated and freed in the order of streams.
    """
    columns = process.event_columns("kind", "stream")
    other = np.isin(columns["kind"], (GRAPH_LAUNCH, SOURCE_CHANGE))
    other |= np.isin(columns["kind"], (ALLOC, FREE)) & (columns["stream"] != 0)
    return bool(other.any())


# ---- the finding ----


def _finding(recording: Recording, pair: Pair) -> Finding:
    process, found = pair.process, pair.calls
    low, high = found.first.call.event.seq, found.second.call.event.seq
    between = f"seq.between({low}, {high}) and process == {process.index}"
    command = ["ttanalyze", "query", str(recording.run), "--filter", between]
    if found.second.call.event.kind == SOURCE_CHANGE:
        return host_writes.finding(NAME, process, found, pair.uses, command)
    one, other = (_named(process, side) for side in (found.first, found.second))
    if one.seq > other.seq:  # nodes of a graph, captured in the other order
        found = replace(found, first=found.second, second=found.first)
        one, other = other, one
    region = int(process.regions.id[found.row])
    count = found.high - found.low if _exact(found) else None
    memory = memory_of(process, region, found.low, count, found.second.call.event.seq)
    kind = f"{_name(found.second)} after {_name(found.first)}"
    missing = _missing(process, found)
    summary = (
        f"{call_text(other)} {_verb(found.second)} {memory_text(memory)} and {call_text(one)} "
        f"{_verb(found.first)} it, in any order: {missing}."
    )
    details: dict[str, Any] = {"other": asdict(one), "missing": missing, "times": found.times}
    details |= {"streams": [one.stream, other.stream], "sure": found.sure}
    return Finding(
        NAME, kind, POSSIBLE, summary, other, memory, _step(process, found), command, details
    )


def _exact(found: Unordered) -> bool:
    """Whether both calls say how many bytes they reach."""
    return all(side.access.high == side.access.end for side in (found.first, found.second))


def _name(side: Side) -> str:
    kind = side.call.event.kind
    return {ALLOC: "allocation", FREE: "free"}.get(kind) or NAMES[side.access.mode]


def _verb(side: Side) -> str:
    return {ALLOC: "allocates", FREE: "frees"}.get(side.call.event.kind) or VERBS[side.access.mode]


def _named(process: Process, side: Side) -> Call:
    """The call; of a node of a graph the captured one, if it is known."""
    event = side.call.event
    if side.access.node < 0:
        return call_of(process, event.seq)
    return call_of_node(process, event.id, event.seq, side.access.node)


def _missing(process: Process, found: Unordered) -> str:
    first, second = found.first.call.event, found.second.call.event
    if found.first.call is found.second.call:
        nodes = f"{found.first.access.node} and {found.second.access.node}"
        return f"no edges order nodes {nodes} of graph {first.id}"
    same = first.stream == second.stream
    streams = [
        f"stream {event.stream}"
        + (f" of thread {event.thread}" if same and event.stream == PER_THREAD else "")
        + (f" of context {event.context}" if first.context != second.context else "")
        for event in (first, second)
    ]
    return f"{streams[1]} does not wait for {streams[0]} after call {first.seq}"


def _step(process: Process, found: Unordered) -> str | None:
    """The first epoch after both calls."""
    epochs = process.epochs
    after = np.flatnonzero(epochs["seq"] >= found.second.call.event.seq)
    return f"epoch {int(after[0])}" if len(after) else None


def _with_instructions(session: Session, found: Finding, pair: Pair) -> Finding:
    """The finding with the instructions of both launches."""
    process, one = pair.process, pair.calls
    at = addresses(process, int(process.regions.id[one.row]), one.low, one.high - one.low)
    sides = {"instruction": one.second, "other_instruction": one.first}
    culprits = {
        name: Culprit(
            side.call.event.seq,
            ACCESSES[side.access.mode],
            None if side.access.node < 0 else side.access.node,
        )
        for name, side in sides.items()
    }
    return with_instructions(session, found, Traced("order-trace", process, at, PLAIN), culprits)


# ---- with a delay ----


def _confirm(
    session: Session, recording: Recording, pairs: Sequence[Pair], outcome: Outcome
) -> None:
    """Marks the findings of which a delay changes what the program does."""
    ran: dict[str, tuple[Path, Recording, bool]] = {}  # by delayed call
    for at, pair in enumerate(pairs[:LISTED]):
        for event, where in _delayable(pair):
            found = outcome.findings[at]
            if found.certainty == CONFIRMED:
                break
            delays = _delays(pair.process, event, where)
            (call,) = delays["launches"]
            if call not in ran:
                if len(ran) == TRIED:
                    return
                if not ran and _differs(session, recording, session.plain("again")):
                    _add(outcome, "no delay was tried, as runs differ without any")
                    return
                name = f"order-{len(ran) + 1}"
                path = session.folder / f"{name}.json"
                with replacing(path, private) as file:
                    file.write(orjson.dumps(delays, option=orjson.OPT_INDENT_2))
                late = session.plain(name, delay_load=str(path))
                ran[call] = path, late, _differs(session, recording, late)
            path, late, differs = ran[call]
            if differs:
                outcome.findings[at] = replace(
                    found,
                    certainty=CONFIRMED,
                    summary=f"{found.summary} A delay of call {event.seq} changes the result.",
                    command=["ttanalyze", "diff", str(recording.run), str(late.run)],
                    details={**found.details, "delays": str(path)},
                )


def _delayable(pair: Pair) -> list[tuple[Event, str]]:
    """The calls whose delay changes the order of a pair, and what to delay: the stream of the
    first call. If the host is the second, also the host at its next call, after which it writes.
    """
    first, second = pair.calls.first.call.event, pair.calls.second.call.event
    if first is second or first.kind not in DELAYABLE:
        return []
    found = [(first, "stream")]
    if second.kind == SOURCE_CHANGE:
        between = plain(pair.process.events_between(first.seq, second.seq))
        called = (e for e in between if e.kind in DELAYABLE and e.thread == first.thread)
        found += [(event, "host") for event in itertools.islice(called, 1)]
    return found


def _delays(process: Process, event: Event, where: str) -> dict[str, Any]:
    """A delay of one call."""
    columns = process.event_columns("seq", "kind", "stream", "context", "thread")
    earlier = (columns["seq"] < event.seq) & np.isin(columns["kind"], DELAYABLE)
    for name in ("stream", "context", *(("thread",) if event.stream == PER_THREAD else ())):
        earlier &= columns[name] == getattr(event, name)
    number = int(earlier.sum())
    call = {"stream": event.stream, "number": number, "delay": DELAY_NS, "on": True}
    return {
        "version": "1.0",
        "delay_ns": DELAY_NS,
        "kernels": {},
        "launches": {f"{event.stream}:{number}": {**call, "where": where}},
    }


def _differs(session: Session, recording: Recording, other: Recording) -> bool:
    """Whether the program did something else."""
    if other.status != recording.status or other.output != recording.output:
        return True
    if not Path(other.run).exists():
        return False
    try:
        report = difference.compare(recording.run, other.run)
    except Error:
        return False
    found = None if report is None else difference.first(session, report)
    return found is not None and found.divergence is not None
