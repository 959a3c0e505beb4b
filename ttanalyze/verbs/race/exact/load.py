"""Reads the trace of a launch from a run, for the search for races."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ttanalyze.disassembly.decode import parsed
from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.instruction_traces import KIND, TraceRecords
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.traces.coverage import missing, refused
from ttanalyze.verbs.race.exact import boxes, elided, listing, statements
from ttanalyze.verbs.race.exact.model import (
    BLOCK_SHIFT,
    NO_ADDRESS,
    SHARED,
    STRIDED,
    WARP,
    Access,
    Launch,
    Operation,
    Space,
    Sync,
    lanes_of,
)

CHUNK = 1 << 18
THREADS = 1024  # of a block at most
KINDS, CATEGORIES = "opcode,registers,values,tma", "memory,sync,tma"
TRACED = {"TT_INSTRUMENT": KINDS, "TT_INSTRUMENT_CATEGORY": CATEGORIES}
ADVICE = f"ttanalyze instrument --kind {KINDS} --category {CATEGORIES}"
PARTS = ("TT_INSTRUMENT_ADDRESSES", "TT_INSTRUMENT_INSTRUCTIONS")  # their accesses may be missing
PLACED = ("values", "addresses")
MBARRIERS = (Sync.MBARRIER_ARRIVE, Sync.MBARRIER_WAIT)
NEEDED = ({"addresses", "values"}, {"opcode", "registers"})
WINDOW = 1 << 32  # of shared memory among generic addresses, on the simulator
SHARED_WINDOW = 0x4000000000000000
COLUMNS = {"instruction": "u4", "mask": "u4", "block": "u4", "warp": "u2", "base": "u8"}
COLUMNS |= {"stride": "i4", "row": "i4"}
OFFSET = (1 << BLOCK_SHIFT) - 1
MOST_BLOCKS = 16  # of a cluster


@dataclass(frozen=True)
class Traced:
    """A traced launch.

    Attributes:
        launch: Its records.
        seq: Of the call.
        kernel: The mangled name.
        grid, block: Sizes.
        machine: Numbers of instructions are places in machine code, else lines of PTX.
    """

    launch: Launch
    seq: int
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    machine: bool


def survey(process: Process) -> dict[int, dict[int, int]]:
    """Returns for each traced launch, by its instructions, which kinds of records there are: bits
    1 << kind.
    """
    seen: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for records in process.trace_records():
        heads = records.heads
        for launch in layout.distinct(heads["launch"]).tolist():
            of = heads["launch"] == launch
            pairs = heads["instruction"][of].astype(np.int64) << 8 | records.kinds[of]
            for pair in layout.distinct(pairs).tolist():
                seen[launch][pair >> 8] |= 1 << (pair & 0xFF)
    return seen


def traced(process: Process, index: int, seen: Mapping[int, int]) -> Traced:
    """Returns a traced launch of a process.

    index: in process.traced. seen: what `survey` found of it. Raises Error if there is no trace,
    or it lacks what is needed.
    """
    head = process.traced[index]
    kernel = process.kernel(int(head["function"])) or ""
    _check(process, head)
    code = listing.code(process, int(head["function"]), kernel)
    if any(process.info.get("options", {}).get(name) for name in PARTS):
        code = replace(code, anchors={})
    grid, block = (tuple(int(n) for n in head[name]) for name in ("grid", "block"))
    threads = math.prod(block)
    if not 0 < threads <= THREADS or 0 in grid:
        raise Error(f"{process.path}: launch {head['seq']}: no GPU has launched it in its sizes")
    cluster = np.maximum(process.traced_clusters[index], 1).tolist()
    parts = _Parts(process, index, code, seen, Blocks(grid, cluster))
    unseen = unseen_copies(code.operations, parts.operations) if code.machine else []
    launch = Launch(
        parts.operations,
        threads,
        **parts.columns,
        grid=grid,
        cluster=cluster,
        operands=parts.operands(),
        values=parts.values(),
        missing=[*missing(process, index), *dict.fromkeys(parts.missing), *unseen],
        untold=_untold(code, parts.operations) if code.machine else frozenset(),
    )
    return Traced(launch, int(head["seq"]), kernel, grid, block, code.machine)


def unseen_copies(code: Mapping[int, Operation], traced: Mapping[int, Operation]) -> list[str]:
    """Returns a line if the code has copies by engines, of which the trace has no record."""
    moves = [one for one in code.values() if one.copy or one.sync == Sync.UNKNOWN]
    if not moves or any(one.copy or one.sync == Sync.UNKNOWN for one in traced.values()):
        return []
    opcodes = sorted({parsed(one.text).opcode for one in moves})
    return [f"no record of {', '.join(opcodes)}, which access memory"]


def elsewhere(launch: Launch, starts: Array, ends: Array) -> bool:
    """Returns whether a generic address is in none of the allocations from starts to ends."""
    generic = [n for n, one in launch.operations.items() if one.space == Space.GENERIC]
    records = np.flatnonzero(np.isin(launch.instruction, generic) & (launch.row != NO_ADDRESS))
    order = np.argsort(starts)
    starts, ends = starts[order], ends[order]
    for at in range(0, len(records), CHUNK):
        some = records[at : at + CHUNK]
        addresses = launch.addresses(some)[lanes_of(launch.mask[some])]
        place = np.searchsorted(starts, addresses, side="right") - 1
        inside = (place >= 0) & (addresses < np.append(ends, np.uint64(0))[place])
        if not inside.all():
            return True
    return False


def _untold(code: listing.Code, traced: Mapping[int, Operation]) -> frozenset[Sync]:
    """Returns the kinds of synchronisation in the code of a kernel that its trace tells nothing of.

    It may be that none of these ran, or that the way of tracing does not see them.
    """
    known = {number: one for number, one in traced.items() if number not in code.anchors}
    rest = {number: one for number, one in code.operations.items() if number not in code.anchors}
    kinds = {one.sync for one in rest.values()} - {one.sync for one in known.values()}
    if not any(map(elided.left_over, known.values())) and any(map(elided.left_over, rest.values())):
        kinds.add(Sync.WARP)
    return frozenset(kinds - {Sync.NONE})


def _check(process: Process, head: Any) -> None:
    """Raises Error if a launch has no trace that races could be found in."""
    where = f"{process.path}: launch {int(head['seq'])}"
    if (why := refused(process, head)) is not None:
        raise Error(f"{where} was not traced: {why}")
    kinds = {name for name, number in KIND.items() if int(head["kinds"]) >> number & 1}
    for needed in NEEDED:
        if not needed & kinds:
            raise Error(f"{where}: its trace has no {' or '.join(sorted(needed))}; use {ADVICE}")
    categories = str(process.info.get("options", {}).get("TT_INSTRUMENT_CATEGORY", ""))
    if categories and not set(CATEGORIES.split(",")) <= set(categories.split(",")):
        raise Error(f"{where}: only {categories} instructions were traced; use {ADVICE}")


@dataclass(frozen=True)
class Blocks:
    """How many blocks a launch and its clusters have, in x, y and z."""

    grid: Sequence[int]
    cluster: Sequence[int]

    def number(self, places: Sequence[Array]) -> Array:
        """Returns the numbers of blocks at these places."""
        x, y, z = (place.astype("u4") for place in places)
        out: Array = x + np.uint32(self.grid[0]) * (y + np.uint32(self.grid[1]) * z)
        return out

    def of_rank(self, numbers: Array, ranks: Array) -> Array:
        """Returns the blocks with these ranks in the clusters of other blocks."""
        places = []
        rest = numbers.astype(np.int64)
        for size, count in zip(self.grid, self.cluster, strict=True):
            rest, place = np.divmod(rest, size)
            ranks, own = np.divmod(ranks, count)
            places.append(place - place % count + own)
        return self.number(places)


class _Parts:
    """The columns of a launch, from all chunks of its trace."""

    def __init__(
        self,
        process: Process,
        index: int,
        code: listing.Code,
        seen: Mapping[int, int],
        blocks: Blocks,
    ) -> None:
        self._process, self._index, self._blocks = process, index, blocks
        self.missing: list[str] = []
        self.operations: dict[int, Operation] = {}
        self._boxes: dict[int, boxes.Boxes] = {}  # of tensor copies, by instruction
        self._masks: dict[int, list[int]] = {}  # blocks that copies to several have yet to reach
        self._kinds = self._chosen(code.operations, seen)
        self._columns: dict[str, list[Array]] = defaultdict(list)
        self._lanes: list[Array] = []
        self._rows = 0
        self._values: dict[int, list[Array]] = defaultdict(list)
        self._operands: dict[int, list[Array]] = defaultdict(list)
        for records in process.trace_records(index):
            self._take(records)
        self.columns: dict[str, Any] = {
            name: np.concatenate([np.empty(0, kind), *self._columns[name]]).astype(kind)
            for name, kind in COLUMNS.items()
        }
        met = {nop: at for nop, at in code.anchors.items() if nop not in self.operations}
        self.columns = elided.insert(self.columns, met)
        self.operations |= {nop: code.operations[nop] for nop in met}
        self.columns["lanes"] = np.concatenate([np.empty((0, WARP), "u8"), *self._lanes])

    def values(self) -> dict[int, Array]:
        """Returns what instructions store: a row for each record, of bytes by lane."""
        return {one: np.concatenate(parts) for one, parts in self._values.items()}

    def operands(self) -> dict[int, Array]:
        return {one: np.concatenate(parts) for one, parts in self._operands.items()}

    # ---- which records ----

    def _chosen(self, known: Mapping[int, Operation], seen: Mapping[int, int]) -> Array:
        """Returns by instruction which kind of its records is read, 0 for none."""
        chosen: Array = np.zeros(max(seen, default=0) + 1, np.uint8)
        unplaced = outside = 0
        for number, kinds in seen.items():
            outside += number not in known and kinds >> KIND["end"] & 1 == 0
            operation = known.get(number, Operation())
            if operation.access == Access.NONE and operation.sync == Sync.NONE:
                continue
            stores = boxes.is_tensor(operation.text) and operation.space == Space.GLOBAL
            placed = [name for name in (("tma",) if stores else PLACED) if kinds >> KIND[name] & 1]
            if operation.access != Access.NONE:
                unplaced += not placed
                order = placed
            elif operation.sync in MBARRIERS:
                order = [*placed, "opcode", "registers"]
            else:
                in_register = operation.barrier is None or operation.count is None
                order = ["registers", "opcode"] if in_register else ["opcode", "registers"]
            usable = [KIND[name] for name in order if kinds >> KIND[name] & 1]
            if operation.copy and not operation.size:
                operation = self._sized(number, operation)
            if usable and boxes.is_multicast(operation.text):
                operation = self._to_several(number, operation)
            if usable:
                chosen[number], self.operations[number] = usable[0], operation
        if outside:
            self.missing.append(
                f"{text.count(outside, 'instruction')} outside of the kernel's code"
            )
        if unplaced:
            self.missing.append(f"{text.count(unplaced, 'instruction')} without addresses")
        return chosen

    def _sized(self, number: int, operation: Operation) -> Operation:
        """Returns a copy with the size that a register or a tensor map has."""
        if boxes.is_tensor(operation.text):
            known = boxes.boxes(self._process, self._index, number, operation.text)
            if known is None:
                self.missing.append("tensor copies with unknown maps, or in other modes than tile")
                return replace(operation, access=Access.NONE, copy=False, sync=Sync.UNKNOWN)
            self._boxes[number] = known
            return replace(operation, size=known.size)
        found: set[int] = set()
        row = statements.size_register(operation.text)
        for records in self._process.trace_records(self._index, ["registers"], [number]):
            values = records.registers()
            if row < values.shape[1]:
                found.update(layout.distinct(values[:, row][records.lanes]).tolist())
        if len(found) == 1:
            return replace(operation, size=found.pop())
        self.missing.append(f"copies of {'several sizes' if found else 'unknown size'}")
        return replace(operation, size=min(found, default=0), sync=Sync.UNKNOWN)

    def _to_several(self, number: int, operation: Operation) -> Operation:
        """Returns a copy to several blocks, if it is known to which."""
        found = boxes.masks(self._process, self._index, number)
        if not found:
            self.missing.append("copies to several blocks, which kind tma names")
            return replace(operation, access=Access.NONE, copy=False, sync=Sync.UNKNOWN)
        self._masks[number] = found[::-1]
        return operation

    def _take(self, records: TraceRecords) -> None:
        number = records.heads["instruction"].astype(np.int64)
        inside = number < len(self._kinds)
        want = inside & (self._kinds[np.where(inside, number, 0)] == records.kinds)
        records = records.take(np.flatnonzero(want & (records.heads["mask"] != 0)))
        if not len(records):
            return
        heads = records.heads
        block = self._blocks.number([heads[f"block_{axis}"] for axis in "xyz"])
        placed = np.flatnonzero(np.isin(records.kinds, [KIND[name] for name in PLACED]))
        base = np.zeros(len(records), "u8")
        row = np.full(len(records), NO_ADDRESS, "i4")
        if len(placed):
            base[placed], row[placed] = self._addresses(records.take(placed), block[placed])
        columns = {"base": base, "row": row, "block": block, "stride": heads["stride"]}
        columns |= {name: heads[name] for name in ("instruction", "mask", "warp")}
        columns = boxes.insert(columns, records.kinds, self._boxes)
        for name, column in self._spread(columns).items():
            self._columns[name].append(column)
        self._stored(records)
        self._registers(records)

    # ---- what they have ----

    def _addresses(self, records: TraceRecords, block: Array) -> tuple[Array, Array]:
        """Returns the base addresses and the rows of addresses, in one address space."""
        numbers = records.heads["instruction"]
        top = int(numbers.max()) + 1
        spaces = np.array([self._space(number) for number in range(top)])[numbers]
        row = np.full(len(records), STRIDED, "i4")
        scattered = np.flatnonzero(~records.strided)
        base = records.units[records.places + layout.TRACE_RECORD.itemsize // 8]
        base = _canonical(base, spaces, block, self._blocks)
        if len(scattered):
            lanes = records.take(scattered).addresses()
            wide = np.broadcast_to
            shape = lanes.shape
            of = wide(spaces[scattered, None], shape), wide(block[scattered, None], shape)
            lanes = _canonical(lanes, *of, self._blocks)
            row[scattered] = self._rows + np.arange(len(scattered))
            self._rows += len(scattered)
            self._lanes.append(lanes)
        return base, row

    def _spread(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Returns columns with a row for each block that a copy to several writes to."""
        at = np.flatnonzero(np.isin(columns["instruction"], [*self._masks]))
        if not len(at):
            return columns
        ranks = []
        for number, lanes in zip(
            *(columns[n][at].tolist() for n in ("instruction", "mask")), strict=True
        ):
            masks = {self._masks[number].pop() for _ in range(lanes.bit_count())}
            if len(masks) > 1:
                self.missing.append(
                    "copies to several blocks, not the same for all threads of a warp"
                )
            ranks.append([n for n in range(MOST_BLOCKS) if max(masks) >> n & 1])
        times = np.ones(len(columns["base"]), "i8")
        times[at] = [len(some) for some in ranks]
        index = np.repeat(np.arange(len(times)), times)
        rows = np.isin(index, at)
        columns = {name: column[index] for name, column in columns.items()}
        of = self._blocks.of_rank(columns["block"][rows], np.concatenate(ranks).astype("i8"))
        offset = columns["base"][rows] & np.uint64(OFFSET)
        columns["base"][rows] = (
            np.uint64(SHARED) | of.astype("u8") << np.uint64(BLOCK_SHIFT) | offset
        )
        return columns

    def _space(self, number: int) -> Space:
        operation = self.operations.get(number)
        return operation.space if operation else Space.NONE

    def _stored(self, records: TraceRecords) -> None:
        with_values = records.take(np.flatnonzero(records.kinds == KIND["values"]))
        for number in layout.distinct(with_values.heads["instruction"]).tolist():
            operation = self.operations[number]
            if operation.access != Access.STORE:
                continue
            some = with_values.take(np.flatnonzero(with_values.heads["instruction"] == number))
            words = some.values(-(-operation.size // 4))
            lanes = np.ascontiguousarray(words.transpose(0, 2, 1)).view("u1")
            self._values[number].append(lanes[:, :, : operation.size])

    def _registers(self, records: TraceRecords) -> None:
        """Keeps the operands of barriers that are in registers."""
        for number in layout.distinct(records.heads["instruction"]).tolist():
            operation = self.operations[number]
            if operation.barrier is not None and operation.count is not None:
                continue
            if self._kinds[number] != KIND["registers"]:
                continue
            some = records.take(np.flatnonzero(records.heads["instruction"] == number))
            found = some.registers()
            lane = np.argmax(some.lanes, axis=1)
            values = found[np.arange(len(some)), :, lane].astype(np.int64)
            self._operands[number].append(_barrier(values, operation))


def _barrier(values: Array, operation: Operation) -> Array:
    """Returns [number, count] of each record from its registers, of which these are the last."""
    out = np.full((len(values), 2), -1, np.int64)
    told = (operation.barrier, operation.count)
    asked = [i for i, known in enumerate(told) if known is None]
    for i, known in enumerate(told):
        if known is not None:
            out[:, i] = known
        elif values.shape[1]:
            out[:, i] = values[:, -min(len(asked) - asked.index(i), values.shape[1])]
    return out


def _canonical(addresses: Array, spaces: Array, block: Array, blocks: Blocks) -> Array:
    """Returns addresses in the one address space of `model`.

    Those of shared memory may have the rank of a block in its cluster, from 1.
    """
    out = addresses.copy()
    shared = spaces == Space.SHARED
    generic = (spaces == Space.GENERIC) & (addresses >= np.uint64(SHARED_WINDOW))
    shared |= generic & (addresses < np.uint64(SHARED_WINDOW + WINDOW))
    owner = block[shared].astype("u8")
    rank = (addresses[shared] >> np.uint64(BLOCK_SHIFT) & np.uint64(0xFF)).astype(np.int64)
    far = rank > 0
    owner[far] = blocks.of_rank(owner[far], rank[far] - 1)
    owner = np.uint64(SHARED) | owner << np.uint64(BLOCK_SHIFT)
    out[shared] = owner | addresses[shared] & np.uint64(OFFSET)
    return out


def launches(process: Process, seq: int | None) -> list[int]:
    """Returns the indices of the launches that were to be traced: of a call, or all."""
    return [i for i, of in enumerate(process.traced["seq"].tolist()) if seq in (None, of)]
