"""How the report of `check` looks on a screen."""

from __future__ import annotations

from ttanalyze.output import text
from ttanalyze.verbs.check.findings import CLEAN, FOUND, CheckReport, Finding, Outcome
from ttanalyze.verbs.check.instructions import instruction_text

HEAD = ["check", "result", "launches", "bytes", ""]
INSTRUCTIONS = {"instruction": "instruction", "other_instruction": "other"}
COLOURS = {FOUND: "red", CLEAN: "green"}


def check_text(report: CheckReport, colour: bool = False, width: int = 0) -> str:
    """Returns a table of the checks, and then each finding."""
    reasons = [outcome.reason for outcome in report.outcomes]
    shared = reasons[0] if len(reasons) > 1 and len({*reasons}) == 1 else ""
    rows = [HEAD, *(_row(outcome, "" if shared else outcome.reason) for outcome in report.outcomes)]
    lines = text.table(rows, {2, 3}, width).split("\n")
    for i, outcome in enumerate(report.outcomes, 1):
        if outcome.status in COLOURS:
            shown = text.coloured(outcome.status, COLOURS[outcome.status], colour)
            lines[i] = lines[i].replace(outcome.status, shown, 1)
    if shared:
        lines += ["", shared]
    for number, finding in enumerate(report.findings, 1):
        lines += ["", *_finding(number, finding)]
    if report.interrupted:
        lines += ["", f"interrupted; the same command with -o {report.folder} goes on"]
    return "\n".join(lines)


def _row(outcome: Outcome, reason: str) -> list[str]:
    shares = [outcome.launches, outcome.bytes]
    found = len(outcome.findings)
    status = f"{outcome.status} ({found})" if found > 1 else outcome.status
    return [outcome.check, status, *map(_share, shares), reason]


def _share(value: float | None) -> str:
    if value is None:
        return "-"
    percent = 100 * value
    return f"{percent:.0f} %" if percent in (0, 100) else f"{min(max(percent, 0.1), 99.9):.1f} %"


def _finding(number: int, found: Finding) -> list[str]:
    rows = [("", f"{found.certainty}: {found.summary}")]
    if found.call is not None:
        rows.append(("call", f"{found.call.seq} of process {found.call.process}"))
        if found.call.range:
            rows.append(("range", found.call.range))
        if found.call.stack:
            rows.append(("stack", "\n".join(reversed(found.call.stack))))
    if found.memory is not None and found.memory.count is not None:
        of = text.count(found.memory.count, "byte")
        rows.append(("bytes", f"{of} from byte {found.memory.first} of {found.memory.name}"))
    for name, title in INSTRUCTIONS.items():
        if name in found.details:
            rows.append((title, instruction_text(found.details[name])))
    if "neighbour" in found.details:
        rows.append(("next to", found.details["neighbour"]))
    if found.step:
        rows.append(("step", found.step))
    if found.command:
        rows.append(("more", text.command(found.command)))
    rows[0] = (f"{number}. {found.check}", rows[0][1])
    return text.rows(rows).split("\n")
