"""The breakdown as text and as rows of the web page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from ttanalyze.output import text
from ttanalyze.output.tables import as_records
from ttanalyze.verbs.breakdown.breakdown import Breakdown

SHARES = {
    "compute": "compute",
    "communication": "communication",
    "exposed_communication": "exposed",
    "exposed_memory": "copies",
    "recorder": "recorder",
    "idle_host": "idle: host",
    "idle_waiting": "idle: waiting",
}
BARS = (
    *("compute", "exposed_communication", "exposed_memory", "recorder"),
    *("idle_host", "idle_waiting"),
)


def breakdown_text(found: Breakdown, limit: int = 20, colour: bool = False, width: int = 0) -> str:
    """Returns the breakdown for a screen: shares of each rank, then of its slowest steps.

    Args:
        found: The result of `breakdown`.
        limit: The maximal number of steps.
        colour: Whether to use terminal colours.
        width: The width of the screen in characters, 0 for no limit.
    """
    out = [text.coloured("ranks", "bold", colour), *_lines(found.ranks, "steps", width)]
    slow = found.steps.sort_values("total", ascending=False, kind="stable").head(limit)
    if len(found.steps) > len(found.ranks):
        more = f", the slowest {len(slow)} of {len(found.steps):,}"
        title = f"steps{more if len(slow) < len(found.steps) else ''}"
        slow = slow.sort_index()
        out += ["", text.coloured(title, "bold", colour), *_lines(slow, "step", width)]
    out += [f"note: {text.printable(note)}" for note in found.notes]
    return "\n".join(out)


def _lines(table: pd.DataFrame, step: str, width: int) -> Iterator[str]:
    several = table["device"].nunique() > 1
    head = ["rank", *["GPU"] * several, step, "time", *SHARES.values(), "overlap"]
    rows = [head]
    for row in as_records(table):
        rank = f"p{row['process']}" if row["rank"] is None else str(row["rank"])
        shares = [_percent(row[name], row["total"]) for name in SHARES]
        overlap = "" if row["overlap"] is None else f"{row['overlap']:.1f} %"
        place = [rank, *[str(row["device"])] * several, text.printable(str(row["step"]))]
        rows.append([*place, text.duration(row["total"]), *shares, overlap])
    right = {0, *range(2 + several, len(head))}
    yield from text.table(rows, right, width).splitlines()


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else ""


def page_rows(table: pd.DataFrame, limit: int) -> list[dict[str, Any]]:
    """Returns rows for the web page: texts, and the shares of a bar in percent."""
    out = []
    for row in as_records(table.head(limit)):
        rank = f"process {row['process']}" if row["rank"] is None else f"rank {row['rank']}"
        bars = [(name, 100 * row[name] / max(1, row["total"])) for name in BARS]
        out.append(
            {
                "rank": rank,
                "step": text.printable(str(row["step"])),
                "time": text.duration(row["total"]),
                "bars": [(name, SHARES[name], f"{share:.1f}") for name, share in bars if share],
                "overlap": "" if row["overlap"] is None else f"{row['overlap']:.1f} %",
            }
        )
    return out
