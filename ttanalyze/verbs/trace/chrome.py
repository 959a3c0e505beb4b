"""Writes the Trace Event Format: JSON for chrome://tracing, Perfetto and speedscope.

The columns are begin and length of either span in microseconds, the number of the arrow, then
NUMBERS.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import orjson

from ttanalyze import __version__
from ttanalyze.verbs.trace.rows import (
    ADDRESSES,
    COUNTER,
    LENGTH,
    MARK,
    NUMBERS,
    VALUE,
    Group,
    Lane,
    Part,
    Rows,
    Template,
)

THREADS = 1 << 30  # what is no thread has its number from here on, where no thread has one
FLOW, FIRST = 4, 5  # columns: the arrow's number, the first of NUMBERS


@dataclass(frozen=True)
class Text(Template):
    """text: with a % conversion for each of these columns."""

    text: str
    columns: Sequence[int]
    choose: Callable[[Sequence[Any]], Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "choose", operator.itemgetter(*self.columns))


class ChromeWriter:
    """Writes one event a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        head = _json(
            {"displayTimeUnit": "ns", "otherData": {"made by": f"ttanalyze {__version__}"}}
        )
        file.write(f'{head[:-1]},"traceEvents":['.encode())
        self._lead = b"\n"

    def group(self, group: Group) -> None:
        for name, args in (
            ("process_name", {"name": group.name}),
            ("process_labels", {"labels": group.labels}),
            ("process_sort_index", {"sort_index": group.rank}),
        ):
            self._write(_json({"ph": "M", "pid": group.pid, "name": name, "args": args}))

    def lane(self, lane: Lane) -> None:
        if lane.counter:
            return
        track = {"ph": "M", "pid": lane.group.pid, "tid": _thread(lane)}
        self._write(_json({**track, "name": "thread_name", "args": {"name": lane.name}}))
        sort = {"sort_index": lane.rank}
        self._write(_json({**track, "name": "thread_sort_index", "args": sort}))

    def template(self, parts: Sequence[Part]) -> Text:
        texts: list[str] = []
        columns: list[int] = []
        for part in parts:
            for text, used in _events(part):
                texts.append(text)
                columns += used
        return Text(",\n".join(texts), columns)

    def rows(self, templates: Sequence[Template], rows: Rows) -> None:
        if not templates:
            return
        columns: list[Sequence[Any]] = []
        for begins, ends in rows.spans:
            if columns and begins is rows.spans[0][0] and ends is rows.spans[0][1]:
                columns *= 2
            else:
                columns += [_microseconds(begins.tolist()), _lengths((ends - begins).tolist())]
        columns += [rows.flows.tolist(), *(column.tolist() for column in rows.numbers)]
        texts = zip(cast("Sequence[Text]", templates), zip(*columns, strict=True), strict=True)
        self._write(",\n".join([t.text % t.choose(row) for t, row in texts]))

    def end(self) -> None:
        self._file.write(b"\n]}\n")

    def _write(self, text: str) -> None:
        self._file.write(self._lead)
        self._file.write(text.encode())
        self._lead = b",\n"


def _events(part: Part) -> Iterator[tuple[str, list[int]]]:
    """Returns the events of a part: their text, and the columns of its conversions."""
    begin, length = 2 * part.span, 2 * part.span + 1
    lane = part.lane
    if part.kind == COUNTER:
        head = _open({"ph": "C", "pid": lane.group.pid, "name": lane.name})
        yield head + ',"ts":%s,"args":{"bytes":%d}}', [begin, FIRST + VALUE]
        return
    track = {"pid": lane.group.pid, "tid": _thread(lane)}
    what = {**track, "name": part.name, "cat": part.category}
    args, numbers = _args(part)
    if part.kind == MARK:
        yield _open({"ph": "i", "s": "t", **what}) + f',"ts":%s,{args}}}', [begin, *numbers]
        return
    times = '"ts":%s,"dur":%s'
    yield _open({"ph": "X", **what}) + f",{times},{args}}}", [begin, length, *numbers]
    if part.flow:
        ends = {"ph": "s"} if part.flow == "out" else {"ph": "f", "bp": "e"}
        arrow = {**ends, **track, "name": part.category, "cat": "arrow"}
        yield _open(arrow) + ',"id":%d,"ts":%s}', [FLOW, begin]


def _args(part: Part) -> tuple[str, list[int]]:
    """Returns the member "args" of a part, and the columns of its conversions."""
    shown = [_escaped(_json(part.args))[1:-1]] if part.args else []
    shown += [f'"{n}":"%#x"' if n in ADDRESSES else f'"{n}":%d' for n in part.numbers]
    return f'"args":{{{",".join(shown)}}}', [FIRST + NUMBERS.index(n) for n in part.numbers]


def _thread(lane: Lane) -> int:
    return THREADS + lane.number if lane.thread is None else lane.thread


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _escaped(text: str) -> str:
    """Returns a text for a template, with % escaped."""
    return text.replace("%", "%%")


def _open(value: Any) -> str:
    """Returns an object in a template to which members can be added."""
    return _escaped(_json(value))[:-1]


def _microseconds(nanoseconds: Iterable[int]) -> list[str]:
    return [f"{text[:-3]}.{text[-3:]}" for text in map("%04d".__mod__, nanoseconds)]


USUAL = _microseconds(range(LENGTH + 1))


def _lengths(nanoseconds: Iterable[int]) -> list[str]:
    return [USUAL[n] if n <= LENGTH else _microseconds([n])[0] for n in nanoseconds]
