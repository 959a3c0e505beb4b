"""Where the first NaN and the first infinity come from."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.core.graph_epochs import node_after_which
from ttanalyze.core.values import Type, parse
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, layout, open_run
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.traces.accesses import Access
from ttanalyze.verbs.blame import Condition, Sighting, watch
from ttanalyze.verbs.check import unwritten
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
from ttanalyze.verbs.check.work import Work, work_on
from ttanalyze.verbs.record.series import Recording

NAME = "values"
DESCRIPTION = "the first NaN and the first infinity, and the call that made it"
CONTENTS = {**PLAIN, "contents": "changed"}
MOST = 2 << 30  # bytes that a recording stores; of more, some epochs have contents
ROUNDS = 3  # that look for the epoch between two with contents
WORDS = {"nan": "NaN", "inf": "infinity"}
ANYWHERE = ("f32", "f64", "f16", "bf16")
Wider = set[tuple[int, int]]  # as `watch` takes it
NAMED = ("e4m3", "e5m2")  # any bytes look like these
INFERRED = ("f16", "bf16")  # from contents, if no tensor is named


@dataclass(frozen=True)
class _Seen:
    """The first NaN or infinity in a run. sighting: None if the first epoch has it already.
    looked: the name and the options of the recording if it looked closer.
    """

    run: Path
    process: Process
    word: str
    type: Type
    sighting: Sighting | None
    looked: tuple[str, dict[str, Any]] | None = None


def recordings(settings: Settings) -> Plan:
    """Returns one recording that shows how much changes and one with contents; for each sort of
    value those that look closer, one with zones and one with a trace, and one with other contents
    of new memory for the first NaN.
    """
    return Plan(("plain", "values"), 0 if settings.quick else (ROUNDS + 3) * len(WORDS) + 1)


def sampled(plain: Recording) -> dict[str, Any]:
    """Returns the options of the recording with contents: of some epochs, if much changes.

    Args:
        plain: A recording of the same epochs.
    """
    every = max(
        (_spacing(p, 0, len(p.epochs) - 1) for p in open_run(plain.run).processes), default=1
    )
    return CONTENTS if every <= 1 else {**CONTENTS, "contents": f"every:{every}"}


def _spacing(process: Process, first: int, last: int) -> int:
    """Of how many epochs one has contents, so that all of them do not take too much space."""
    epochs = process.epochs[first : last + 1]
    if int(epochs["bytes_changed"].sum()) <= MOST:
        return 1
    snapshots = MOST // max(int(epochs["bytes_read"].max()), 1)
    return max((last - first) // max(snapshots, 1), 1)


def examine(session: Session) -> Outcome:
    """Finds the first NaN and the first infinity, and then the call that made it."""
    options = sampled(session.plain())
    recording = session.record("values", **options)
    processes = open_run(recording.run).processes
    outcome = Outcome(NAME, CLEAN)
    _cover(outcome, processes)
    wider = defaultdict[int, Wider](set)
    for number, word in enumerate(WORDS, 1):
        for process in processes:
            if not len(process.regions):
                continue
            seen = _first(outcome, recording.run, process, word, wider[process.index])
            if seen is not None and options is not CONTENTS:
                seen = _narrowed(session, outcome, seen, number)
            closer = _closer(session, outcome, seen, number) if seen else None
            seen = closer if closer is not None and closer.sighting is not None else seen
            if seen is not None and seen.sighting is None:
                _unexplained(outcome, seen)
            elif seen is not None and seen.sighting is not None:
                found = _finding(session, seen, seen.sighting)
                outcome.findings.append(_with_instruction(session, found, seen, seen.sighting))
                outcome.status = FOUND if outcome.status == CLEAN else outcome.status
                session.partial = outcome
                break
    outcome.findings.sort(key=lambda one: one.call.seq if one.call else 0)
    return outcome


def _unexplained(outcome: Outcome, seen: _Seen) -> None:
    """Says that the first epoch has such values already, and that nobody looked closer."""
    what = f"{WORDS[seen.word]} is in the first epoch already: calls before it were not searched"
    _lacks(outcome, what)


def _lacks(outcome: Outcome, what: str) -> None:
    """Says that a part was not searched. With findings the status is found after all."""
    if what not in outcome.reason:
        outcome.reason = "; ".join(filter(None, [outcome.reason, what]))
    outcome.status = NOT_COVERED


def _types(process: Process) -> list[Type]:
    """The types that are looked for: those of 8 bits only if a tensor is said to have one."""
    named = {process.strings.get(int(record["type"])) for record in process.labels.records}
    return [parse(name) for name in (*ANYWHERE, *(name for name in NAMED if name in named))]


def _first(
    outcome: Outcome,
    run: Path,
    process: Process,
    word: str,
    wider: set[tuple[int, int]] | None = None,
) -> _Seen | None:
    """The first value of a sort, of any type."""
    wider = set() if wider is None else wider
    best: _Seen | None = None
    for type_ in _types(process):
        try:
            watched = watch(process, Condition.parse(word, type_), strict=True, wider=wider)
        except Error as e:
            _lacks(outcome, str(e))
            return best
        found = watched.sighting
        if found is None:
            if watched.early and best is None and type_.name in ANYWHERE:
                best = _Seen(run, process, word, type_, None)
            continue
        if type_.name in NAMED and not any(hit.tensor for hit in found.hits):
            continue
        if best is None or best.sighting is None or found.epoch < best.sighting.epoch:
            best = _Seen(run, process, word, type_, found)
    return best


def _cover(outcome: Outcome, processes: list[Process]) -> None:
    """The share of launches before the last epoch with contents."""
    launches = seen = 0
    for process in processes:
        seqs = launch_seqs(process)
        usable = process.epochs["flags"] & (layout.REFUSED | layout.DROPPED) == 0
        usable &= ~process.digests_alone
        launches += len(seqs)
        if usable.any():
            last = int(process.coverage.whole[usable].max())
            seen += int(np.searchsorted(seqs, last, "right"))
        if process.digests_only is not None:
            outcome.status = NOT_COVERED
            outcome.reason = text.printable(process.digests_only)
    outcome.launches = seen / launches if launches else None
    if not any(len(process.epochs) for process in processes):
        outcome.status, outcome.reason = NOT_COVERED, "no epoch was captured"


def _narrowed(session: Session, outcome: Outcome, seen: _Seen, number: int) -> _Seen:
    """The same value in recordings of the epochs between the two with contents, with more of
    these.
    """
    for attempt in range(1, 1 if session.settings.quick else ROUNDS + 1):
        process, sighting = seen.process, seen.sighting
        if sighting is None or sighting.since is None or sighting.epoch - sighting.since <= 1:
            break
        every = _spacing(process, sighting.since, sighting.epoch)
        until = min(sighting.epoch + every - 1, len(process.epochs) - 1)  # a multiple, or the last
        ends = process.coverage.whole[sighting.since], process.coverage.some[until]
        first, last = np.searchsorted(launch_seqs(process), ends, "right").tolist()
        options = {**CONTENTS, "contents": f"every:{every}" if every > 1 else "changed"}
        options["epoch"] = f"{session.epochs},@{first}-{last}"
        try:
            finer = session.record(f"values-{number}-{attempt}", **options)
            same = open_run(finer.run).process(process.index)
        except Error as e:
            session.say(f"the first {WORDS[seen.word]} was not looked at closely: {e}")
            break
        found = _first(outcome, finer.run, same, seen.word)
        if found is None or found.sighting is None:
            break
        seen = found
    return seen


def _closer(session: Session, outcome: Outcome, seen: _Seen, number: int) -> _Seen | None:
    """The same value in a recording with an epoch after each call since the last epoch without."""
    if session.settings.quick:
        return None
    coverage, sighting = seen.process.coverage, seen.sighting
    since = None if sighting is None else sighting.since
    after = 0 if since is None else int(coverage.whole[since])
    until = int(coverage.some[0 if sighting is None else sighting.epoch])
    first, last = np.searchsorted(launch_seqs(seen.process), [after, until], "right").tolist()
    name = f"values-{number}"
    options = {**CONTENTS, "epoch": f"launch,memcpy,@{first}-{last};graph-node:."}
    try:
        finer = session.record(name, **options)
        process = open_run(finer.run).process(seen.process.index)
    except Error as e:
        session.say(f"the first {WORDS[seen.word]} was not looked at closely: {e}")
        return None
    found = _first(outcome, finer.run, process, seen.word)
    return None if found is None else dataclasses.replace(found, looked=(name, options))


def _work(process: Process, sighting: Sighting) -> Work | None:
    """The call, or the node of a graph, that may have stored the value; None if several may."""
    hit = sighting.hits[0]
    if hit.suspects.count != 1:
        return None
    where = hit.region, sighting.since, sighting.epoch
    return work_on(process, hit.suspects.listed[0].seq, *where)


def _likeliest(
    process: Process, work: Work | None, sighting: Sighting
) -> tuple[Call | None, int | None]:
    """The work, or one of several calls that may have stored the value, with the number of the node
    of a graph.
    """
    if work is not None:
        return work.call(), work.node
    suspects = sighting.hits[0].suspects.listed
    if not suspects:
        return None, None
    epoch, seq = sighting.epoch, suspects[0].seq
    node = node_after_which(process, epoch) if process.epochs["seq"][epoch] == seq else None
    if node is None:
        return call_of(process, seq), None
    graph = int(process.events_between(seq - 1, seq)["id"][0])
    return call_of_node(process, graph, seq, node), node


def _sources(
    session: Session, one: _Seen, work: Work | None, sighting: Sighting
) -> tuple[str, str, unwritten.Origin]:
    """The kind, if a single launch made the value of memory that nobody wrote or of bytes outside
    of allocations, what it read, and the memory; else "".
    """
    nothing = "", "", unwritten.Origin([], [])
    if one.looked is None or work is None or not sighting.hits[0].first or not work.launches:
        return nothing
    where = one.looked, work, Condition.parse(one.word, one.type), sighting
    found = unwritten.sources(session, *where) if one.word == "nan" else None
    if found is not None:
        return "uninitialized", "uninitialised bytes of", found
    left = unwritten.outside(session, *where)
    if left is None:
        return nothing
    what = "the freed memory of" if left and left[0].freed else "bytes outside of"
    near = [memory_of(one.process, allocation.region, seq=work.seq) for allocation in left]
    return "out of bounds", what, unwritten.Origin(near, [])


def _finding(session: Session, one: _Seen, sighting: Sighting) -> Finding:
    process = one.process
    hit = sighting.hits[0]
    work = _work(process, sighting)
    call, _ = _likeliest(process, work, sighting)
    item = hit.first[0] if hit.first else 0
    first = item * one.type.itemsize
    seq = int(process.coverage.some[sighting.epoch])
    memory = memory_of(process, hit.region, first, (hit.items or 1) * one.type.itemsize, seq)
    kind, what = _cause(call, WORDS[one.word], work is not None)
    who = f"{call_text(call)} {what}" if call else f"{WORDS[one.word]} appears"
    items = text.count(hit.items or 1, "item")
    special, read, origin = _sources(session, one, work, sighting)
    sources, passed = origin.memory, origin.calls
    if special:
        kind = special
        who += f" from {read} {' or '.join(map(memory_text, sources[:3])) or 'its allocations'}"
    if passed:
        who += f", passed on by {', '.join(map(call_text, passed[:3]))}"
    summary = f"{who}: {items} of {memory_text(memory)}, seen as {one.type.name}, from item {item}."
    command = ["ttanalyze", "blame", str(one.run), "--dtype", one.type.name, "--watch", one.word]
    details: dict[str, Any] = {"epoch": sighting.epoch, "dtype": one.type.name, "item": item}
    details["suspect_count"] = hit.suspects.count
    details["sources"] = [dataclasses.asdict(memory) for memory in sources]
    details["passed_on"] = [dataclasses.asdict(call) for call in passed]
    # An infinity may be meant, such as that of a mask.
    named = one.type.name not in INFERRED or hit.tensor is not None
    certainty = CONFIRMED if work is not None and named and one.word == "nan" else POSSIBLE
    step = f"epoch {sighting.epoch}"
    return Finding(NAME, kind, certainty, summary, call, memory, step, command, details)


def _with_instruction(session: Session, found: Finding, one: _Seen, sighting: Sighting) -> Finding:
    """The finding with the instruction that stored the first of these values."""
    hit = sighting.hits[0]
    call, node = _likeliest(one.process, _work(one.process, sighting), sighting)
    if not hit.first or call is None or found.call is None or call.seq != found.call.seq:
        return found
    size, condition = one.type.itemsize, Condition.parse(one.word, one.type)

    def is_such(access: Access) -> bool:
        item = (access.data or b"")[-access.begin :][:size] if access.begin <= 0 else b""
        return len(item) < size or bool(condition.test(np.frombuffer(item, "u1")).all())

    at = addresses(one.process, hit.region, hit.first[0] * size, size)
    name = f"{one.looked[0] if one.looked else NAME}-trace-{one.word}"
    where = Traced(name, one.process, at, CONTENTS, wanted=is_such)
    culprit = Culprit(hit.suspects.listed[0].seq, node=node)
    return with_instructions(session, found, where, {"instruction": culprit})


def _cause(call: Call | None, value: str, sure: bool) -> tuple[str, str]:
    if call is not None and event_kinds.KIND.get(call.kind) in event_kinds.MOVE:
        return "loaded", f"{'brings' if sure else 'may have brought'} the first {value}"
    verb = "computes" if sure else "may have computed"
    return ("computed" if call else "unknown"), f"{verb} the first {value}"
