"""Whether the program uses memory that it did not write: it then does something else where new
memory holds something else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.core.writers import INDIRECT, writers
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.check import determinism, difference, fills, values, zoom
from ttanalyze.verbs.check.difference import HOST_SRC, call_text
from ttanalyze.verbs.check.fills import Dependent, Same
from ttanalyze.verbs.check.findings import (
    CLEAN,
    CONFIRMED,
    FOUND,
    NOT_COVERED,
    POSSIBLE,
    Call,
    Finding,
    Memory,
    Outcome,
)
from ttanalyze.verbs.check.naming import call_of, memory_of, memory_text, reached
from ttanalyze.verbs.check.session import PLAIN, Plan, Session, Settings
from ttanalyze.verbs.check.spacing import launch_seqs
from ttanalyze.verbs.record.series import Recording, ending

NAME = "uninitialized"
DESCRIPTION = "results that depend on memory that the program did not write"
CONTROLS = ("plain", "again")  # with zeros, as the third one
ZEROS = ("values", "fill-zero")  # either is the third control
FILLS = {"zero": "zero", "ones": "ones", "pattern-1": "pattern:1", "pattern-2": "pattern:2"}
MOST = 60  # regions whose contents a closer look records, if much changes
# The run with zeros has the calls and their places: the others need none.
WITHOUT_CALLS = {"cpu_callstack": None, "params": None, "host_writes": None}
UNINITIALIZED, COPY, ORDER = "uninitialized", "uninitialized copy", "order-dependent"
OUTPUT, STATUS, LAUNCHES = "output", "exit status", "launches"


def recordings(settings: Settings) -> Plan:
    """Returns three recordings with zeros, three with other fills, and those that look closer.

    Other checks make the recordings with zeros, too.
    """
    more = 0 if settings.quick else len(FILLS) * zoom.rounds(settings)
    others = (f"fill-{name}" for name in FILLS if name != "zero")
    return Plan((*CONTROLS, *others), more, either=ZEROS)


def filled(session: Session, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the options of the recordings with each of the fills.

    Args:
        session: The session.
        options: Those of the recording with contents.
    """
    others = {f"fill-{f}": {**options, **WITHOUT_CALLS, "fill": FILLS[f]} for f in FILLS}
    del others["fill-zero"]
    return {session.either(*ZEROS): options, **others}


def examine(session: Session) -> Outcome:
    """Compares runs with different contents of new memory.

    Raises:
        Error: A recording failed.
    """
    first = session.sound(session.plain())
    options = values.sampled(first)
    little = options["contents"] == "changed"
    zeros, *others = wanted = filled(session, options)
    session.ahead(wanted)
    runs = {"zero": session.record(zeros, **options)}
    outcome = Outcome(NAME, CLEAN)
    again = [session.plain(name) for name in CONTROLS]
    controls = _controls(session, outcome, [runs["zero"], *again])
    if controls is None:
        return outcome
    runs |= {f.removeprefix("fill-"): session.record(f, **wanted[f]) for f in others}
    found = [one for name in FILLS if (one := _ended(runs["zero"], runs[name], FILLS[name]))]
    outcome.findings += found[:1]
    differs = _output(runs) if controls.output else None
    same = fills.aligned([runs[name].run for name in FILLS])
    search = _Search(session, little, controls.left_out)
    memory = search.memory(same, differs is not None)
    outcome.findings += memory
    if not memory and not found:
        outcome.findings += filter(None, [_launches(same) or differs])
    if outcome.findings:
        outcome.status, outcome.reason = FOUND, "runs with other contents of new memory differ"
        if all(finding.kind == ORDER for finding in outcome.findings):
            outcome.reason = "runs with the same contents of new memory differ"
    elif lost := next(filter(None, (p.digests_only for one in same for p in one.processes)), None):
        outcome.status, outcome.reason = NOT_COVERED, text.printable(lost)
    elif not little:
        outcome.reason = _sampled(same)
    return outcome


def _sampled(same: list[Same]) -> str:
    """How many epochs could be compared."""
    process = max((one.processes[0] for one in same), key=lambda process: len(process.epochs))
    whole = int((~process.digests_alone).sum())
    return f"contents of {whole:,} of {text.count(len(process.epochs), 'epoch')} were compared"


# ---- runs with the same contents ----


