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
    """A driver call. kind: as of an event. kernel: mangled; None for what is no launch of a kernel.
    line: the program's own, as "train.py:12 in step"; stack: the whole call stack, the outermost
    frame first; both empty if no call stack was recorded. range: the path of open NVTX ranges.
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
    """Bytes of an allocation. name: of the tensor or the allocation. first, count: bytes in the
    region, None if not known. line: the program's line that allocated it.
    """

    region: int
    name: str
    size: int
    first: int | None = None
    count: int | None = None
    line: str | None = None


@dataclass(frozen=True)
class Finding:
    """A fault. kind: a word or two that a check uses for all faults of this sort. certainty:
    "confirmed" or "possible". summary: one sentence. step: the epoch, as a text. command: shows
    more.
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
        """What --ignore is compared with."""
        kernel = self.call.kernel if self.call else None
        lines = [at.line for at in (self.call, self.memory) if at is not None]
        named = [kernel, self.memory.name if self.memory else None, *lines]
        return [name for name in named if name]


@dataclass
class Outcome:
    """What a check says. status: "found", "clean", "not covered" or "failed"; reason: of the last
    two, and what else one should know of the others. launches, bytes: the share that was checked,
    0 to 1; None if that is not known.
    """

    check: str
    status: str
    reason: str = ""
    launches: float | None = None
    bytes: float | None = None
    findings: list[Finding] = field(default_factory=list)


@dataclass
class CheckReport:
    """What `check` says. command: the program. folder: of the recordings. runs: how often the
    program ran for these answers, in earlier calls too. interrupted: whether some checks had not
    ended.
    """

    command: list[str]
    folder: str
    outcomes: list[Outcome]
    runs: int
    interrupted: bool
    seconds: float

    @property
    def findings(self) -> list[Finding]:
        return [finding for outcome in self.outcomes for finding in outcome.findings]

    def exit_status(self, strict: bool = False) -> int:
        """0: nothing found; 1: something found; 2: an error, or nothing was covered. strict: also 2
        if a check did not cover the program.
        """
        statuses = {outcome.status for outcome in self.outcomes}
        if FOUND in statuses:
            return DIFFERS
        if self.interrupted or FAILED in statuses or CLEAN not in statuses:
            return ERROR
        return ERROR if strict and NOT_COVERED in statuses else SAME

    def to_json(self) -> str:
        """The report as a JSON object."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()
