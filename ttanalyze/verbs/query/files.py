"""Kernel-event files as tables: lines of JSON from `ttanalyze events` and other tools.

Each line is an object of type `kernel_launch`, `kernel_node`, `graph_launch` or `callstack_def`.
The columns have the names of a run's events; members that a file lacks are missing values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ttanalyze.code import demangle
from ttanalyze.core import stacks
from ttanalyze.core.run_tables import FramePiece, Table
from ttanalyze.format.columns import categories
from ttanalyze.records.lines import Lines
from ttanalyze.records.members import LIMIT, Place, typed
from ttanalyze.util.progress import Progress, tell
from ttanalyze.util.regular_files import open_regular

PIECE = 1 << 15  # lines
KINDS = {"kernel_launch": "launch", "kernel_node": "launch", "graph_launch": "graph-launch"}
TYPES = (*KINDS, "callstack_def")
NUMBERS = {
    "launch": "kernel_launch_id",
    "registers": "nregs",
    "shmem": "shmem",
    "stream": "stream_id",
    **{name: name for name in ("kernel_launch_id", "nregs", "stream_id")},
    **{name: name for name in ("process", "seq", "time_ns", "context", "device", "thread")},
    **{name: name for name in ("flags", "result", "epoch", "graph", "node")},
    "gpu_begin": "gpu_begin_ns",
    "gpu_end": "gpu_end_ns",
}
TEXTS = {
    "checksum": "kernel_checksum",
    **{name: name for name in ("params", "kernel_checksum", "kernel_name")},
}
AS_IN_FILES = ("kernel_launch_id", "kernel_name", "kernel_checksum", "nregs", "stream_id")
AXES = {
    f"{size}_{axis}": (size, i)
    for size in ("grid", "block", "cluster")
    for i, axis in enumerate("xyz")
}
NAMED = {"kernel", "demangled", "short"}
RECORDED = (
    *("process", "launch", "seq", "time_ns", "kind", "kernel", "checksum", "registers", "shmem"),
    *("context", "device", "stream", "thread", "result", "flags", "epoch", "gpu_begin", "gpu_end"),
    *(*AXES, "params", "graph", "node"),
)
SHOWN = ("launch", "short", *list(AXES)[:6], "registers", "shmem", "stream", "caller")


class Ended(Protocol):
    """What tells how a trace or a file ended."""

    @property
    def note(self) -> str | None: ...


class RecordsFile:
    """A file of records whose tables can be queried like those of a run.

    Args:
        path: The file.
        tables: The tables by name.

    Attributes:
        notes: After a query, what it could not read of the file, a line each.
    """

    def __init__(self, path: str | os.PathLike[str], tables: dict[str, Table]) -> None:
        self.path, self.tables = Path(path), tables
        self.notes: list[str] = []
        os.close(open_regular(self.path))

    @property
    def parts(self) -> Sequence[RecordsFile]:
        """Parts that workers of a cluster can look at: files are not cut."""
        return [self]

    def _ended(self, lines: Ended) -> None:
        """Notes whether the file ended early."""
        self.notes = [lines.note] if lines.note else []


class EventsFile(RecordsFile):
    """A file of kernel events, with the table `events`.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        worked_out = ("demangled", "short", "caller", "stack_text", "gpu_time", *AS_IN_FILES)
        super().__init__(path, {"events": Table(RECORDED, worked_out, SHOWN, pieces_of)})

    def pieces(self, columns: Sequence[str], progress: Progress) -> Iterator[pd.DataFrame]:
        """Reads columns of the launches in pieces.

        Args:
            columns: The names of the columns.
            progress: Called with the read and the total number of bytes.

        Yields:
            DataFrames, at least one.

        Raises:
            Error: A line is wrong. The message names it.
        """
        lines, rows, numbers = Lines(self.path), [], []
        total, given = os.path.getsize(self.path), False
        known = _Stacks(any(column in ("caller", "stack_text") for column in columns))
        made = {column: _texts_of(column, known) for column in columns}
        for number, value in lines.records():
            record = typed(Place(lines, number), value, TYPES, "kernel event")
            if record["type"] == "callstack_def":
                known.define(lines, number, record)
                continue
            known.resolve(lines, number, record)
            rows.append(record)
            numbers.append(number)
            if len(rows) == PIECE:
                yield _Batch(lines, rows, numbers).frame(columns, made)
                rows, numbers, given = [], [], True
                tell(progress, lines.at, total)
        if rows or not given:
            yield _Batch(lines, rows, numbers).frame(columns, made)
        self._ended(lines)


def pieces_of(
    file: Any, columns: Sequence[str], ordered: bool, progress: Progress
) -> Iterator[FramePiece]:
    yield from map(FramePiece, file.pieces(columns, progress))