@dataclass(frozen=True)
class _Controls:
    """What runs with zeros have in common. left_out: the regions that differ, by id, and from which
    epoch on. output: whether the program prints the same.
    """

    left_out: dict[int, int]
    output: bool


def _controls(session: Session, outcome: Outcome, runs: list[Recording]) -> _Controls | None:
    """What can be compared; None, with the outcome, if nothing can."""
    first, left_out = runs[0], dict[int, int]()
    session.sound(first)
    for other in runs[1:]:
        if first.status != other.status:
            sentence = f"The program {ending(other.status)} in one of two runs with zeros."
            command = ["cat", str(other.log)]
            outcome.findings = [Finding(NAME, ORDER, CONFIRMED, sentence, command=command)]
            outcome.status, outcome.reason = FOUND, "runs with the same contents differ"
            return None
        session.sound(other)
        report = difference.compare(first.run, other.run, every=True)
        if report is None:
            outcome.status = NOT_COVERED
            outcome.reason = "nothing to compare: no epoch holds memory, and no call was recorded"
            return None
        outcome.launches, outcome.bytes = determinism.coverage(first, report)
        differing = [d for process in report.processes for d in process.divergences]
        for d in differing:
            left_out[d.region_a] = min(d.epoch_a, left_out.get(d.region_a, d.epoch_a))
        found = difference.first(session, report)
        if found is not None and not outcome.findings:
            finding = difference.finding(NAME, found, difference.Zoomed(found))
            details = {**finding.details, "kind": finding.kind}
            outcome.findings = [dataclasses.replace(finding, kind=ORDER, details=details)]
            session.partial = outcome
    return _Controls(left_out, len({one.output for one in runs}) == 1)


# ---- what the program does ----


def _ended(zero: Recording, other: Recording, fill: str) -> Finding | None:
    """Another end of the program."""
    if zero.status == other.status:
        return None
    sentence = (
        f"The program {ending(zero.status)} if new memory is zero, and "
        f"{ending(other.status)} with --fill {fill}."
    )
    return Finding(NAME, STATUS, CONFIRMED, sentence, command=["cat", str(other.log)])


def _output(runs: dict[str, Recording]) -> Finding | None:
    """Other output of the program."""
    zero = runs["zero"]
    for name, fill in FILLS.items():
        if runs[name].output == zero.output:
            continue
        sentence = f"The program prints something else if new memory is not zero (--fill {fill})."
        command = ["diff", str(zero.log), str(runs[name].log)]
        return Finding(NAME, OUTPUT, CONFIRMED, sentence, command=command)
    return None


def _launches(same: list[Same]) -> Finding | None:
    """Other launches."""
    for one in same:
        if one.whole:
            continue
        seen = [len(launch_seqs(process)) for process in one.processes]
        sentence = (
            f"The program makes other launches if new memory is not zero ({seen[0]} with zeros)."
        )
        command = ["ttanalyze", "diff", *(str(p.path.parent) for p in one.processes[:2])]
        return Finding(NAME, LAUNCHES, CONFIRMED, sentence, command=command)
    return None


# ---- memory ----


@dataclass
class _Search:
    """Looks for the first call that uses uninitialised memory."""

    session: Session
    little: bool  # changes
    left_out: dict[int, int]

    def memory(self, same: list[Same], printed: bool) -> list[Finding]:
        """The finding for memory. printed: whether the program prints something else."""
        found = self._first(same, self.left_out)
        if found is None:
            return []
        coarse = found
        self.session.partial = Outcome(
            NAME, FOUND, findings=[_finding(*coarse, coarse[1], printed)]
        )
        settings = self.session.settings
        rounds = 0 if settings.quick else zoom.rounds(settings)
        for number in range(1, rounds + 1):
            window = _window(found[1])
            if len(_writers(found[1])) <= 1:
                break
            runs = self._closer(number, window, *found)
            finer = self._first(fills.aligned(runs), dict.fromkeys(self.left_out, 0))
            if finer is None:
                break
            found = finer
            if window.each:
                break
        return [_finding(*found, coarse[1], printed)]

    def _closer(self, number: int, window: zoom.Window, same: Same, found: Dependent) -> list[Path]:
        """Records the window with each of the fills. If much changes, only the contents of memory
        that differs.
        """
        options = {**PLAIN, "contents": "changed", "epoch": window.triggers}
        if not self.little:
            others = sorted(fills.differing(same, found.epoch) - {found.region})
            if len(others) >= MOST:
                self.session.say(f"contents of {MOST} of {len(others) + 1} regions are looked at")
            chosen = sorted([found.region, *others[: MOST - 1]])
            options["control"] = f"regions={','.join(map(str, chosen))}"
        wanted = {
            f"fill-zoom-{number}-{name}": {**options, "fill": value}
            for name, value in FILLS.items()
        }
        self.session.ahead(wanted)
        return [self.session.record(name, **given).run for name, given in wanted.items()]

    def _first(self, same: list[Same], left_out: dict[int, int]) -> tuple[Same, Dependent] | None:
        """The first dependent memory: what was computed goes before what was copied."""
        found = [(one, d) for one in same for d in fills.dependent(one, left_out)]
        found = [pair for pair in found if not self._ignored(pair[1])]
        return min(found, key=lambda pair: not pair[1].computed, default=None)

    def _ignored(self, found: Dependent) -> bool:
        memory = memory_of(found.process, found.region)
        return self.session.ignored(memory.name, memory.line)


