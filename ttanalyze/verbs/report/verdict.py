"""The first thing on a page: what came of the recording."""

from __future__ import annotations

from dataclasses import dataclass, field

from ttanalyze.core.crash_report import crash_report_text
from ttanalyze.format import statuses
from ttanalyze.output import text
from ttanalyze.verbs.info import Info, ProcessSummary

GOOD, UNSURE, BAD = "same", "unsure", "different"
REPORTS = 4  # crash reports on the page


@dataclass(frozen=True)
class Verdict:
    """What the page says first.

    Attributes:
        kind: GOOD, UNSURE or BAD: the class of its style.
        line: One sentence.
        reports: Crash reports as text, each with a title.
        more: The number of further crash reports.
    """

    kind: str
    line: str
    reports: list[tuple[str, str]] = field(default_factory=list)
    more: int = 0


def verdict(overview: Info, warnings: list[str], launches: int) -> Verdict:
    """Returns the verdict on a recording.

    Args:
        overview: What `info` returns.
        warnings: What is missing, a line each.
        launches: The number of launches.
    """
    processes = overview.processes
    reports = [
        (f"Process {p.process}: crash report", crash_report_text(report, p.pid))
        for p in processes
        for report in p.incidents
    ]
    shown, more = reports[:REPORTS], max(0, len(reports) - REPORTS)
    epochs = sum(p.epochs for p in processes)
    events = sum(p.events for p in processes)
    seen = f"{text.count(launches, 'launch', 'launches')} and {text.count(epochs, 'epoch')}"
    if not processes or not (epochs or events):
        return Verdict(BAD, "Nothing was recorded.", shown, more)
    ended = [p for p in processes if p.status != statuses.COMPLETE]
    if reports:
        first, _, _ = reports[0][1].partition("\n")
        return Verdict(BAD, f"{first}. Recorded until then: {seen}.", shown, more)
    if ended:
        line = " ".join(dict.fromkeys(map(_ending, ended)))
        return Verdict(BAD, f"{line} Recorded until then: {seen}.")
    if warnings:
        notes = text.count(len(warnings), "warning")
        return Verdict(UNSURE, f"The recording is complete, with {notes}: {seen}.")
    return Verdict(GOOD, f"The recording is complete: {seen}. Nothing is missing.")


def _ending(process: ProcessSummary) -> str:
    reason = text.printable(process.reason or "no reason given")
    if process.status == statuses.KILLED:
        return "The program was killed."
    if process.status == statuses.RUNNING:
        return "The program was killed, or still runs."
    if process.status in statuses.WITH_THE_PROCESS:
        return f"The program ended by {reason}."
    return f"Recording stopped early: {reason}."
