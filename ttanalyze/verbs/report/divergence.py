"""The comparison with another run on a report page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttanalyze.format.run import Run
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.diff import DiffReport, diff
from ttanalyze.verbs.diff.report import Divergence
from ttanalyze.verbs.diff.show import diff_text, facts, suspects, title

ROW = 16  # bytes of memory in a line
SHOWN = 8  # processes


@dataclass(frozen=True)
class Line:
    """Bytes of one side: the offset in the region, and each byte with whether it differs."""

    place: str
    bytes: list[tuple[str, bool]]


def compare(run: Run, against: Run, progress: Progress = None) -> dict[str, Any]:
    """Returns the comparison for the page: verdict, same, text (as `ttanalyze diff` shows it), and
    the first divergence of each process.

    A divergence has title, facts, sides, head and rows of the table of suspects. more: the number
    of further ones.
    """
    report = diff(run, against, progress=progress)
    text = diff_text(report)
    verdict, _, _ = text.partition("\n")
    found = [d for process in report.processes for d in process.divergences]
    return {
        "same": report.same,
        "verdict": verdict,
        "a": report.a,
        "b": report.b,
        "found": [_shown(divergence) for divergence in found[:SHOWN]],
        "more": _count(report) - len(found[:SHOWN]),
        "text": text,
    }


def _count(report: DiffReport) -> int:
    return sum(process.divergence_count for process in report.processes)


def _shown(found: Divergence) -> dict[str, Any]:
    head, *rows = suspects(found)
    return {
        "title": title(found),
        "facts": facts(found),
        "sides": _sides(found),
        "head": head,
        "rows": rows,
    }


def _sides(found: Divergence) -> list[tuple[str, list[Line]]]:
    """Returns the bytes around the first difference of A and B, [] if unknown."""
    if found.bytes is None:
        return []
    window = found.bytes.window
    a, b = bytes.fromhex(window["expected"]), bytes.fromhex(window["actual"])
    return [("A", _lines(a, b, window["offset"])), ("B", _lines(b, a, window["offset"]))]


def _lines(shown: bytes, other: bytes, offset: int) -> list[Line]:
    return [
        Line(
            f"{offset + start:#010x}",
            [
                (f"{byte:02x}", other[start + i : start + i + 1] != bytes([byte]))
                for i, byte in enumerate(shown[start : start + ROW])
            ],
        )
        for start in range(0, len(shown), ROW)
    ]
