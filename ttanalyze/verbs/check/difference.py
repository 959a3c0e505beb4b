"""Where two runs first differ, and which call makes the difference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttanalyze.code.demangle import readable
from ttanalyze.errors import Error
from ttanalyze.format import layout, open_run
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.check.findings import CONFIRMED, POSSIBLE, Call, Finding
from ttanalyze.verbs.check.naming import call_of, memory_of, memory_text
from ttanalyze.verbs.check.session import Session
from ttanalyze.verbs.diff import DiffReport, Divergence, ProcessDiff, Suspect, diff
from ttanalyze.verbs.diff.report import Stretch

HOST_SRC = layout.constant("TT_EVENTF_HOST_SRC")
# Kinds of findings, and what each says of a call.
PARAMETERS, INPUT, RESULT, LAUNCHES = "parameters", "host input", "result", "launches"


@dataclass(frozen=True)
class Difference:
    """The first difference of two runs. divergence: of memory, if any; stretch: launches that only
    one run has, if they come before that.
    """

    report: DiffReport
    process: ProcessDiff
    divergence: Divergence | None
    stretch: Stretch | None


def compare(a: Path, b: Path, every: bool = False) -> DiffReport | None:
    """Compares two runs; None if there is nothing to compare."""
    try:
        return diff(a, b, every=every)
    except Error as e:
        if "nothing to compare" not in str(e):
            raise
        return None


def first(session: Session, report: DiffReport) -> Difference | None:
    """The first difference that --ignore does not leave out; None if the runs agree."""
    if session.settings.ignore:
        report = diff(report.a, report.b, every=True)
    for process in report.processes:
        run = open_run(Path(report.a)).process(process.process_a)
        divergences = [d for d in process.divergences if not d.leftover]
        divergence = next((d for d in divergences if not _ignored(session, run, d)), None)
        stretch = _stretch(session, run, process, divergence)
        if divergence is not None or stretch is not None:
            return Difference(report, process, divergence, stretch)
    return None


def _ignored(session: Session, run: Process, found: Divergence) -> bool:
    memory = memory_of(run, found.region_a)
    names = [found.label, found.tensor, memory.name, memory.line]
    writers = [suspect.kernel for suspect in found.suspects if suspect.kernel]
    return session.ignored(*names) or (
        len(writers) == found.suspect_count and all(session.ignored(one) for one in writers)
    )


def _stretch(
    session: Session, run: Process, process: ProcessDiff, divergence: Divergence | None
) -> Stretch | None:
    """The first launches that only one run has, if memory did not differ before."""
    if process.launches is None:
        return None
    for stretch in process.launches.stretches:
        kernels = [*stretch.kernels_a, *stretch.kernels_b]
        if all(session.ignored(kernel) for kernel in kernels):
            continue
        seq = stretch.seq_a
        if divergence is None or seq is None:
            return stretch if divergence is None else None
        return stretch if seq <= int(run.coverage.some[divergence.epoch_a]) else None
    return None


# ---- the finding ----


def finding(check: str, found: Difference) -> Finding:
    """Names the call that makes the difference."""
    if found.stretch is not None:
        return _of_launches(check, found, found.stretch)
    assert found.divergence is not None
    return _of_memory(check, found, found.divergence)


def _of_launches(check: str, found: Difference, stretch: Stretch) -> Finding:
    side = "a" if stretch.seq_a is not None else "b"
    run, process, seq = (
        (found.report.a, found.process.process_a, stretch.seq_a)
        if side == "a"
        else (found.report.b, found.process.process_b, stretch.seq_b)
    )
    assert seq is not None
    call = call_of(open_run(Path(run)).process(process), seq)
    before = stretch.before_a if stretch.before_a is not None else stretch.before_b
    where = f" after {text.count(before, 'launch', 'launches')}" if before else ""
    if stretch.kind == "changed":
        summary = f"{call_text(call)} has another shape in another run."
    elif stretch.count_a and stretch.count_b:
        summary = f"Runs make other launches{where}: {call_text(call)} is the first."
    else:
        summary = f"Only one of two runs makes {call_text(call)}{where}."
    details = {"launches_a": stretch.kernels_a, "launches_b": stretch.kernels_b}
    command = diff_command(found.report)
    return Finding(check, LAUNCHES, CONFIRMED, summary, call, command=command, details=details)


def _of_memory(check: str, found: Difference, d: Divergence) -> Finding:
    runs = [open_run(Path(path)) for path in (found.report.a, found.report.b)]
    sides = [
        runs[0].process(found.process.process_a),
        runs[1].process(found.process.process_b),
    ]
    seq = int(sides[0].coverage.some[d.epoch_a])
    at, count = (d.bytes.first, d.bytes.count) if d.bytes is not None else (None, None)
    memory = memory_of(sides[0], d.region_a, at, count, seq)
    details: dict[str, Any] = {"epoch_a": d.epoch_a, "epoch_b": d.epoch_b, "notes": d.notes}
    details["suspect_count"] = d.suspect_count
    command = diff_command(found.report)
    if not d.suspects:
        summary = f"{memory_text(memory)} differs, but no recorded call wrote to it."
        kind, certainty, call = RESULT, POSSIBLE, None
    else:
        suspect = d.suspects[0]
        kind, what = _cause(suspect, sides[0])
        side = 0 if suspect.seq_a is not None else 1
        call = call_of(sides[side], suspect.seq_a or suspect.seq_b or 0)
        sure = d.suspect_count == 1 and kind != RESULT
        certainty = CONFIRMED if sure else POSSIBLE
        summary = f"{call_text(call)} {what}; then {memory_text(memory)} differs."
        details |= {"suspect": vars(suspect) | {"stack": None}}
        if d.suspect_count > 1:
            details["others"] = d.suspect_count - 1
    step = f"epoch {d.epoch_a}" + (f" ({d.epoch_label})" if d.epoch_label else "")
    return Finding(check, kind, certainty, summary, call, memory, step, command, details)


def _cause(suspect: Suspect, process: Process) -> tuple[str, str]:
    """The kind of a finding, and what it says of the call."""
    if suspect.alone:
        return LAUNCHES, "is made by only one of two runs"
    if suspect.parameters == "different":
        assert suspect.parameters_a is not None and suspect.parameters_b is not None
        a, b = suspect.parameters_a, suspect.parameters_b
        at = suspect.parameter_offset or 0
        return (
            PARAMETERS,
            f"has other parameters: bytes from {at} are {a} in one run, {b} in another",
        )
    if suspect.kind == "copy" and suspect.seq_a is not None:
        event = process.events_between(suspect.seq_a - 1, suspect.seq_a)[0]
        if event["flags"] & HOST_SRC:
            return INPUT, "copies other data from the host"
    if suspect.kind == "launch" and suspect.parameters == "same":
        return RESULT, "has the same parameters, but another result"
    return RESULT, "has another result"


def call_text(call: Call) -> str:
    """ "add (call 12, train.py:3 in step)"."""
    what = readable(call.kernel) if call.kernel else call.call or call.kind
    where = f", {call.line}" if call.line else ""
    return f"{what} (call {call.seq}{where})"


def diff_command(report: DiffReport) -> list[str]:
    """Shows all that differs."""
    return ["ttanalyze", "diff", report.a, report.b]
