"""The report of `race`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from ttanalyze.verbs.diff import DiffReport


@dataclass(frozen=True)
class OneCall:
    """A call of a pair.

    Attributes:
        seq: The sequence number.
        kind: The kind of the event, such as "launch" or "copy".
        call: The name of the driver call.
        kernel: The mangled name of the kernel.
        stream: The id of the stream.
        thread: The id of the thread.
        does: "reads" or "writes" the region, or "reaches" it (a launch with a pointer to it).
        delayed: Whether the call was delayed.
        caller: The calling frame, if it was recorded.
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
    """Two calls in two streams that access a region without an order.

    Attributes:
        first, second: The calls.
        region: The id of the region.
        label: The label of the region.
        size: The size of the region in bytes.
    """

    first: OneCall
    second: OneCall
    region: int
    label: str | None
    size: int


@dataclass(frozen=True)
class Instruction:
    """An instruction of a kernel.

    Attributes:
        kernel: The mangled name of the kernel.
        checksum: The checksum of the kernel.
        pc: The offset of the instruction in the kernel in bytes.
        text: The disassembled instruction, or only its opcode.
        line: The source line as FILE:LINE, None if unknown.
    """

    kernel: str
    checksum: str
    pc: int
    text: str
    line: str | None = None


@dataclass(frozen=True)
class Late:
    """A delay with which the program behaves differently: of an instruction, or of a call.

    Attributes:
        instruction: The delayed instruction, None for a call.
        other: The instruction that should most likely come after or before it.
        stream: The id of the stream of the delayed call.
        number: The number of the call among those of the stream that may be delayed.
        seq: The sequence number of the call.
        call: The name of the driver call.
        kernel: The mangled name of the kernel.
        where: The calling frame, if it was recorded.
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
    """A recording that differs from the reference.

    Attributes:
        seed: The seed of its delays.
        run: The run directory.
        delays: The file with its delays.
        status: The exit status if it differs, else None.
        output: Whether the output differs.
        diff: The comparison of memory, None if it is the same or could not be compared.
        pairs: The unordered calls, the likeliest first.
        late: The delays that are left after the reduction.
        reduced: Whether the delays were reduced.
        before: The number of delays before the reduction.
        tests: The number of tests of the reduction.
        notes: Further remarks, one line each.
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
    """The result of a search.

    Attributes:
        command: The program and its arguments.
        reference: The run directory of the reference, recorded without delays.
        sim: Whether the simulator was used.
        runs: The number of recordings with delays.
        wanted: The planned number of these recordings.
        varies: Labels or ids of regions that differ even without delays. They are ignored.
        unsteady: How two recordings without delays differ, None if they do not.
        findings: The recordings that differ.
        notes: Further remarks, one line each.
        seconds: The duration in seconds.
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
        """Whether anything differs from the reference."""
        return bool(self.findings) or self.unsteady is not None

    def to_json(self) -> str:
        """Returns the report as a JSON object."""
        document: dict[str, Any] = {"format": "ttanalyze-race", "version": 1, **asdict(self)}
        return orjson.dumps(document | {"found": self.found}, option=orjson.OPT_INDENT_2).decode()
