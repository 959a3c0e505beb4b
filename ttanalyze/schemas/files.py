"""Checks files against schemas: finds the kind of a file, and its faults with lines and places.

A file is a document (one JSON value) or records (an object per line, or a list of objects) of types
that may be mixed. Some checks go beyond schemas: records may refer only to call stacks that exist,
and keys must agree with the objects that they name.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from ttanalyze.errors import Error, system_errors
from ttanalyze.output import text
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
LONGEST = 1 << 26  # bytes of a line
MOST = 10_000  # faults of a file


@dataclass(frozen=True)
class Fault:
    """A fault in a file. line: from 1, for files of records. where: the member, "" for the
    whole.
    """

    line: int | None
    where: str
    reason: str

    def __str__(self) -> str:
        line = None if self.line is None else f"line {self.line}"
        return ": ".join(text.printable(p) for p in (line, self.where, self.reason) if p)


@dataclass(frozen=True)
class Report:
    """The result of `validate`. checked: the number of documents or records. more: faults were left
    out.
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
    with system_errors(path), os.fdopen(open_regular(path), "rb") as file:
        checking = _Checking(file, os.fstat(file.fileno()).st_size, progress)
        kind = kind or _kind(path, file)
        found = checking.records(kind) if kind in RECORDS else checking.document(kind)
        faults = list(itertools.islice(found, MOST))
        more = next(found, None) is not None
    return Report(os.fspath(path), kind, checking.checked, faults, more)


def _kind(path: Path, file: BinaryIO) -> str:
    """Finds the kind by the first line if that is a record, else by the whole."""
    first: Any = None
    for line in iter(lambda: file.readline(LONGEST), b""):
        if line.strip():
            with contextlib.suppress(orjson.JSONDecodeError):
                first = orjson.loads(line)
            break
    file.seek(0)
    if first is None:
        with contextlib.suppress(orjson.JSONDecodeError):
            first = orjson.loads(file.read())
        file.seek(0)
    found = _kind_of(first[0] if isinstance(first, list) and first else first)
    if found is None:
        raise Error(f"{path}: no file of a kind that is known; --kind KIND: {', '.join(KINDS)}")
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

    def __init__(self, file: BinaryIO, size: int, progress: Progress) -> None:
        self._file, self._size, self._progress = file, size, progress
        self.checked = 0

    def document(self, kind: str) -> Iterator[Fault]:
        raw = self._file.read()
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

    def records(self, kind: str) -> Iterator[Fault]:
        stacks: set[str] = set()
        for line, value in self._values():
            if isinstance(value, Fault):
                yield value
                continue
            self.checked += 1
            named = value.get("type") if isinstance(value, dict) else None
            schema = SCHEMAS.get(named) if isinstance(named, str) else None
            if schema is None or schema not in RECORDS[kind]:
                what = "not an object with a type" if named is None else f"{named!r} is no type"
                yield Fault(line, "type", f"{what} of a record in {kind} files")
                continue
            yield from (Fault(line, *fault) for fault in check_of(schema)(value, ""))
            stack = value.get("callstack_id")
            if not isinstance(stack, str):
                continue
            if named == "callstack_def":
                stacks.add(stack)
            elif stack not in stacks:
                yield Fault(line, "callstack_id", f"no callstack_def of {stack!r} before it")

    def _values(self) -> Iterator[tuple[int | None, Any]]:
        """Yields the values of lines with their numbers, of a list without, and a Fault for invalid
        JSON.
        """
        if self._file.read(1) == b"[":
            self._file.seek(0)
            try:
                values = orjson.loads(self._file.read())
            except orjson.JSONDecodeError as e:
                yield None, Fault(e.lineno, "", f"not JSON: {e.msg}")
                return
            yield from ((None, value) for value in values)
            return
        self._file.seek(0)
        number = at = 0
        while line := self._file.readline(LONGEST):
            number += 1
            at += len(line)
            if len(line) == LONGEST:
                yield number, Fault(number, "", f"longer than {LONGEST} bytes")
                return
            if not line.strip():
                continue
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as e:
                value = Fault(number, "", f"not JSON: {e.msg}")
            yield number, value
            if self._progress and number % 4096 == 0:
                self._progress(at, self._size)


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
