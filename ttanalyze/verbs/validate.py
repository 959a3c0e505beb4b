"""The results of `ttanalyze validate` as text and JSON."""

from __future__ import annotations

from typing import Any

from ttanalyze.output import text
from ttanalyze.schemas import Report, validate
from ttanalyze.schemas.files import MOST, RECORDS

__all__ = ["report_text", "to_object", "validate"]


def report_text(report: Report) -> str:
    """Returns one line per fault, or one line that there is none."""
    name = text.printable(report.path)
    if report.good:
        what = "record" if report.kind in RECORDS else "document"
        return f"{name}: {report.kind}, {text.count(report.checked, what)}: good"
    lines = [f"{name}: {fault}" for fault in report.faults]
    if report.more:
        lines.append(f"{name}: and more than {MOST:,} faults")
    return "\n".join(lines)


def to_object(report: Report) -> dict[str, Any]:
    """Returns the report for `--json`."""
    return {
        "path": report.path,
        "kind": report.kind,
        "checked": report.checked,
        "good": report.good,
        "more": report.more,
        "faults": [{"line": f.line, "where": f.where, "reason": f.reason} for f in report.faults],
    }
