"""What the trace of a launch lacks."""

from __future__ import annotations

from typing import Any

from ttanalyze.format import layout
from ttanalyze.format.process import Process
from ttanalyze.output import text


def missing(process: Process, index: int) -> list[str]:
    """Returns a line for each part of a launch that its trace lacks.

    Args:
        process: The process.
        index: The launch, in `process.traced`.
    """
    out = []
    summary = process.instruction_trace.summary[index]
    options = process.info.get("options", {})
    if not summary["complete"]:
        out.append("the trace ends before the launch")
    if summary["lost"]:
        out.append(f"{text.count(int(summary['lost']), 'record')} lost")
    for what in ("blocks", "instructions", "addresses"):
        if some := options.get(f"TT_INSTRUMENT_{what.upper()}"):
            out.append(f"only {what} {some} were traced")
    return out


def refused(process: Process, head: Any) -> str | None:
    """Returns why a launch was not traced, None if it was.

    Args:
        process: The process.
        head: The launch, a record of `process.traced`.
    """
    if not head["refused"]:
        return None
    text_of = int(head["text"])
    details = None if text_of == layout.NO_ID else process.strings.get(text_of)
    return details or layout.REFUSED_TRACES[int(head["refused"])]
