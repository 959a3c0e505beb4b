"""Finds accesses outside of allocations, from the trace of a launch."""

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
from ttanalyze.traces.coverage import missing
from ttanalyze.traces.instructions import Instruction, instructions_of
from ttanalyze.traces.origin import Origin, origin

__all__ = ["BadAccess", "LaunchAccesses", "Memcheck", "memcheck"]

KINDS = ("addresses", "values")
SPACES = ("global", "generic")
LANES = 32
LOWEST = 1 << 24  # generic addresses of a GPU below it may be offsets in shared or local memory
WINDOWS = (1 << 62, 5 << 60)  # where the simulator has shared and local memory
WINDOW = 1 << 32  # bytes


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
        elsewhere: Copies to shared memory, and accesses through generic addresses of shared or
            local memory, which were not examined.
        found: The wrong ones, by instruction.
        missing: What the trace lacks.
        replays: The recorded launch that it is a replay of, None if it is none.
    """

    launch: int
    kernel: str
    accesses: int = 0
    elsewhere: int = 0
    found: list[BadAccess] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    replays: int | None = None


@dataclass
class Memcheck:
    """The wrong accesses of traced launches of a run.

    Attributes:
        run: The path of the run.
        launches: What was found, by launch.
    """

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


def memcheck(
    run: Run, launch: int | None = None, process: int = 0, rank: int | None = None
) -> Memcheck:
    """Finds accesses of traced launches to memory that is not allocated.

    If the run is a traced replay, the allocations are those of the recorded process.

    Args:
        run: The run.
        launch: The sequence number of a launch. Default: all traced launches.
        process: The number of the process.
        rank: Its rank, instead of the number.

    Raises:
        Error: No launch was traced, or not this one.

    Example:
        >>> report = tt.memcheck(tt.open("traced"), launch=6)
        >>> [(one.kernel, one.accesses, one.found) for one in report.launches]
        [('add', 196608, [])]
    """
    of = run.process(process, rank)
    heads = of.traced
    wanted = [i for i, seq in enumerate(heads["seq"].tolist()) if launch in (None, seq)]
    if not wanted:
        which = "no launch" if launch is None else f"launch {launch} was not"
        tail = " was traced" if launch is None else " traced"
        raise Error(f"{of.path}: {which}{tail}; `ttanalyze instrument --kind addresses` does")
    replayed = origin(run)
    owner = of if replayed is None else replayed.process
    regions = allocs([owner])
    if replayed is not None:
        regions = replayed.placed(regions)
    out = Memcheck(str(run.path))
    for index in wanted:
        out.launches.append(_launch(run, of, index, owner, regions, replayed))
    return out


def _launch(
    run: Run,
    process: Process,
    index: int,
    owner: Process,
    regions: pd.DataFrame,
    replayed: Origin | None,
) -> LaunchAccesses:
    """owner: the process whose memory `regions` are."""
    head = process.traced[index]
    function, seq = int(head["function"]), int(head["seq"])
    out = LaunchAccesses(seq, process.kernel(function) or f"function {function}")
    if replayed is not None:
        out.replays = seq = replayed.launch
    if head["refused"]:
        out.missing.append("the launch was not traced")
        return out
    out.missing += missing(process, index)
    categories = process.info.get("options", {}).get("TT_INSTRUMENT_CATEGORY")
    if categories and "memory" not in categories.split(","):
        out.missing.append(f"only instructions that are {categories} were traced")
    instructions = instructions_of(run, process, function)
    state, unknown = _State(owner, regions, seq, head, instructions.ptx), 0
    for records in process.trace_records(index, KINDS):
        for number in np.unique(records.heads["instruction"]).tolist():
            which = np.flatnonzero(records.heads["instruction"] == number)
            instruction = instructions.by_number.get(number)
            if instruction is None:
                unknown += len(which)
            elif instruction.space in SPACES:
                state.examine(instruction, records.take(which))
    if unknown:
        out.missing.append(f"{unknown:,} records are of instructions that its code does not have")
    if state.near:
        out.missing.append(
            f"{state.near:,} generic accesses below {LOWEST:#x}: shared memory, or null pointers"
        )
    if not state.accesses and not out.missing:
        out.missing.append("the trace has no addresses of accesses to global memory")
    out.accesses, out.elsewhere = state.accesses, state.elsewhere
    out.found = [*state.rows()]
    return out


def _within(base: Array, end: Array, at: Array, size: np.uint64) -> Array:
    """Whether `size` bytes at each address lie in the range that begins last before it."""
    if not len(base):
        return np.zeros(at.shape, bool)
    row = np.searchsorted(base, at, "right") - 1
    room = end[row] - base[row] >= size
    return np.asarray((row >= 0) & room & (at <= end[row] - np.minimum(size, end[row] - base[row])))


def _joined(regions: pd.DataFrame) -> tuple[Array, Array]:
    """The ranges of regions, where those that overlap are one: their beginnings and ends."""
    base, size = regions["base"].to_numpy("u8"), regions["bytes"].to_numpy("u8")
    order = np.argsort(base, kind="stable")
    base, end = base[order], np.maximum.accumulate(base[order] + size[order])
    first = np.concatenate([[True], base[1:] > end[:-1]])[: len(base)]
    last = np.concatenate([first[1:], [True]])[: len(base)]
    return base[first], end[last]


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

    def __init__(
        self, process: Process, regions: pd.DataFrame, seq: int, head: Any, ptx: bool
    ) -> None:
        self.process, self.allocs = process, regions
        self.ptx = ptx
        born = regions[(regions["seq"] < seq) & ~regions["kind"].isin(["array", "zone"])]
        freed = (born["free_seq"] < seq).fillna(False).to_numpy(bool)
        alive = born[~freed].sort_values("base", kind="stable")
        self.alive, self.freed = alive, born[freed]
        self.base = alive["base"].to_numpy("u8")
        # Of ranges that begin up to each: they may lie within each other.
        self.end = np.maximum.accumulate(self.base + alive["bytes"].to_numpy("u8"))
        self.freed_base, self.freed_end = _joined(self.freed)
        self.block = tuple(head["block"].tolist())
        self.accesses = self.elsewhere = self.near = 0
        self.found: dict[tuple[int, str], _Found] = {}

    def examine(self, instruction: Instruction, records: TraceRecords) -> None:
        at, lanes = records.addresses(), records.lanes
        if instruction.access == "copy":  # its address is that in shared memory
            self.elsewhere += int(lanes.sum())
            return
        if instruction.space == "generic":
            other = lanes & self._other_space(at)
            self.elsewhere += int(other.sum())
            self.near += 0 if self.ptx else int(other.sum())
            lanes = lanes & ~other
        self.accesses += int(lanes.sum())
        size = np.uint64(max(instruction.size, 1))
        outside = lanes & ~_within(self.base, self.end, at, size)
        freed = outside & _within(self.freed_base, self.freed_end, at, np.uint64(1))
        self._note(instruction, "outside", records, outside & ~freed, at)
        self._note(instruction, "freed", records, freed, at)
        self._note(instruction, "misaligned", records, lanes & ~outside & (at % size != 0), at)

    def _other_space(self, at: Array) -> Array:
        """Generic addresses that are, or on a GPU may be, of shared or local memory."""
        if not self.ptx:
            return np.asarray(at < LOWEST)
        return np.asarray(np.any([at - np.uint64(w) < WINDOW for w in WINDOWS], axis=0))

    def _note(
        self, instruction: Instruction, what: str, records: TraceRecords, bad: Array, at: Array
    ) -> None:
        if not bad.any():
            return
        record, lane = (int(i[0]) for i in np.nonzero(bad))
        address = int(at[record, lane])
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
