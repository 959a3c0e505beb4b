"""Whether the program does the same in each run, and what makes it differ."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import layout, open_run
from ttanalyze.verbs.check import difference, zoom
from ttanalyze.verbs.check.findings import (
    CLEAN,
    CONFIRMED,
    FOUND,
    NOT_COVERED,
    Finding,
    Outcome,
)
from ttanalyze.verbs.check.instructions import Culprit, Traced, addresses, with_instructions
from ttanalyze.verbs.check.session import PLAIN, Plan, Session, Settings
from ttanalyze.verbs.check.spacing import launch_seqs
from ttanalyze.verbs.diff import DiffReport
from ttanalyze.verbs.record.run import TIMED_OUT
from ttanalyze.verbs.record.series import Recording, ending

NAME = "determinism"
DESCRIPTION = "runs that do not do the same: other parameters, inputs, launches or results"
ON_DEVICE = [
    number
    for number, kind in enumerate(layout.REGION_KINDS)
    if kind and kind not in ("host", "host-registered")
]


def recordings(settings: Settings) -> Plan:
    """Returns the recordings that are compared."""
    return Plan(("plain", *_names(settings)), 0 if settings.quick else 2 * zoom.rounds(settings))


def _names(settings: Settings) -> list[str]:
    return ["again", *(f"again-{number}" for number in range(2, settings.runs))]


def examine(session: Session) -> Outcome:
    """Compares recordings of digests until two differ, and finds what makes them differ.

    Raises:
        Error: A recording failed.
    """
    began = time.monotonic()
    settings = session.settings
    session.ahead(dict.fromkeys(("plain", *_names(settings)), PLAIN))
    first = session.plain()
    if first.status == TIMED_OUT:
        session.sound(first)
    more = (f"again-{number}" for number in itertools.count(settings.runs))
    agreed = 0
    outcome = Outcome(NAME, CLEAN)
    for name in itertools.chain(_names(settings), more):
        if agreed >= settings.runs - 1 and time.monotonic() - began >= settings.seconds:
            break
        outcome = _compare(session, outcome, first, session.plain(name))
        if outcome.status != CLEAN:
            if agreed and outcome.findings:
                after = f"after {agreed + 1} runs that agree"
                outcome.reason = ", ".join(filter(None, [outcome.reason, after]))
            return outcome
        agreed += 1
        session.partial = replace(outcome, reason=_agreed(session, agreed))
        if agreed > 1:
            session.forget(name)
    outcome.reason = _agreed(session, agreed)
    return outcome


def _agreed(session: Session, agreed: int) -> str:
    reason = confidence(agreed)
    return f"but for what --ignore leaves out, {reason}" if session.settings.ignore else reason


def confidence(agreed: int) -> str:
    """Returns what it means that so many runs agree with the first one.

    If a larger share of runs differed, one would have shown with 95 % confidence. Two digits,
    rounded up.
    """
    percent = 100 * (1 - 0.05 ** (1 / agreed))
    scale = 10.0 ** (1 - math.floor(math.log10(percent)))
    bound = math.ceil(percent * scale) / scale
    return f"{agreed + 1} runs agree: less than {bound:.2g} % of runs differ (95 % confidence)"


def _compare(session: Session, outcome: Outcome, first: Recording, other: Recording) -> Outcome:
    """The outcome after another recording."""
    if not other.run.exists():  # of an earlier call: it was removed because it agreed
        return outcome
    faults = [session.fault(one) for one in (first, other)]
    if first.status != other.status:
        sentence = (
            f"The program {ending(first.status)} in one run and {ending(other.status)} in another."
        )
        command = ["cat", str(other.log if other.status else first.log)]
        outcome.status = FOUND
        outcome.findings = [Finding(NAME, "exit status", CONFIRMED, sentence, command=command)]
        return outcome
    for fault in filter(None, faults):
        raise Error(fault)
    report = difference.compare(first.run, other.run)
    if report is None:
        outcome.status = NOT_COVERED
        outcome.reason = "nothing to compare: no epoch holds memory, and no call was recorded"
        return outcome
    outcome.launches, outcome.bytes = coverage(first, report)
    found = difference.first(session, report)
    if found is None and (more := difference.beside_memory(NAME, session, report)):
        outcome.status, outcome.reason = FOUND, "two runs differ"
        outcome.findings = [more]
    if found is None:
        return outcome
    outcome.status, outcome.reason = FOUND, "two runs differ"
    zoomed = difference.Zoomed(found)
    outcome.findings = [difference.finding(NAME, found, zoomed)]
    session.partial = outcome
    if not session.settings.quick:
        zoomed = zoom.zoom(session, found)
        outcome.findings = [difference.finding(NAME, found, zoomed)]
        session.partial = outcome
        outcome.findings = [_with_instruction(session, outcome.findings[0], zoomed)]
    return outcome


def _with_instruction(session: Session, found: Finding, zoomed: difference.Zoomed) -> Finding:
    """The finding with the instruction that writes the first byte that differs."""
    d, memory = zoomed.found.divergence, found.memory
    if found.kind != difference.RESULT or d is None or memory is None or memory.first is None:
        return found
    process = zoomed.found.side(0)
    suspect = difference.culprit(zoomed.found)
    if suspect is None or memory.region != d.region_a:  # only both runs together tell
        return found
    at = addresses(process, memory.region, memory.first, 1)
    where = Traced("determinism-trace", process, at, PLAIN)
    culprit = Culprit(suspect.seq_a, kernel=zoomed.node)
    return with_instructions(session, found, where, {"instruction": culprit})


def coverage(recording: Recording, report: DiffReport) -> tuple[float | None, float | None]:
    """The shares of launches whose results an epoch has, and of the allocated bytes that an epoch
    has.
    """
    launches = seen = size = held = 0
    matched = {found.process_a for found in report.processes}
    for process in open_run(recording.run).processes:
        seqs = launch_seqs(process)
        launches += len(seqs)
        usable = process.epochs["flags"] & layout.REFUSED == 0
        if process.index in matched and usable.any():
            last = int(process.coverage.whole[usable].max())
            seen += int(np.searchsorted(seqs, last, "right"))
        regions = process.regions
        device = np.isin(regions.birth["kind"], ON_DEVICE)
        size += int(regions.size[device].sum())
        has_epoch = np.searchsorted(np.flatnonzero(usable), [regions.born, regions.died])
        good = device & (regions.flags & layout.CAPTURED != 0) & (has_epoch[1] > has_epoch[0])
        held += int(regions.size[good].sum()) if process.index in matched else 0
    return (seen / launches if launches else None), (held / size if size else None)
