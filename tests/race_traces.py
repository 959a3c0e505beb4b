"""Traces of launches that tests write by hand, record by record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ttanalyze.verbs.race.exact.analysis import Conflict, conflicts
from ttanalyze.verbs.race.exact.model import (
    BLOCK_SHIFT,
    NO_ADDRESS,
    SHARED,
    STRIDED,
    WARP,
    Access,
    Launch,
    Operation,
    Sync,
)

ALL = 0xFFFFFFFF
LOAD, STORE, ATOMIC = (
    Operation(name, access, 4)
    for name, access in (("ld", Access.LOAD), ("st", Access.STORE), ("atom", Access.ATOMIC))
)
BARRIER = Operation("bar.sync 0", sync=Sync.BARRIER)


def shared(offset: int, block: int = 0) -> int:
    return SHARED | block << BLOCK_SHIFT | offset


class Written:
    """A launch that is written record by record."""

    def __init__(
        self,
        threads: int = 64,
        cluster: Sequence[int] = (1, 1, 1),
        grid: Sequence[int] = (64, 1, 1),
    ) -> None:
        self.threads, self.cluster, self.grid = threads, cluster, grid
        self.operations: dict[int, Operation] = {}
        self.rows: list[tuple[int, ...]] = []
        self.lanes: list[list[int]] = []
        self.values: dict[int, list[Sequence[int]]] = {}
        self.operands: dict[int, list[tuple[int, int]]] = {}

    def add(
        self,
        number: int,
        operation: Operation,
        warp: int = 0,
        block: int = 0,
        base: int | None = None,
        stride: int = 4,
        mask: int = ALL,
        values: Sequence[int] | None = None,
        operands: tuple[int, int] | None = None,
    ) -> None:
        """Adds a record: a warp executes an instruction."""
        self.operations[number] = operation
        row = NO_ADDRESS if base is None else STRIDED
        self.rows.append((number, mask, block, warp, base or 0, stride, row))
        if values is not None:
            self.values.setdefault(number, []).append(values)
        if operands is not None:
            self.operands.setdefault(number, []).append(operands)

    def scattered(
        self, number: int, operation: Operation, addresses: Sequence[int], mask: int = ALL
    ) -> None:
        """Adds a record of warp 0 of block 0 with an address for each lane."""
        self.operations[number] = operation
        self.rows.append((number, mask, 0, 0, 0, 0, len(self.lanes)))
        self.lanes.append([*addresses, *[0] * (WARP - len(addresses))])

    def everywhere(self, number: int, operation: Operation, warps: int, block: int = 0) -> None:
        """Adds a record without addresses for each warp of a block."""
        for warp in range(warps):
            self.add(number, operation, warp, block)

    def launch(self) -> Launch:
        kinds = (np.uint32, np.uint32, np.uint32, np.uint16, np.uint64, np.int32, np.int32)
        columns = zip(*self.rows, strict=True)
        numbers = (np.array(c, k) for c, k in zip(columns, kinds, strict=True))
        instruction, mask, block, warp, base, stride, row = numbers
        return Launch(
            self.operations,
            self.threads,
            instruction,
            mask,
            block,
            warp,
            base,
            stride,
            row,
            np.array(self.lanes, np.uint64).reshape(-1, WARP),
            grid=self.grid,
            cluster=self.cluster,
            operands={n: np.array(rows, np.int64) for n, rows in self.operands.items()},
            values={
                n: np.array(rows, np.uint32).view(np.uint8).reshape(len(rows), WARP, 4)
                for n, rows in self.values.items()
            },
        )

    def conflicts(self, untold: frozenset[Sync] = frozenset()) -> list[Conflict]:
        made = self.launch()
        made.untold = untold
        return conflicts(made)

    def found(self) -> list[tuple[tuple[int, int], bool]]:
        """Returns the instructions of each race, and whether it is certain."""
        return [(one.instructions, one.certain) for one in self.conflicts()]
