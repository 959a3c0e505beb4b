"""What the trace of a launch lacks."""

from __future__ import annotations

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
    for name, what in (("BLOCKS", "blocks"), ("INSTRUCTIONS", "instructions")):
        if options.get(f"TT_INSTRUMENT_{name}"):
            out.append(f"only {what} {options[f'TT_INSTRUMENT_{name}']} were traced")
    return out