class _Stacks:
    """Call stacks by id. wanted: whether they are needed."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self.frames: list[tuple[stacks.Frame, ...]] = []  # of each different one
        self._numbers: dict[tuple[stacks.Frame, ...], int] = {}
        self._known: dict[str, int | None] = {}
        self._lines: dict[str, stacks.Frame] = {}  # each once, however many stacks it is in

    def define(self, lines: Lines, number: int, record: dict[str, Any]) -> None:
        name = record.get("callstack_id")
        if not isinstance(name, str):
            raise lines.error(number, "callstack_id: expected a string")
        found = self._number(lines, number, record, "frames", "source")
        if self._wanted:
            self._known[name] = found

    def resolve(self, lines: Lines, number: int, record: dict[str, Any]) -> None:
        """Sets the member "stack" of a launch: its index in frames, None if it has no stack."""
        if not self._wanted:
            return
        name = record.get("callstack_id")
        if name is not None and not isinstance(name, str):
            raise lines.error(number, "callstack_id: expected a string")
        if record.get("cpu_callstack") is not None:
            which = "cpu_callstack", "cpu_callstack_source"
            record["stack"] = self._number(lines, number, record, *which)
        else:
            record["stack"] = None if name is None else self._known.get(name)

    def _number(
        self, lines: Lines, number: int, record: dict[str, Any], member: str, source: str
    ) -> int | None:
        """Returns the number of a stack. `backtrace` writes the innermost frame first, other
        sources last.
        """
        texts = record.get(member)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise lines.error(number, f"{member}: expected a list of strings")
        found = []
        for text in texts:
            if text not in self._lines:
                self._lines[text] = stacks.parse(text)
            found.append(self._lines[text])
        stack = tuple(found if record.get(source) == "backtrace" else found[::-1])
        if not stack:
            return None
        if stack not in self._numbers:
            self._numbers[stack] = len(self.frames)
            self.frames.append(stack)
        return self._numbers[stack]


class _Texts:
    """Texts of rows as categories in order of first use."""

    def __init__(self, made: Callable[[list[Any]], list[str]]) -> None:
        self._made = made
        self._known: dict[Any, int] = {}
        self._categories: dict[str, int] = {}

    def column(self, keys: list[Any]) -> Any:
        """Returns a categorical of the texts of keys; None is missing."""
        new = [k for k in dict.fromkeys(keys) if k is not None and k not in self._known]
        for key, text in zip(new, self._made(new), strict=True):
            self._known[key] = self._categories.setdefault(text, len(self._categories))
        codes = [-1 if key is None else self._known[key] for key in keys]
        return categories(np.array(codes, "i4"), list(self._categories))


def _texts_of(column: str, known: _Stacks) -> _Texts:
    makers: dict[str, Callable[[list[Any]], list[str]]] = {
        "demangled": demangle.demangle,
        "short": lambda names: [demangle.short(name) for name in demangle.demangle(names)],
        "caller": lambda found: [stacks.caller(known.frames[n]) for n in found],
        "stack_text": lambda found: [stacks.whole(known.frames[n]) for n in found],
    }
    return _Texts(makers.get(column, list))


class _Batch:
    """Records of launches, and the numbers of their lines."""

    def __init__(self, lines: Lines, rows: list[dict[str, Any]], numbers: list[int]) -> None:
        self._lines, self._rows, self._numbers = lines, rows, numbers

    def frame(self, columns: Sequence[str], texts: dict[str, _Texts]) -> pd.DataFrame:
        made = {column: self._column(column, texts[column]) for column in columns}
        return pd.DataFrame(made, index=range(len(self._rows)))

    def _column(self, column: str, texts: _Texts) -> Any:
        if column == "kind":
            return texts.column([KINDS[row["type"]] for row in self._rows])
        if column in AXES:
            size, axis = AXES[column]
            return pd.array(self._sizes(size, axis), "Int64")
        if column in NUMBERS:
            return pd.array(self._members(NUMBERS[column], int, "a whole number"), "Int64")
        if column == "gpu_time":
            return self._column("gpu_end", texts) - self._column("gpu_begin", texts)
        if column in ("caller", "stack_text"):
            return texts.column([row["stack"] for row in self._rows])
        if column not in NAMED:
            return texts.column(self._members(TEXTS[column], str, "a string"))
        names = self._members("kernel_name", str, "a string")
        mangled = self._members("kernel_name_mangled", str, "a string")
        both = zip(names, mangled, strict=True)
        return texts.column([n if m is None or column != "kernel" else m for n, m in both])

    def _members(self, member: str, kind: type, expected: str) -> list[Any]:
        found = [row.get(member) for row in self._rows]
        for i, value in enumerate(found):
            if value is None:
                continue
            if type(value) is not kind or (type(value) is int and not -LIMIT <= value < LIMIT):
                raise self._lines.error(self._numbers[i], f"{member}: expected {expected}")
        return found

    def _sizes(self, member: str, axis: int) -> list[int | None]:
        found: list[int | None] = []
        for number, row in zip(self._numbers, self._rows, strict=True):
            value = row.get(member)
            if value is None:
                found.append(None)
                continue
            good = isinstance(value, list) and len(value) == 3
            if not good or not all(type(v) is int and 0 <= v < 1 << 32 for v in value):
                raise self._lines.error(number, f"{member}: expected three whole numbers")
            found.append(value[axis])
        return found
