"""Instruction traces as tables: lines of JSON from CUTracer, one file per kernel.

A line tells what a warp did at an instruction, by the number of the instruction. The text of the
instruction is in the record itself or in the record of the kernel, which comes first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.code import demangle
from ttanalyze.core.run_tables import Table
from ttanalyze.disassembly.decode import parsed
from ttanalyze.errors import Error
from ttanalyze.format.columns import categories
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.query.files import PIECE, EventsFile, Lines, RecordsFile, pieces_of

METADATA = "kernel_metadata"
TYPES = (
    *("opcode_only", "reg_trace", "mem_trace", "mem_addr_trace", "mem_value_trace", "tma_trace"),
    METADATA,
)
NUMBERS = {
    "index": "trace_index",
    "timestamp": "timestamp",
    "launch": "grid_launch_id",
    "warp": "warp",
    "opcode_id": "opcode_id",
}
AXES = ("cta_x", "cta_y", "cta_z")
OF_KERNELS = ("kernel", "checksum")
RECORDED = ("index", "timestamp", "kind", "launch", *OF_KERNELS, *AXES, "warp", "opcode_id", "pc")
OF_INSTRUCTIONS = ("sass", "opcode", "category", "binary")
WORKED_OUT = ("demangled", "short", *OF_INSTRUCTIONS)
SHOWN = ("index", "launch", "short", *AXES, "warp", "opcode_id", "pc", "sass")
LIMIT = 1 << 63


def open_file(path: str | os.PathLike[str]) -> RecordsFile:
    """Opens a file of kernel events or an instruction trace. The first record tells which it is.

    Args:
        path: The file.

    Raises:
        Error: The file cannot be read.
    """
    with contextlib.suppress(Error):
        for _ in Lines(Path(path), TYPES, "trace record").records():
            return TraceFile(path)
    return EventsFile(path)


class TraceFile(RecordsFile):
    """An instruction trace, whose table `events` has one row per record.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, {"events": Table(RECORDED, WORKED_OUT, SHOWN, pieces_of)})

    def pieces(self, columns: Sequence[str], progress: Progress) -> Iterator[pd.DataFrame]:
        """Reads columns of the records in pieces.

        Args:
            columns: The names of the columns.
            progress: Called with the read and the total number of bytes.

        Yields:
            DataFrames, at least one.

        Raises:
            Error: A line is wrong. The message names it.
        """
        lines, rows = Lines(self.path, TYPES, "trace record"), _Rows(columns)
        total, given = os.path.getsize(self.path), False
        for number, record in lines.records():
            if record["type"] == METADATA:
                rows.kernel = _Kernel(lines, number, record)
                continue
            rows.add(lines, number, record)
            if len(rows) == PIECE:
                yield rows.frame()
                given = True
                tell(progress, lines.at, total)
        if len(rows) or not given:
            yield rows.frame()


class _Kernel:
    """The first record of a trace: the kernel and its instructions by number."""

    def __init__(self, lines: Lines, number: int, record: dict[str, Any]) -> None:
        self.texts = {
            "kernel": _text(lines, number, record, "mangled_name"),
            "checksum": _text(lines, number, record, "kernel_checksum"),
        }
        self.texts["demangled"] = _text(lines, number, record, "unmangled_name")
        table = record.get("instructions") or {}
        if not isinstance(table, dict) or not all(isinstance(i, dict) for i in table.values()):
            raise lines.error(number, "instructions: expected an object of objects")
        self.instructions: dict[str, dict[str, Any]] = table


class _Rows:
    """The rows of a piece, column by column."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.kernel: _Kernel | None = None
        self._makers = {column: _maker(column) for column in columns}
        self._columns: dict[str, list[Any]] = {column: [] for column in columns}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, lines: Lines, number: int, record: dict[str, Any]) -> None:
        self._count += 1
        for column, make in self._makers.items():
            self._columns[column].append(make(lines, number, record, self.kernel))

    def frame(self) -> pd.DataFrame:
        """Returns the rows that were added since the last call."""
        made = {column: _column(column, found) for column, found in self._columns.items()}
        frame: pd.DataFrame = pd.DataFrame(made, index=range(self._count))
        self._columns = {column: [] for column in self._columns}
        self._count = 0
        return frame


Maker = Callable[[Lines, int, dict[str, Any], _Kernel | None], Any]


def _maker(column: str) -> Maker:
    """Returns the function that takes the value of a column from a record."""
    if column == "kind":
        return lambda lines, number, record, kernel: record["type"]
    if column in NUMBERS:
        member = NUMBERS[column]
        return lambda lines, number, record, kernel: _number(lines, number, record, member)
    if column in AXES:
        axis = AXES.index(column)
        return lambda lines, number, record, kernel: _cta(lines, number, record)[axis]
    if column == "pc":
        return _pc
    if column in OF_INSTRUCTIONS:
        return lambda lines, number, record, kernel: _said(column, lines, number, record, kernel)
    return lambda lines, number, record, kernel: _of_kernel(column, kernel)


def _number(lines: Lines, number: int, record: dict[str, Any], member: str) -> int | None:
    value = record.get(member)
    if value is not None and (type(value) is not int or not -LIMIT <= value < LIMIT):
        raise lines.error(number, f"{member}: expected a whole number")
    return value


def _text(lines: Lines, number: int, record: dict[str, Any], member: str) -> str | None:
    value = record.get(member)
    if value is not None and not isinstance(value, str):
        raise lines.error(number, f"{member}: expected a string")
    return value


def _cta(lines: Lines, number: int, record: dict[str, Any]) -> list[int]:
    value = record.get("cta")
    if not isinstance(value, list) or len(value) != 3:
        raise lines.error(number, "cta: expected three whole numbers")
    if not all(type(v) is int and 0 <= v < 1 << 32 for v in value):
        raise lines.error(number, "cta: expected three whole numbers")
    return value


def _pc(lines: Lines, number: int, record: dict[str, Any], kernel: _Kernel | None) -> int | None:
    said = _text(lines, number, record, "pc")
    try:
        value = None if said is None else int(said, 16)
    except ValueError:
        value = LIMIT
    if value is not None and not 0 <= value < LIMIT:
        raise lines.error(number, "pc: expected a hexadecimal number")
    return value


def _said(
    column: str, lines: Lines, number: int, record: dict[str, Any], kernel: _Kernel | None
) -> str | None:
    """Returns a value of the instruction, from the record or else from the kernel."""
    known: dict[str, Any] = {}
    if kernel is not None:
        known = kernel.instructions.get(str(record.get("opcode_id")), known)
    if column == "binary":
        return _text(lines, number, known, "binary")
    sass = _text(lines, number, record, "sass") or _text(lines, number, known, "sass")
    if sass is None:
        return None
    text = parsed(sass.rstrip("; "))
    return text.sass if column == "sass" else getattr(text, column)


def _of_kernel(column: str, kernel: _Kernel | None) -> str | None:
    if kernel is None:
        return None
    if column != "short":
        return kernel.texts[column]
    name = kernel.texts["demangled"]
    return None if name is None else demangle.short(name)


def _column(column: str, values: list[Any]) -> Any:
    if column in NUMBERS or column in AXES or column == "pc":
        return pd.array(values, "Int64")
    codes, different = pd.factorize(np.array(values, "object"))
    return categories(codes, list(different))