def _window(found: Dependent) -> zoom.Window:
    seqs = launch_seqs(found.process)
    ends = np.searchsorted(seqs, _calls(found), "right")
    return zoom.Window(int(ends[0]), int(ends[1]))


def _calls(found: Dependent) -> tuple[int, int]:
    """The calls that may have made the bytes: after the first of these, up to the second."""
    covered = found.process.coverage
    before = 0 if found.before is None else int(covered.whole[found.before])
    return before, int(covered.some[found.epoch])


def _writers(found: Dependent) -> list[int]:
    """The calls that may have made the bytes, the surest first. A fill depends on no memory, and a
    copy from the host only if the program computed there.
    """
    known = writers(found.process, found.region, *_calls(found))
    surest = [i for i in known.surest().tolist() if known.events["kind"][i] != KIND["set"]]
    from_host = known.events["flags"] & HOST_SRC != 0
    ranked = (
        [i for i in surest if known.how[i] < INDIRECT and not from_host[i]],
        [i for i in surest if from_host[i]],
        surest,
    )
    return [int(known.events["seq"][i]) for i in next(filter(None, ranked), [])]


def _sources(same: Same, found: Dependent, call: Call) -> list[Memory]:
    """The memory with uninitialised bytes that the call may read."""
    process = found.process
    out = []
    for region in reached(process, call.seq):
        count = _held(same, found, region)
        if count and (found.computed or region != found.region):
            out.append(memory_of(process, region, count=count, seq=call.seq))
    return out


def _held(same: Same, found: Dependent, region: int) -> int:
    """How many uninitialised bytes a region had before the call. What the call did not write has
    them afterwards, too.
    """
    epochs = [] if found.before is None else [found.before]
    epochs += [] if region == found.region else [found.epoch]
    found_there = filter(None, (fills.sorts(same, epoch, region) for epoch in epochs))
    counts = (one.unwritten.count + one.copied.count for one in found_there)
    return next(filter(None, counts), 0)


def _finding(same: Same, found: Dependent, coarse: Dependent, printed: bool) -> Finding:
    process: Process = found.process
    seqs = _writers(found)
    call = call_of(process, seqs[0]) if seqs else None
    memory = memory_of(process, found.region, found.first, found.count, _calls(found)[1])
    sources = _sources(same, found, call) if call is not None else []
    kind = UNINITIALIZED if found.computed or printed else COPY
    certainty = POSSIBLE if kind == COPY else CONFIRMED
    by = call_text(call) if call is not None else "The program"
    if len(seqs) > 1:
        by = f"One of {len(seqs)} calls, most likely {by},"
    what = "uses" if found.computed else "copies"
    read = " or ".join(memory_text(one) for one in sources[:3])
    read = f" of {read}" if read else ""
    summary = f"{by} {what} uninitialised bytes{read}; {memory_text(memory)} depends on them."
    if printed:
        summary += " The program prints something else if new memory is not zero."
    command = ["ttanalyze", "diff", *(str(one.path.parent) for one in same.processes[:2])]
    step = f"epoch {coarse.epoch} of {coarse.process.path.parent}"
    details = {"sources": [dataclasses.asdict(one) for one in sources], "calls": len(seqs)}
    return Finding(NAME, kind, certainty, summary, call, memory, step, command, details)
