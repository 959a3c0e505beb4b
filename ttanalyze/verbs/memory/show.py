"""A run's memory on a screen, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from ttanalyze.core.allocations import Moment, ProcessMemory, levels
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.output.tables import frame_text

POINTS = 1000  # of a timeline in JSON
LEVELS = " ▁▂▃▄▅▆▇█"
PLOT_LINES = 8
TABLES = ("alive", "tensors", "sites", "leaks", "ranges")


def to_object(found: Sequence[ProcessMemory], top: int) -> list[dict[str, Any]]:
    """As JSON has it: tables are lists of objects, of `top` rows at most where there may be many.

    timeline: the most bytes in each of equal parts of the run, with where the parts begin.
    """
    out = []
    for process in found:
        borders, sizes, axis = levels(process.timeline, POINTS)
        made: dict[str, Any] = {
            "process": process.process,
            "allocations": process.allocations,
            "freed": process.freed,
            "allocated_bytes": process.allocated_bytes,
            **{
                name: None if moment is None else asdict(moment)
                for name, moment in _moments(process).items()
            },
            "timeline": {axis: [int(b) for b in borders[:-1]], "bytes": sizes.tolist()},
        }
        for name in TABLES:
            frame = getattr(process, name)
            some = frame if name == "ranges" else frame.head(top)
            values = some.astype("object").where(~some.isna(), None)
            made[name] = values.to_dict("records")
        out.append(made)
    return out


def _moments(process: ProcessMemory) -> dict[str, Moment | None]:
    return {
        "peak": process.peak,
        "end": process.end,
        "host_peak": process.host_peak,
        "at": process.at,
    }


def memory_text(
    run: Run, found: Sequence[ProcessMemory], top: int, width: int = 0, colour: bool = False
) -> str:
    """For a screen that is width letters wide; 0: as wide as it gets."""
    parts = []
    for process in found:
        if len(run.processes) > 1:
            argv = text.command(run.process(process.process).info.get("argv", []))
            parts.append(text.coloured(f"process {process.process}  {argv}", "bold", colour))
        parts += _process_parts(process, top, width, colour)
    return "\n\n".join(parts) if parts else "no process was recorded"


def _process_parts(process: ProcessMemory, top: int, width: int, colour: bool) -> list[str]:
    left = process.allocations - process.freed
    pairs = [
        ("peak", _moment_text(process.peak)),
        ("end", f"{text.size(process.end.bytes)} in {text.count(left, 'allocation')}"),
        (
            "total",
            f"{text.size(process.allocated_bytes)} in "
            f"{text.count(process.allocations, 'allocation')}, {process.freed:,} freed",
        ),
    ]
    if process.host_peak is not None:
        pairs.append(("host", f"page-locked: peak {_moment_text(process.host_peak)}"))
    parts = [text.rows(pairs)]
    if len(process.timeline):
        parts.append(plot(process.timeline, min(width or 80, 100)))
    moment = process.at
    when = "at the peak" if moment == process.peak else f"after call {moment.seq:,}"
    when = "at the end" if moment == process.end != process.peak else when
    alive = process.alive
    size = text.size(int(alive["bytes"].sum()))
    title = f"Allocated {when}: {size} in {text.count(len(alive), 'region')}"
    columns = ["region", "kind", "label", "bytes", "base", "site", "seq"]
    parts.append(_table(title, alive[columns], top, width, colour))
    epoch = "at the end" if moment.epoch is None else f"in epoch {moment.epoch}"
    parts.append(_table(f"Tensors {epoch}", process.tensors, top, width, colour))
    parts.append(_table(f"Addresses {when}", process.ranges, 0, width, colour))
    parts.append(_table("By allocation site", process.sites, top, width, colour))
    parts.append(_table("Never freed", process.leaks, top, width, colour))
    return [part for part in parts if part]


def _table(title: str, frame: pd.DataFrame, top: int, width: int, colour: bool) -> str:
    """A table's first `top` rows, 0: all, under a title; nothing where it is empty."""
    if not len(frame):
        return ""
    out = text.coloured(title, "bold", colour)
    out += "\n" + frame_text(frame.head(top) if top else frame, width)
    if top and len(frame) > top:
        out += f"\n… and {len(frame) - top:,} more (--top N shows N)"
    return out


def _moment_text(moment: Moment) -> str:
    out = f"{text.size(moment.bytes)} in {text.count(moment.allocations, 'allocation')}"
    if moment.seq:
        by = f" ({moment.site})" if moment.site else f" ({moment.call})" if moment.call else ""
        out += f", from call {moment.seq:,}{by}"
    if moment.epoch is not None:
        out += f", seen first in epoch {moment.epoch}"
    return out


def plot(timeline: pd.DataFrame, width: int) -> str:
    """Bytes over time in letters, the most of each column's time. width: of all."""
    largest = text.size(int(timeline["bytes"].max()))
    margin = len(largest) + 2
    columns = max(width - margin - 1, 10)
    borders, sizes, axis = levels(timeline, columns)
    steps = (sizes * (PLOT_LINES * 8) / max(int(sizes.max()), 1)).round().astype(int)
    lines = []
    for line in range(PLOT_LINES - 1, -1, -1):
        label = largest if line == PLOT_LINES - 1 else "0 B" if line == 0 else ""
        levels_here = (steps - line * 8).clip(0, 8).tolist()
        lines.append(f"{label:>{margin - 2}} ┤" + "".join(LEVELS[n] for n in levels_here))
    if axis == "time_ns":
        begin, end = "0 s", text.duration(borders[-1] - borders[0])
    else:
        begin, end = f"call {int(borders[0]):,}", f"call {int(borders[-1]):,}"
    foot = f"{begin}{end:>{columns - len(begin)}}"
    return "\n".join([line.rstrip() for line in lines] + [" " * margin + foot])
