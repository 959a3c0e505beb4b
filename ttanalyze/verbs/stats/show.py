"""Summaries on a screen, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ttanalyze.output import text
from ttanalyze.output.tables import as_records, cells
from ttanalyze.output.times import as_nanoseconds
from ttanalyze.verbs.stats.stats import TIMES, Summary

BYTES = ("bytes", "bytes_mean", "bytes_max", "largest", "alive_bytes")


def stats_text(found: Sequence[Summary], top: int, width: int = 0, colour: bool = False) -> str:
    """For a screen.

    top: the maximal number of rows of each summary. width: of the screen in characters, 0 for no
    limit.
    """
    parts = []
    for summary in found:
        lines = [text.coloured(summary.title, "bold", colour)]
        rows = len(summary.table)
        lines.append(_table(summary.table.head(top), width) if rows else "none recorded")
        if rows > top:
            lines.append(f"… and {rows - top:,} more rows (--top N shows N)")
        parts.append("\n".join([*lines, *(f"note: {note}" for note in summary.notes)]))
    return "\n\n".join(parts)


def _table(frame: pd.DataFrame, width: int) -> str:
    frame, columns = as_nanoseconds(frame), []
    for name in map(str, frame.columns):
        shown = cells(frame[name])
        how = text.duration if name in TIMES else text.size if name in BYTES else None
        if how is not None:
            known = frame[name].notna().tolist()
            values = frame[name].astype("object").tolist()
            shown = [
                how(round(v)) if there else "-" for v, there in zip(values, known, strict=True)
            ]
        elif name == "share":
            shown = [f"{float(value):.1f} %" for value in frame[name]]
        columns.append([name, *shown])
    right = {
        i for i, name in enumerate(frame.columns) if pd.api.types.is_numeric_dtype(frame[name])
    }
    return text.table([list(row) for row in zip(*columns, strict=True)], right, width)


def with_units(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table as CSV and JSON have it: numbers, with the unit in the name."""
    units = {name: f"{name}_ns" for name in table.select_dtypes("timedelta").columns}
    units |= {"share": "share_percent", "largest": "largest_bytes"}
    return as_nanoseconds(table).rename(columns=units)


def to_object(found: Sequence[Summary], top: int | None) -> dict[str, Any]:
    """As JSON has it: an object per summary."""
    made = {}
    for summary in found:
        rows = summary.table if top is None else summary.table.head(top)
        made[summary.name] = {
            "title": summary.title,
            "notes": summary.notes,
            "count": len(summary.table),
            "rows": as_records(with_units(rows)),
        }
    return made
