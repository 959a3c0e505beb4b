"""What race found, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from ttanalyze.verbs.diff import DiffReport


@dataclass(frozen=True)
class OneCall:
    """A call of a pair. kind: as of an event; kernel: mangled; does: "reads", "writes" or
    "reaches" the region (a launch that is given a pointer); delayed: whether it was made late.
    """

    seq: int
    kind: str
    call: str | None
    kernel: str | None
    stream: int
    thread: int
    does: str
    delayed: bool
    caller: str | None


@dataclass(frozen=True)
class Pair:
    """Two calls in two streams that reach a region, and that nothing orders."""

    first: OneCall
    second: OneCall
    region: int
    label: str | None
    size: int


@dataclass(frozen=True)
class Instruction:
    """In a kernel. pc: bytes from its beginning. text: as disassembled, or only its name. line:
    of the source, as file:line, where that is known.
    """

    kernel: str
    checksum: str
    pc: int
    text: str
    line: str | None = None


@dataclass(frozen=True)
class Late:
    """What had to be late for the program to do something else: an instruction, or a call of a
    stream, the `number`-th that may be late. other: the instruction that most likely should have
    come after it, or before.
    """

    instruction: Instruction | None = None
    other: Instruction | None = None
    stream: int | None = None
    number: int | None = None
    seq: int | None = None
    call: str | None = None
    kernel: str | None = None
    where: str | None = None


@dataclass
class Finding:
    """A run that did something else. seed: of its delays. run: its folder. status: the program's,
    where that is not as of the reference, else None. output: what it printed is other. diff: None
    where memory could not be compared, or is the same. pairs: the likeliest first. late: the fewest
    delays that still do it, of so many before, as far as that was looked for (reduced), in so many
    tests. notes: what else to know.
    """

    seed: int
    run: str
    delays: str
    status: int | None = None
    output: bool = False
    diff: DiffReport | None = None
    pairs: list[Pair] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    reduced: bool = False
    before: int = 0
    tests: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class RaceReport:
    """sim: recorded on the simulator. runs: recordings with delays so far; wanted: how many there
    were to be. varies: labels or numbers of regions that differ between two runs without delays,
    which say nothing further. unsteady: how two runs without delays differ, None where they do not.
    """

    command: list[str]
    reference: str
    sim: bool = False
    runs: int = 0
    wanted: int = 0
    varies: list[str] = field(default_factory=list)
    unsteady: DiffReport | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0

    @property
    def found(self) -> bool:
        """Whether anything was other than in the reference."""
        return bool(self.findings) or self.unsteady is not None

    def to_json(self) -> str:
        """The report as a JSON object."""
        document: dict[str, Any] = {"format": "ttanalyze-race", "version": 1, **asdict(self)}
        return orjson.dumps(document | {"found": self.found}, option=orjson.OPT_INDENT_2).decode()
