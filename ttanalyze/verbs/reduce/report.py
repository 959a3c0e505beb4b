"""The result of a reduction, as an object and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttanalyze.output import text
from ttanalyze.verbs.reduce.delayed_instructions import DelayedInstruction
from ttanalyze.verbs.reduce.search import Reduction

FORMAT = {"format": "ttanalyze-reduce", "version": 1}


@dataclass(frozen=True)
class ReduceReport:
    """The result of `reduce_test`.

    Attributes:
        config: The file with the delays.
        test: The command.
        strategy: "bisect" or "linear".
        confidence: The maximal number of runs of each set of delays.
        found: The reduction.
        delayed: The instruction or call of each delay that is left.
    """

    config: str
    test: list[str]
    strategy: str
    confidence: int
    found: Reduction
    delayed: list[DelayedInstruction]

    def to_object(self) -> dict[str, Any]:
        """Returns the report as in schemas/reduce_report.json."""
        found = self.found
        return {
            **FORMAT,
            "config": self.config,
            "test": self.test,
            "strategy": self.strategy,
            "confidence": self.confidence,
            "status": found.status,
            "points": found.total,
            "essential": [delayed.to_object() for delayed in self.delayed],
            "tests": found.tests,
            "runs": found.runs,
            "failures": {"failed": found.failures.failed, "runs": found.failures.runs},
            "minimal_config": found.minimal.document,
        }


def reduce_text(report: ReduceReport, colours: bool = False) -> str:
    """Returns the report for a screen.

    Args:
        report: The report.
        colours: Whether to use terminal colours.
    """
    found = report.found
    head = f"{text.count(len(found.points), 'delay')} of {found.total:,}"
    runs = f"{text.count(found.tests, 'test')}, {text.count(found.runs, 'run')}"
    said = {
        "reduced": f"minimal: {head} ({runs})",
        "flaky": f"left: {head} ({runs}); with them the test fails only sometimes, "
        f"{found.failures.failed} of {found.failures.runs} times",
        "stopped": f"limit of tests reached; left so far: {head} ({runs})",
    }[found.status]
    return "\n".join([text.coloured(said, "bold", colours), *delayed_text(report.delayed)])


def delayed_text(delayed_instructions: Sequence[DelayedInstruction]) -> list[str]:
    """Returns one or two lines per delay."""
    lines = []
    for delayed in delayed_instructions:
        member = delayed.member
        late = f"{text.duration(member['delay'])} before"
        if delayed.point.kernel is None:
            what = f"call {member['number']} of stream {member['stream']}"
            name = member.get("call")
            what += f" ({name})" if name else ""
            lines.append(f"  {late} {text.printable(what)} {_of_kernel(delayed)}".rstrip())
            continue
        row = delayed.instruction or {}
        lines.append(f"  {late} {text.printable(row.get('sass') or member['sass'])}")
        where = f"{member['pc']:#x} {_of_kernel(delayed)}"
        if row.get("line"):
            chain = [f"{row['file']}:{row['line']}", *row["inlined_at"]]
            short = [f"{Path(part).name}" for part in chain]
            where += f", {text.printable(' in '.join(short))}"
        lines.append(f"    at {where}")
    return lines


def _of_kernel(delayed: DelayedInstruction) -> str:
    return f"of {text.printable(delayed.kernel)}" if delayed.kernel else ""
