"""Accesses outside of allocations, from the trace of a launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import orjson
import pandas as pd

from ttanalyze.core.allocating_calls import allocs, line_of
from ttanalyze.errors import Error
from ttanalyze.format.instruction_traces import TraceRecords
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.traces.instructions import Instruction, instructions_of

KINDS = ("addresses", "values")
SPACES = ("global", "generic")
LANES = 32
LOWEST = 1 << 24  # generic addresses of a GPU below it are offsets in shared or local memory
WINDOWS = 1 << 62  # from here on, those of the simulator are


@dataclass(frozen=True)
class BadAccess:
    """The accesses of one instruction that are wrong in one way.

    Attributes:
        number: Of the instruction: its place in machine code divided by 16, or its line of PTX.
        text: The instruction.
        line: FILE:LINE of the source, None if it is unknown.
        access: `load`, `store`, `atomic` or `copy`.
        size: Bytes that each thread accesses.
        what: `outside` of every allocation, `freed`, or `misaligned`.
        count: Accesses by threads.
        block, thread: Who makes the first of them in the trace, as x, y, z.
        address: The address of that.
        region: The allocation: that was freed, that is accessed misaligned, or the nearest. None
            if there is none.
        distance: Bytes from the end of `region` to the address; negative before its beginning; 0
            inside.
        allocated: The line that allocated the region, or the call without a call stack.
    """

    number: int
    text: str
    line: str | None
    access: str
    size: int
    what: str
    count: int
    block: tuple[int, ...]
    thread: tuple[int, ...]
    address: int
    region: int | None
    distance: int
    allocated: str | None


@dataclass
class LaunchAccesses:
    """What was found in a launch.

    Attributes:
        launch: The sequence number of the call.
        kernel: The mangled name.
        accesses: Accesses by threads that were examined.
        elsewhere: Accesses through generic addresses of shared or local memory, not examined.
        found: The wrong ones, by instruction.
        missing: What the trace lacks.
    """

    launch: int
    kernel: str
    accesses: int = 0
    elsewhere: int = 0
    found: list[BadAccess] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@dataclass
class Memcheck:
    """The wrong accesses of traced launches of a run."""

    run: str
    launches: list[LaunchAccesses] = field(default_factory=list)

    @property
    def found(self) -> bool:
        return any(launch.found for launch in self.launches)

    @property
    def unclear(self) -> bool:
        """Whether a launch without wrong accesses was not traced completely, or not at all."""
        return any(launch.missing and not launch.found for launch in self.launches)

    def to_json(self) -> str:
        """Returns the report as a JSON object."""
        document: dict[str, Any] = {"format": "ttanalyze-memcheck", "version": 1, **asdict(self)}
        document |= {"found": self.found, "unclear": self.unclear}
        return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def memcheck(run: Run, process: Process, launch: int | None = None) -> Memcheck:
    """Returns accesses of traced launches to memory that is not allocated.

    Args:
        run: The run.
        process: A process of it.
        launch: The sequence number of a launch. Default: all traced launches.

    Raises:
        Error: No launch was traced, or not this one.
    """
    heads = process.traced
    wanted = [i for i, seq in enumerate(heads["seq"].tolist()) if launch in (None, seq)]
    if not wanted:
        which = "no launch" if launch is None else f"launch {launch} was not"
        tail = " was traced" if launch is None else " traced"
        raise Error(f"{process.path}: {which}{tail}; `ttanalyze instrument --kind addresses` does")
    regions = allocs([process])
    out = Memcheck(str(run.path))
    for index in wanted:
        out.launches.append(_launch(run, process, index, regions))
    return out


def _launch(run: Run, process: Process, index: int, regions: pd.DataFrame) -> LaunchAccesses:
    head, summary = process.traced[index], process.instruction_trace.summary[index]
    function, seq = int(head["function"]), int(head["seq"])
    out = LaunchAccesses(seq, process.kernel(function) or f"function {function}")
    if head["refused"]:
        out.missing.append("the launch was not traced")
        return out
    if not summary["complete"]:
        out.missing.append("the trace has no end of the launch")
    if summary["lost"]:
        out.missing.append(f"{int(summary['lost']):,} records were lost")
    instructions = instructions_of(run, process, function).by_number
    state = _State(process, regions, head)
    for records in process.trace_records(index, KINDS):
        for number in np.unique(records.heads["instruction"]).tolist():
            instruction = instructions.get(number)
            if instruction is not None and instruction.space in SPACES:
                which = np.flatnonzero(records.heads["instruction"] == number)
                state.examine(instruction, records.take(which))
    if not state.accesses and not out.missing:
        out.missing.append("the trace has no addresses of accesses to global memory")
    out.accesses, out.elsewhere = state.accesses, state.elsewhere
    out.found = [*state.rows()]
    return out


@dataclass
class _Found:
    """count: accesses so far; the others are of the first."""

    instruction: Instruction
    what: str
    head: Any
    lane: int
    address: int
    count: int = 0


class _State:
    """The allocations at a launch, and the wrong accesses found so far."""

    def __init__(self, process: Process, regions: pd.DataFrame, head: Any) -> None:
        self.process, self.allocs, seq = process, regions, int(head["seq"])
        born = regions[(regions["seq"] < seq) & (regions["kind"] != "array")]
        freed = (born["free_seq"] < seq).fillna(False).to_numpy(bool)
        alive = born[~freed].sort_values("base", kind="stable")
        self.alive, self.freed = alive, born[freed]
        self.base = alive["base"].to_numpy("u8")
        self.end = self.base + alive["bytes"].to_numpy("u8")
        self.block = tuple(head["block"].tolist())
        self.accesses = self.elsewhere = 0
        self.found: dict[tuple[int, str], _Found] = {}

    def examine(self, instruction: Instruction, records: TraceRecords) -> None:
        at, lanes = records.addresses(), records.lanes
        if instruction.space == "generic":
            near = lanes & ((at < LOWEST) | (at >= WINDOWS))
            self.elsewhere += int(near.sum())
            lanes = lanes & ~near
        self.accesses += int(lanes.sum())
        size = np.uint64(max(instruction.size, 1))
        outside = lanes & ~self._inside(at, size)
        self._note(instruction, "outside", records, outside, at)
        self._note(instruction, "misaligned", records, lanes & ~outside & (at % size != 0), at)

    def _inside(self, at: Array, size: np.uint64) -> Array:
        if not len(self.base):
            return np.zeros(at.shape, bool)
        row = np.searchsorted(self.base, at, "right") - 1
        within = (row >= 0) & (at + size <= self.end[row])
        return np.asarray(within)

    def _note(
        self, instruction: Instruction, what: str, records: TraceRecords, bad: Array, at: Array
    ) -> None:
        if not bad.any():
            return
        record, lane = (int(i[0]) for i in np.nonzero(bad))
        address = int(at[record, lane])
        if what == "outside" and self._freed(address) is not None:
            what = "freed"
        new = _Found(instruction, what, records.heads[record], lane, address)
        self.found.setdefault((instruction.number, what), new).count += int(bad.sum())

    def _freed(self, address: int) -> Any:
        """The memory that was freed last at an address, or None."""
        freed = self.freed
        inside = (freed["base"] <= address) & (address - freed["base"] < freed["bytes"])
        return freed[inside].iloc[-1] if inside.any() else None

    def _nearest(self, address: int) -> tuple[Any, int]:
        """The allocation nearest to an address, with the distance."""
        if not len(self.base):
            return None, 0
        row = max(int(np.searchsorted(self.base, np.uint64(address), "right")) - 1, 0)
        best = min(
            (i for i in (row, row + 1) if i < len(self.base)),
            key=lambda i: max(int(self.base[i]) - address, address - int(self.end[i]), 0),
        )
        base, end = int(self.base[best]), int(self.end[best])
        distance = address - base if address < base else max(address - end, 0)
        return self.alive.iloc[best], distance

    def rows(self) -> Iterator[BadAccess]:
        for one in sorted(self.found.values(), key=lambda one: one.instruction.number):
            region, distance = self._nearest(one.address)
            if one.what == "freed":
                region, distance = self._freed(one.address), 0
            thread = int(one.head["warp"]) * LANES + one.lane
            x, y, _ = self.block
            yield BadAccess(
                one.instruction.number,
                one.instruction.text,
                one.instruction.source,
                one.instruction.access or "access",
                one.instruction.size,
                one.what,
                one.count,
                tuple(int(one.head[f"block_{axis}"]) for axis in "xyz"),
                (thread % x, thread // x % y, thread // (x * y)),
                one.address,
                None if region is None else int(region["region"]),
                distance,
                None if region is None else self._site(int(region["region"])),
            )

    def _site(self, region: int) -> str:
        birth = self.process.regions.birth[self.process.regions.rows(np.array([region]))[0]]
        call = self.allocs.loc[self.allocs["region"] == region, "call"].iloc[0]
        return line_of(self.process, birth) or f"{call}, call {int(birth['seq'])}"
