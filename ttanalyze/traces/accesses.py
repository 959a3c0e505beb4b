"""Accesses to some memory, from the trace of a launch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from ttanalyze.format.instruction_traces import KIND, TraceRecords
from ttanalyze.format.process import Process
from ttanalyze.traces.instructions import Instruction, Instructions

KINDS = ("addresses", "values")
STORES = ("store", "atomic")
SPACES = ("global", "generic")
ENGINES = ("UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED")  # they may store to global memory
SURFACES = ("sust", "sured", "SUST", "SURED", "SUATOM")
LANES = 32


@dataclass(frozen=True)
class Access:
    """An access of a thread to global memory.

    Attributes:
        place: Its record and its lane: the order of the trace.
        instruction: The instruction.
        data: What the record has: what is stored, loaded, or what an atomic operation returned.
            None if the record has addresses alone.
        warp: The block and the warp.
        thread: The thread, as x, y, z.
        begin: The first byte, counted from the first address that was asked for.
        size: The number of bytes.
    """

    place: tuple[int, int]
    instruction: Instruction
    data: bytes | None
    warp: tuple[tuple[int, ...], int]
    thread: tuple[int, ...]
    begin: int
    size: int

    @property
    def stored(self) -> bytes | None:
        """The bytes that it stores, None if they are unknown."""
        return self.data if self.instruction.access == "store" else None

    @property
    def returned(self) -> bytes | None:
        """The bytes that it found, None if they are unknown."""
        return self.data if self.instruction.opcode == "atom" else None


def untold(code: Instructions) -> list[str]:
    """Returns the instructions that store to memory, but leave no address in a trace.

    Args:
        code: The instructions of a kernel.
    """
    found = set()
    for one in code.by_number.values():
        engine = one.opcode in ENGINES or (one.category == "tma" and ".global." in one.mnemonic)
        if engine or one.opcode in SURFACES:
            found.add(one.opcode if one.opcode.isupper() else one.mnemonic)
    return [f"{name}: the trace has no address of what it stores" for name in sorted(found)]


def accesses(
    process: Process,
    index: int,
    code: Instructions,
    around: tuple[int, int],
    lacks: list[str],
    kinds: Collection[str] = STORES,
) -> list[Access]:
    """Returns the accesses to some addresses, in the order of the trace.

    Args:
        process: The process.
        index: The launch, in `process.traced`.
        code: The instructions of its kernel.
        around: The first address, and the one behind the last.
        lacks: Gets a line for each thing that the trace does not tell.
        kinds: The kinds of instructions: `load`, `store`, `atomic`.
    """
    found: list[Access] = []
    unknown, block = set(), process.traced["block"][index].tolist()
    for records in process.trace_records(index, KINDS):
        for number in np.unique(records.heads["instruction"]).tolist():
            which = np.flatnonzero(records.heads["instruction"] == number)
            instruction = code.by_number.get(number)
            if instruction is None:
                unknown.add(number)
            elif instruction.access in kinds and instruction.space in SPACES:
                found += _of(instruction, records.take(which), around, block)
    if unknown:
        lacks.append(f"records of {len(unknown)} instructions that the code does not have")
    return sorted(found, key=lambda one: one.place)


def _of(
    instruction: Instruction, records: TraceRecords, around: tuple[int, int], block: list[int]
) -> Iterator[Access]:
    begin, stop = around
    at, words = records.addresses(), int(records.words.max(initial=0))
    size = instruction.size or 4 * words or 1
    near = records.lanes & (at < np.uint64(stop)) & (at + np.uint64(size) > np.uint64(begin))
    told = np.flatnonzero((records.kinds == KIND["values"]) & near.any(axis=1))
    values = records.take(told).values(-(-size // 4)).transpose(0, 2, 1)
    data = np.ascontiguousarray(values).view("u1")
    rows = dict(zip(told.tolist(), range(len(told)), strict=True))
    for record, lane in zip(*(found.tolist() for found in np.nonzero(near)), strict=True):
        head = records.heads[record]
        thread = int(head["warp"]) * LANES + lane
        x, y, _ = block
        yield Access(
            (int(records.numbers[record]), lane),
            instruction,
            data[rows[record], lane, :size].tobytes() if record in rows else None,
            (tuple(int(head[f"block_{axis}"]) for axis in "xyz"), int(head["warp"])),
            (thread % x, thread // x % y, thread // (x * y)),
            int(at[record, lane]) - begin,
            size,
        )
