"""Instruction traces as tables: see `ttanalyze.traces.reader` for the files."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.core.rank_column import Pieces
from ttanalyze.core.run_tables import FramePiece, Table
from ttanalyze.errors import Error
from ttanalyze.records.lines import Lines
from ttanalyze.records.members import Place, hexadecimal, numbers, text, typed, whole
from ttanalyze.traces import histogram, ipc, matrices, tensor_copies, warps
from ttanalyze.traces.native import AnyTrace
from ttanalyze.traces.reader import METADATA, SIZES, TYPES, Kernel, Trace
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.query.files import PIECE, EventsFile, RecordsFile, pieces_of
from ttanalyze.verbs.query.trace_columns import (
    RECORDED,
    WORKED_OUT,
    Rows,
    integers,
    lists,
    said,
    texts,
)

KERNEL_COLUMNS = (
    *("line", "kernel", "demangled", "checksum", "func_addr", "nregs", "shmem_static"),
    *("shmem_dynamic", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    *("cubin_path", "cpu_callstack", "cpu_callstack_source"),
)
INSTRUCTION_COLUMNS = (
    *("kernel", "opcode_id", "sass", "opcode", "mnemonic", "category", "binary", "regs", "uregs"),
)
TEXT_COLUMNS = {
    *("kernel", "demangled", "checksum", "cubin_path", "cpu_callstack", "cpu_callstack_source"),
    *("sass", "opcode", "mnemonic", "category", "binary", "state", "instruction"),
    *ipc.TEXTS,
    *matrices.TEXTS,
    *tensor_copies.TEXTS,
}
LIST_COLUMNS = {"regs", "uregs", *tensor_copies.LISTS}
BOOLEANS = {"complete", "sparse"}
SHOWN = ("index", "launch", "short", "cta_x", "cta_y", "cta_z", "warp", "opcode_id", "pc", "sass")
BYTES = 1 << 25  # of the lines of a piece


@dataclass(frozen=True)
class Regions:
    """Regions of kernels, for the tables `histogram` and `ipc` of instruction traces.

    Attributes:
        pairs: Pairs of clock reads that begin and end a region, by their offsets. Default: each
            second read ends a region.
        times: For `ipc`: a Chrome trace of Proton, or a run with GPU times.
    """

    pairs: Sequence[tuple[int, int]] = ()
    times: str | os.PathLike[str] | None = None


def open_file(path: str | os.PathLike[str], regions: Regions | None = None) -> RecordsFile:
    """Opens a file of kernel events or an instruction trace. The first record tells which it is.

    Args:
        path: The file.
        regions: For the tables `histogram` and `ipc` of a trace.

    Raises:
        Error: The file cannot be read.
    """
    lines = Lines(Path(path))
    for number, value in lines.records():
        with contextlib.suppress(Error):
            typed(Place(lines, number), value, (*TYPES, METADATA), "")
            return TraceFile(path, regions)
        break
    return TraceFile(path, regions) if lines.text else EventsFile(path)


class TraceFile(RecordsFile):
    """An instruction trace.

    The table `events` has a row per record, `kernels` and `instructions` what the header says,
    `warps` the last state of each warp, `histogram` instructions between reads of the clock, `ipc`
    instructions per cycle, `mma` products of matrices, and `tma` tensor copies.

    Args:
        path: The file.
        regions: For `histogram` and `ipc`.
    """

    def __init__(self, path: str | os.PathLike[str], regions: Regions | None = None) -> None:
        super().__init__(path, self._tables(regions))

    def _tables(self, regions: Regions | None) -> dict[str, Table]:
        self._regions = regions or Regions()
        tables = {"events": Table(RECORDED, WORKED_OUT, SHOWN, pieces_of)}
        makers = {
            "kernels": (KERNEL_COLUMNS, self._kernels),
            "instructions": (INSTRUCTION_COLUMNS, self._instructions_rows),
            "warps": (warps.COLUMNS, lambda trace: warps.warps(trace)),
            "histogram": (histogram.COLUMNS, self._histogram),
            "ipc": (ipc.COLUMNS, self._ipc),
            "mma": (matrices.COLUMNS, matrices.matrices),
            "tma": (tensor_copies.COLUMNS, tensor_copies.tensor_copies),
        }
        for name, (columns, rows) in makers.items():
            tables[name] = Table(columns, (), columns, self._pieces_of_rows(columns, rows))
        return tables

    def open(self) -> AnyTrace:
        """Returns the trace, at its beginning."""
        return Trace(self.path)

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
        trace, rows = self.open(), Rows(columns)
        total, given, begin = trace.lines.size, False, 0
        for record in trace.records():
            if isinstance(record, Kernel):
                continue
            rows.add(record)
            if len(rows) == PIECE or trace.lines.read - begin > BYTES:
                yield rows.frame()
                given, begin = True, trace.lines.read
                tell(progress, trace.lines.at, total)
        if len(rows) or not given:
            yield rows.frame()
        self._ended(trace.lines)

    def _pieces_of_rows(
        self, columns: Sequence[str], make: Callable[[AnyTrace], Iterator[dict[str, Any]]]
    ) -> Pieces:
        """Returns the function that makes pieces of rows, for a Table."""

        def pieces(
            _: Any, wanted: Sequence[str], ordered: bool, progress: Progress
        ) -> Iterator[FramePiece]:
            trace, given = self.open(), False
            total, rows = trace.lines.size, make(trace)
            self.notes = []
            while (some := list(itertools.islice(rows, PIECE))) or not given:
                made = {c: _column(c, [row[c] for row in some]) for c in columns}
                yield FramePiece(pd.DataFrame(made, index=range(len(some))))
                given = True
                tell(progress, trace.lines.at, total)
            self.notes += [trace.lines.note] if trace.lines.note else []

        return pieces

    def _kernels(self, trace: AnyTrace) -> Iterator[dict[str, Any]]:
        for kernel in trace.records():
            if isinstance(kernel, Kernel):
                yield _header(Place(trace.lines, kernel.line), kernel)

    def _instructions_rows(self, trace: AnyTrace) -> Iterator[dict[str, Any]]:
        for kernel in trace.records():
            if isinstance(kernel, Kernel):
                place = Place(trace.lines, kernel.line)
                for name, told in kernel.instructions.items():
                    yield _instruction(place, kernel, name, told)

    def _histogram(self, trace: AnyTrace) -> Iterator[dict[str, Any]]:
        made = histogram.Histogram(trace, self._regions.pairs)
        yield from made.rows()
        self.notes += [made.note] if made.note else []

    def _ipc(self, trace: AnyTrace) -> Iterator[dict[str, Any]]:
        times = self._regions.times
        if times is None:
            raise Error("--table ipc: needs --times FILE, a Chrome trace of Proton")
        scopes = ipc.scopes(times)
        yield from ipc.of_scopes(trace, self._regions.pairs, scopes, self.notes)


def _header(place: Place, kernel: Kernel) -> dict[str, Any]:
    record = kernel.record
    sizes = {
        f"{member}_{axis}": (record.get(member) or [None] * 3)[i]
        for member in SIZES
        for i, axis in enumerate("xyz")
    }
    stack = record.get("cpu_callstack")
    if stack is not None and not (isinstance(stack, list) and all(type(s) is str for s in stack)):
        raise place.error("cpu_callstack: expected a list of strings")
    return {
        "line": kernel.line,
        "kernel": kernel.name,
        "demangled": kernel.demangled,
        "checksum": kernel.checksum,
        "func_addr": hexadecimal(place, record, "func_addr"),
        **{n: whole(place, record, n) for n in ("nregs", "shmem_static", "shmem_dynamic")},
        **sizes,
        "cubin_path": text(place, record, "cubin_path"),
        "cpu_callstack": None if stack is None else "\n".join(stack),
        "cpu_callstack_source": text(place, record, "cpu_callstack_source"),
    }


def _instruction(place: Place, kernel: Kernel, name: str, told: dict[str, Any]) -> dict[str, Any]:
    if not name.isdecimal() or len(name) > 18:
        raise place.error(f"instructions: {name[:40]!r} is not a number")
    return {
        "kernel": kernel.name,
        "opcode_id": int(name),
        **said(text(place, told, "sass") or ""),
        "binary": text(place, told, "binary"),
        **{n: _registers(place, told, n) for n in ("regs", "uregs")},
    }


def _registers(place: Place, told: dict[str, Any], member: str) -> Any:
    if told.get(member) is None:
        return None
    return np.array(numbers(place, told, member, None, 256), "u1")


def _column(name: str, values: list[Any]) -> Any:
    if name in TEXT_COLUMNS:
        return texts(values)
    if name in LIST_COLUMNS:
        return lists([None if value is None else np.asarray(value) for value in values])
    if name in ipc.FLOATS and not all(type(v) is int for v in values):
        return pd.array(values, "Float64")
    return pd.array(values, "boolean") if name in BOOLEANS else integers(values)
