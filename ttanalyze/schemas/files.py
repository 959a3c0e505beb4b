"""Checks files against schemas: finds the kind of a file, and its faults with lines and places.

A file is a document (one JSON value) or records (an object per line, or a list of objects) of types
that may be mixed. Records may be in zstd frames, or the text of a trace. Some checks go beyond
schemas: records may refer only to call stacks that exist, and keys must agree with the objects that
they name.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ttanalyze.errors import Error, system_errors
from ttanalyze.output import text
from ttanalyze.records.lines import Lines, Wrong
from ttanalyze.schemas.schema import check_of
from ttanalyze.util.progress import Progress
from ttanalyze.util.regular_files import open_regular

RECORDS: dict[str, tuple[str, ...]] = {
    "kernel-events": ("kernel_launch", "kernel_node", "graph_launch", "callstack_def"),
    "trace": ("kernel_metadata", "trace_record"),
    "instruction-records": ("instruction",),
}
TRACES = ("opcode_only", "reg_trace", "tma_trace", "mem_trace", "mem_addr_trace")
SCHEMAS = {
    **{schema: schema for schemas in RECORDS.values() for schema in schemas},
    **dict.fromkeys((*TRACES, "mem_value_trace"), "trace_record"),
}
OF_TYPES = {
    "reg_trace": ("regs",),
    "mem_addr_trace": ("addrs",),
    "mem_value_trace": ("addrs", "values", "mem_space", "is_load", "access_size"),
}
DOCUMENTS = {
    "delay-config": "delay_config",
    "instructions": "instructions",
    "reduce-report": "reduce_report",
    "manifest": "manifest",
    "run": "run",
}
LISTED = ("instructions",)  # of which a file may have a list, as `sass --json` writes it
FORMATS = {
    "ttanalyze-instructions": "instructions",
    "ttanalyze-reduce": "reduce-report",
    "ttanalyze-manifest": "manifest",
    "ttanalyze-run": "run",
}
KINDS = (*RECORDS, *DOCUMENTS)
MOST = 10_000  # faults of a file


@dataclass(frozen=True)
class Fault:
    """A fault in a file.

    Attributes:
        line: The line from 1 in a file of records, else None.
        where: The member, "" for the whole.
        reason: The reason, one line.
    """

    line: int | None
    where: str
    reason: str

    def __str__(self) -> str:
        line = None if self.line is None else f"line {self.line}"
        return ": ".join(text.printable(p) for p in (line, self.where, self.reason) if p)


@dataclass(frozen=True)
class Report:
    """The result of `validate`.

    Attributes:
        path: The file or the run.
        kind: What it is, such as "manifest".
        checked: The number of documents or records.
        faults: The faults.
        more: Whether further faults were left out.
    """

    path: str
    kind: str
    checked: int
    faults: list[Fault]
    more: bool

    @property
    def good(self) -> bool:
        return not self.faults


def validate(
    path: str | os.PathLike[str], kind: str | None = None, progress: Progress = None
) -> Report:
    """Checks a file. kind: one of KINDS, by default found from the contents.

    Raises Error if the file cannot be read or its kind is unclear.
    """
    path = Path(path)
    if kind is not None and kind not in KINDS:
        raise Error(f"--kind {kind}: must be one of {', '.join(KINDS)}")
    lines = Lines(path)
    listed = _read(path, 1) == b"["
    kind = kind or _kind(path, listed)
    checking = _Checking(path, lines, progress)
    if kind in RECORDS:
        found = checking.records(kind, _list(path) if listed else checking.values())
    else:
        found = checking.document(kind)
    faults = list(itertools.islice(found, MOST))
    more = next(found, None) is not None
    return Report(os.fspath(path), kind, checking.checked, faults, more)


def _read(path: Path, most: int = -1) -> bytes:
    with system_errors(path), os.fdopen(open_regular(path), "rb") as file:
        return file.read(most)


def _kind(path: Path, listed: bool) -> str:
    """Finds the kind by the first record, else by the whole."""
    lines = Lines(path)
    _, first = (None, None) if listed else next(lines.records(), (None, None))
    if lines.text:
        return "trace"
    if isinstance(first, Wrong) or listed or lines.cut:
        with contextlib.suppress(orjson.JSONDecodeError):
            first = orjson.loads(_read(path))
    found = _kind_of(first[0] if isinstance(first, list) and first else first)
    if found is None:
        raise Error(f"{path}: unknown kind of file; choose one with --kind: {', '.join(KINDS)}")
    return found


def _kind_of(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    named = value.get("type")
    for kind, schemas in RECORDS.items():
        if isinstance(named, str) and SCHEMAS.get(named) in schemas:
            return kind
    form = value.get("format")
    if isinstance(form, str) and form in FORMATS:
        return FORMATS[form]
    return "delay-config" if "kernels" in value and "delay_ns" in value else None


class _Checking:
    """The state of a check. checked: the number of documents or records so far."""

    def __init__(self, path: Path, lines: Lines, progress: Progress) -> None:
        self._path, self._lines, self._progress = path, lines, progress
        self.checked = 0

    def document(self, kind: str) -> Iterator[Fault]:
        raw = _read(self._path)
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError as e:
            yield Fault(e.lineno, "", f"not JSON: {e.msg}")
            return
        several = kind in LISTED and isinstance(value, list)
        for i, one in enumerate(value if several else [value]):
            self.checked += 1
            for where, reason in document_faults(kind, one):
                place = f"[{i}]{'.' if where else ''}{where}" if several else where
                yield Fault(None, place, reason)

    def records(self, kind: str, values: Iterator[tuple[int | None, Any]]) -> Iterator[Fault]:
        stacks: set[str] = set()
        for line, value in values:
            if isinstance(value, Wrong):
                yield Fault(line, "", value.reason)
                continue
            self.checked += 1
            named = value.get("type") if isinstance(value, dict) else None
            schema = SCHEMAS.get(named) if isinstance(named, str) else None
            if schema is None or schema not in RECORDS[kind]:
                what = "not an object with a type" if named is None else f"{named!r} is no type"
                yield Fault(line, "type", f"{what} of a record in {kind} files")
                continue
            if not self._lines.text:  # the text has fewer members, and all are checked
                yield from (Fault(line, *fault) for fault in check_of(schema)(value, ""))
                yield from (Fault(line, *fault) for fault in _lacking(value))
            stack = value.get("callstack_id")
            if not isinstance(stack, str):
                continue
            if named == "callstack_def":
                stacks.add(stack)
            elif stack not in stacks:
                yield Fault(line, "callstack_id", f"no callstack_def of {stack!r} before it")

    def values(self) -> Iterator[tuple[int | None, Any]]:
        """Yields the records of lines, and a Wrong for what is none."""
        size = os.path.getsize(self._path)
        for count, pair in enumerate(self._lines.records()):
            yield pair
            if self._progress and count % 4096 == 0:
                self._progress(self._lines.at, size)
        if self._lines.cut:
            yield None, Wrong(self._lines.cut)


def _list(path: Path) -> Iterator[tuple[int | None, Any]]:
    """Yields the records of a list."""
    try:
        values = orjson.loads(_read(path))
    except orjson.JSONDecodeError as e:
        yield e.lineno, Wrong(f"not JSON: {e.msg}")
        return
    yield from ((None, value) for value in values)


def _lacking(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the members that a trace record of its type lacks, and values of another size."""
    for member in OF_TYPES.get(record["type"], ()):
        if member not in record:
            yield "", f"no {member}, which is required"
    values, size = record.get("values"), record.get("access_size")
    if isinstance(values, list) and isinstance(size, int):
        words = min(-(-size // 4), 4)
        for lane, value in enumerate(values):
            if isinstance(value, list) and len(value) != words:
                yield f"values[{lane}]", f"expected {words} items, not {len(value)}"


def document_faults(kind: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yields the faults of a document of a kind: place and reason."""
    wrong = False
    for fault in check_of(DOCUMENTS[kind])(value, ""):
        wrong = True
        yield fault
    if kind == "delay-config" and not wrong:
        yield from _misplaced(value)


def _misplaced(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields keys that disagree with the objects that they name. Readers may use either."""
    for name, kernel in config["kernels"].items():
        for key, point in kernel["instrumentation_points"].items():
            if key != str(point["pc"]):
                where = f"kernels.{name}.instrumentation_points.{key}"
                yield where, f"its pc is {point['pc']}"
    for key, call in config.get("launches", {}).items():
        if key != f"{call['stream']}:{call['number']}":
            of = f"it is call {call['number']} of stream {call['stream']}"
            yield f"launches.{key}", of
