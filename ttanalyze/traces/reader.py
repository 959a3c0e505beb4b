"""Reads instruction traces of CUTracer: JSON lines, the same in zstd frames, or text.

The records are those of TraceWriter at commit 8a9e11bf (2026-04-30, after version 0.2.1), and the
older `mem_trace` and `sass` in each record. A record tells what a warp did at an instruction, by
the number of the instruction. The instruction is in the record itself or in that of the kernel,
which comes first. A trace is read once, record by record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ttanalyze.records.lines import Lines
from ttanalyze.records.members import LIMIT, Place, hexadecimal, numbers, text, typed, whole

METADATA = "kernel_metadata"
EVERY = ("opcode_only", "reg_trace")  # types with a record of every instruction
TYPES = (*EVERY, "mem_trace", "mem_addr_trace", "mem_value_trace", "tma_trace")
IN_TEXT = (*EVERY, "mem_addr_trace")  # types that text traces can have
SIZES = ("grid", "block")


class Kernel:
    """The first record of a trace: the kernel, its launch, and its instructions by number.

    process: its number in a run; of a file None.
    """

    def __init__(self, place: Place, record: dict[str, Any], process: int | None = None) -> None:
        self.line, self.process = place.number, process
        self.record = record
        self.name = text(place, record, "mangled_name")
        self.demangled = text(place, record, "unmangled_name")
        self.checksum = text(place, record, "kernel_checksum")
        table = record.get("instructions") or {}
        if not isinstance(table, dict) or not all(isinstance(i, dict) for i in table.values()):
            raise place.error("instructions: expected an object of objects")
        self.instructions: dict[str, dict[str, Any]] = table
        for member in SIZES:
            if record.get(member) is not None:
                numbers(place, record, member, 3, 1 << 32)

    def warps(self) -> int | None:
        """Returns how many warps the launch has. None if the sizes are unknown."""
        grid, block = (self.record.get(member) for member in SIZES)
        if not grid or not block:
            return None
        threads = block[0] * block[1] * block[2]
        count = int(grid[0] * grid[1] * grid[2] * -(-threads // 32))
        return count if count < LIMIT else None


class Record(NamedTuple):
    """A record with its place and its kernel, which text traces lack."""

    place: Place
    members: dict[str, Any]
    kernel: Kernel | None

    def instruction(self) -> dict[str, Any]:
        """Returns what the kernel's table says of the instruction."""
        if self.kernel is None:
            return {}
        return self.kernel.instructions.get(str(self.members.get("opcode_id")), {})

    def sass(self) -> str | None:
        """Returns the text of the instruction, from the record or else from the kernel."""
        own = text(self.place, self.members, "sass")
        return own or text(self.place, self.instruction(), "sass")

    def offset(self) -> int | None:
        """Returns the offset of the instruction in the kernel."""
        return hexadecimal(self.place, self.members, "pc")


class Trace:
    """A trace file. lines: how far it is read, and whether it ends early."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.lines = Lines(Path(path))

    def records(self) -> Iterator[Record | Kernel]:
        """Yields all records. Raises Error for one that is wrong."""
        kernel = None
        for number, value in self.lines.records():
            place = Place(self.lines, number)
            record = typed(place, value, (*TYPES, METADATA), "trace record")
            if record["type"] == METADATA:
                kernel = Kernel(place, record)
                yield kernel
            else:
                yield Record(place, record, kernel)

    def whole_records(self) -> Iterator[Record | Kernel]:
        """Yields all records, after a check of the members that tell whose they are."""
        for record in self.records():
            if isinstance(record, Record):
                for member in ("warp", "grid_launch_id", "opcode_id"):
                    value = whole(record.place, record.members, member)
                    if value is None and member == "warp":
                        raise record.place.error("no warp")
                    if value is not None and value < 0:
                        raise record.place.error(f"{member}: expected 0 or more")
                cta(record)
            yield record


def cta(record: Record) -> tuple[int, int, int]:
    x, y, z = numbers(record.place, record.members, "cta", 3, 1 << 32)
    return x, y, z
