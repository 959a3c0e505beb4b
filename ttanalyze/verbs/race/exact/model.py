"""What the search for races within a launch reads: its records as columns, and its instructions.

Memory has one address space: a global address is itself, and the byte at an offset in the shared
memory of a block is `SHARED | block << BLOCK_SHIFT | offset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from ttanalyze.format.layout import Array

WARP = 32
SHARED = 1 << 63
BLOCK_SHIFT = 24
ALL_LANES = 0xFFFFFFFF
STRIDED, NO_ADDRESS = -1, -2  # Launch.row


class Access(IntEnum):
    """What an instruction does to memory. Of a copy, the part that writes is a store."""

    NONE = 0
    LOAD = 1
    STORE = 2
    ATOMIC = 3


class Space(IntEnum):
    """The memory that an instruction names. GENERIC: any, by its address."""

    NONE = 0
    GENERIC = 1
    GLOBAL = 2
    SHARED = 3


class Sync(IntEnum):
    """How an instruction orders others.

    UNKNOWN: it may order, in a way that is not modelled.
    """

    NONE = 0
    BARRIER = 1
    BARRIER_ARRIVE = 2
    WARP = 3
    FENCE = 4
    CLUSTER_ARRIVE = 5
    CLUSTER_WAIT = 6
    MBARRIER_ARRIVE = 7
    MBARRIER_WAIT = 8
    COPY_WAIT = 9
    UNKNOWN = 10


class Scope(IntEnum):
    """The threads that a fence, a release or an acquire concerns."""

    BLOCK = 0
    CLUSTER = 1
    DEVICE = 2


@dataclass(frozen=True)
class Operation:
    """An instruction.

    Attributes:
        text: As in the code.
        size: Bytes that each thread accesses.
        strong: Other threads may access the same memory at the same time: volatile, relaxed, …
        release: Orders what came before it, for those who read its value.
        acquire: Orders what comes behind it, after those whose value it reads.
        returns: An atomic operation gives back what was there.
        copy: It is done later, by an engine; `barrier` says when.
        barrier: The barrier's number, or a mask of the lanes that meet; None: in a register.
        count: Threads that the barrier waits for, 0 for all; None: in a register.
        source: FILE:LINE.
    """

    text: str = ""
    access: Access = Access.NONE
    size: int = 0
    space: Space = Space.NONE
    strong: bool = False
    release: bool = False
    acquire: bool = False
    returns: bool = True
    copy: bool = False
    sync: Sync = Sync.NONE
    scope: Scope = Scope.DEVICE
    barrier: int | None = 0
    count: int | None = 0
    source: str | None = None


@dataclass
class Launch:
    """The records of a launch in the order of the trace, one for each execution by a warp.

    Attributes:
        operations: By the number of the instruction.
        threads: Of a block.
        instruction, mask, block, warp: Columns. Blocks are linear, warps are those in a block.
        base, stride: The address of lane i is base + i * stride, if row is STRIDED.
        row: Else the row of `lanes` that has the addresses, or NO_ADDRESS.
        lanes: Addresses, 32 in each row.
        grid, cluster: Blocks of the launch and of a cluster, in x, y and z.
        operands: By the number of an instruction: [number, count] of a barrier whose operands are
            registers, a row for each of its records.
        values: By the number of an instruction that stores: what each lane stores, as bytes, for
            each of its records.
        missing: What the trace lacks, one line for each.
        untold: Kinds of instructions that the code has, but of which the trace has no record.
    """

    operations: Mapping[int, Operation]
    threads: int
    instruction: Array
    mask: Array
    block: Array
    warp: Array
    base: Array
    stride: Array
    row: Array
    lanes: Array
    grid: Sequence[int] = (1 << 32, 1, 1)
    cluster: Sequence[int] = (1, 1, 1)
    operands: Mapping[int, Array] = field(default_factory=dict)
    values: Mapping[int, Array] = field(default_factory=dict)
    missing: Sequence[str] = ()
    untold: frozenset[Sync] = frozenset()

    def __post_init__(self) -> None:
        top = max(self.operations, default=0) + 1
        if len(self.instruction):
            top = max(top, int(self.instruction.max()) + 1)
        self.access = self._column(top, "access")
        self.sync = self._column(top, "sync")
        self.size = self._column(top, "size", np.uint32)
        self.strong = self._column(top, "strong", np.bool_)
        self.copy = self._column(top, "copy", np.bool_)
        self.warps = -(-self.threads // WARP)
        self.gwarp = self.block.astype(np.uint32) * np.uint32(self.warps) + self.warp

    def _column(self, top: int, name: str, kind: type = np.uint8) -> Array:
        out: Array = np.zeros(top, kind)
        for number, operation in self.operations.items():
            out[number] = getattr(operation, name)
        return out

    def cluster_of(self, blocks: Array) -> Array:
        """Returns the number of the cluster of each block."""
        wide, high = (-(-self.grid[i] // self.cluster[i]) for i in (0, 1))
        row, x = np.divmod(blocks.astype(np.int64), self.grid[0])
        z, y = np.divmod(row, self.grid[1])
        x, y, z = (at // size for at, size in zip((x, y, z), self.cluster, strict=True))
        out: Array = (z * high + y) * wide + x
        return out

    def accesses(self) -> Array:
        """Returns the records that access memory at a known address."""
        found = (self.access[self.instruction] != Access.NONE) & (self.mask != 0)
        return np.flatnonzero(found & (self.row != NO_ADDRESS) & (self.size[self.instruction] != 0))

    def addresses(self, records: Array) -> Array:
        """Returns the addresses of all 32 lanes of each record."""
        lane = np.arange(WARP, dtype=np.int64)
        steps = (self.stride[records].astype(np.int64)[:, None] * lane).view(np.uint64)
        out: Array = self.base[records][:, None] + steps
        scattered = np.flatnonzero(self.row[records] >= 0)
        out[scattered] = self.lanes[self.row[records[scattered]]]
        return out


def lanes_of(mask: Array) -> Array:
    """Returns for each mask which of 32 lanes it has."""
    bits = (mask.astype(np.uint32)[:, None] >> np.arange(WARP, dtype=np.uint32)) & np.uint32(1)
    return bits.astype(bool)
