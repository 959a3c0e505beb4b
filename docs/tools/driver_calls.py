"""Makes the table of docs/limits/driver-calls.md from a comment of the table of driver calls."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "interpose" / "driver" / "call_table.h"
PAGE = ROOT / "docs" / "limits" / "driver-calls.md"


def pages() -> dict[Path, str]:
    """What the file is to hold."""
    (comment,) = re.findall(r"takes\n \* from here\.\n \*\n(.*?) \*/", SOURCE.read_text(), re.S)
    items = re.sub(r"\n \* +(?!- )", " ", comment).removeprefix(" * - ").strip().split("\n * - ")
    rows = [" | ".join(item.split(": ", 1)) for item in items]
    head, mark, _ = PAGE.read_text().partition("|---|---|\n")
    return {PAGE: head + mark + "".join(f"| {row} |\n" for row in rows)}
