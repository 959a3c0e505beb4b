"""What checks find, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

CONFIRMED, POSSIBLE = "confirmed", "possible"
FOUND, CLEAN, NOT_COVERED, FAILED = "found", "clean", "not covered", "failed"
SAME, DIFFERS, ERROR = 0, 1, 2  # exit statuses


@dataclass(frozen=True)
class Call:
    """A driver call.

    Attributes:
        process: The index of the process.
        seq: The sequence number.
        kind: The kind of the event, such as "launch" or "copy".
        call: The name of the driver function.
        kernel: The mangled name, None if the call does not launch a kernel.
        stream: The number of the stream.
        line: The line of the program that made the call, such as "train.py:12 in step", None if no
            call stack was recorded.
        stack: The whole call stack, the outermost frame first.
        range: The path of the open NVTX ranges.
    """

    process: int
    seq: int
    kind: str
    call: str | None = None
    kernel: str | None = None
    stream: int | None = None
    line: str | None = None
    stack: list[str] = field(default_factory=list)
    range: str | None = None


@dataclass(frozen=True)
class Memory:
    """Bytes of an allocation.

    Attributes:
        region: The id of the region.
        name: The name of the tensor, else the label, else "region N".
        size: The size of the region in bytes.
        first: The offset of the first byte in the region, None if not known.
        count: The number of bytes, None if not known.
        line: The line of the program that allocated the region.
    """

    region: int
    name: str
    size: int
    first: int | None = None
    count: int | None = None
    line: str | None = None


@dataclass(frozen=True)
class Finding:
    """A fault.

    Attributes:
        check: The name of the check.
        kind: The sort of fault, in the words of the check.
        certainty: "confirmed" or "possible".
        summary: One or two sentences.
        call: The culprit.
        memory: The memory that shows the fault.
        step: The epoch, as a text.
        command: The words of a command that shows more.
        details: Further facts, as the check has them.
    """

    check: str
    kind: str
    certainty: str
    summary: str
    call: Call | None = None
    memory: Memory | None = None
    step: str | None = None
    command: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Returns the names that --ignore is compared with."""
        kernel = self.call.kernel if self.call else None
        lines = [at.line for at in (self.call, self.memory) if at is not None]
        named = [kernel, self.memory.name if self.memory else None, *lines]
        return [name for name in named if name]


@dataclass
class Outcome:
    """The result of a check.

    Attributes:
        check: The name of the check.
        status: "found", "clean", "not covered" or "failed".
        reason: Why a check failed or covered nothing, else a remark.
        launches: The share of launches that the check covered, 0 to 1, None if not known.
        bytes: The same of allocated bytes.
        findings: The faults.
        seconds: The duration in seconds, with the recordings that no earlier check made.
    """

    check: str
    status: str
    reason: str = ""
    launches: float | None = None
    bytes: float | None = None
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class CheckReport:
    """The results of all checks.

    Attributes:
        command: The program and its arguments.
        folder: The folder of the recordings.
        outcomes: The results, one per check.
        runs: The number of recordings, those of earlier calls included.
        interrupted: Whether a signal ended the checks early.
        seconds: The duration in seconds.

    Example:
        >>> outcome = tt.check.Outcome("order", "not covered")
        >>> report = tt.check.CheckReport(["./app"], "app.check", [outcome], 3, False, 1.5)
        >>> report.exit_status(), report.findings
        (2, [])
    """

    command: list[str]
    folder: str
    outcomes: list[Outcome]
    runs: int
    interrupted: bool
    seconds: float

    @property
    def findings(self) -> list[Finding]:
        """The faults of all checks."""
        return [finding for outcome in self.outcomes for finding in outcome.findings]

    def exit_status(self, strict: bool = False) -> int:
        """Returns 1 if something was found, 2 on an error or if nothing was covered, else 0.

        Args:
            strict: Whether one check that did not cover the program is enough for 2.
        """
        statuses = {outcome.status for outcome in self.outcomes}
        if FOUND in statuses:
            return DIFFERS
        if self.interrupted or FAILED in statuses or CLEAN not in statuses:
            return ERROR
        return ERROR if strict and NOT_COVERED in statuses else SAME

    def to_json(self) -> str:
        """Returns the report as a JSON object."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()
