"""How many launches were traced, and how many were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ttanalyze.format import layout
from ttanalyze.format.process import Process
from ttanalyze.output import text


def totals(processes: Iterable[Process]) -> dict[str, Any] | None:
    """Returns `launches` that were traced, `bytes` of their traces, and how many were `refused`, by
    name. None if none was to be traced.

    Args:
        processes: The processes.
    """
    every = [*processes]
    of = Counter(int(why) for process in every for why in process.traced["refused"])
    if not of:
        return None
    refused = {layout.REFUSED_TRACES[why]: count for why, count in sorted(of.items()) if why}
    size = sum(process.instruction_trace.size for process in every)
    return {"launches": of[0], "bytes": size, "refused": refused}


def totals_text(found: dict[str, Any]) -> str:
    """Returns them in words.

    Args:
        found: What `totals` returned.
    """
    out = f"{text.count(found['launches'], 'launch', 'launches')}, {text.size(found['bytes'])}"
    if refused := found["refused"]:
        out += f"; {sum(refused.values()):,} refused ({', '.join(sorted(refused))})"
    return out
