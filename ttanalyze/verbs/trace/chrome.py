"""Writes the Trace Event Format: JSON for chrome://tracing, Perfetto and speedscope.

The columns are begin and length of either span in microseconds, the number of the arrow, then
NUMBERS. Each has the width of the longest number. JSON has no zero bytes, so those before a number
are left out of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, BinaryIO

import numpy as np
import orjson

from ttanalyze import __version__
from ttanalyze.format.layout import Array
from ttanalyze.verbs.trace.rows import (
    ADDRESSES,
    COUNTER,
    MARK,
    NUMBERS,
    VALUE,
    Group,
    Lane,
    Part,
    Rows,
    Template,
    filled,
)

THREADS = 1 << 30  # what is no thread has its number from here on, where no thread has one
FLOW, FIRST = 4, 5  # columns: the arrow's number, the first of NUMBERS
DIGITS = 20  # of a number below 2**64, or a sign and those of a number below 2**63
FOUR = 4  # digits that are looked up at once
TIME = DIGITS + 1  # bytes: a point, too
Piece = bytes | int  # a column


class ChromeWriter:
    """Writes one event a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        made = {"displayTimeUnit": "ns", "otherData": {"made by": f"ttanalyze {__version__}"}}
        file.write(_open(made) + b',"traceEvents":[')
        self._lead = b"\n"

    def group(self, group: Group) -> None:
        for name, args in (
            ("process_name", {"name": group.name}),
            ("process_labels", {"labels": group.labels}),
            ("process_sort_index", {"sort_index": group.rank}),
        ):
            self._write(orjson.dumps({"ph": "M", "pid": group.pid, "name": name, "args": args}))

    def lane(self, lane: Lane) -> None:
        if lane.counter:
            return
        track = {"ph": "M", "pid": lane.group.pid, "tid": _thread(lane)}
        self._write(orjson.dumps({**track, "name": "thread_name", "args": {"name": lane.name}}))
        sort = {"sort_index": lane.rank}
        self._write(orjson.dumps({**track, "name": "thread_sort_index", "args": sort}))

    def template(self, parts: Sequence[Part]) -> Template:
        out = Template()
        for part in parts:
            for event in _events(part):
                out.data.extend(b",\n")
                for piece in event:
                    if isinstance(piece, int):
                        out.columns.append((len(out.data), piece))
                        piece = bytes(TIME if piece < FLOW else DIGITS)
                    out.data.extend(piece)
        return out

    def rows(self, templates: Sequence[Template], rows: Rows) -> None:
        if not templates:
            return
        columns: list[Array] = []
        for begins, ends in rows.spans:
            again = columns and begins is rows.spans[0][0] and ends is rows.spans[0][1]
            columns += columns if again else [_microseconds(begins), _microseconds(ends - begins)]
        columns.append(_decimal(rows.flows))
        for name, column in zip(NUMBERS, rows.numbers, strict=False):
            columns.append(_hexadecimal(column) if name in ADDRESSES else _decimal(column))
        for data in filled(templates, columns):
            self._file.write(data[data != 0].tobytes())

    def end(self) -> None:
        self._file.write(b"\n]}\n")

    def _write(self, event: bytes) -> None:
        self._file.write(self._lead + event)
        self._lead = b",\n"


def _events(part: Part) -> Iterator[list[Piece]]:
    """Returns the pieces of each event of a part."""
    begin, length = 2 * part.span, 2 * part.span + 1
    lane = part.lane
    if part.kind == COUNTER:
        head = _open({"ph": "C", "pid": lane.group.pid, "name": lane.name})
        yield [head, b',"ts":', begin, b',"args":{"bytes":', FIRST + VALUE, b"}}"]
        return
    track = {"pid": lane.group.pid, "tid": _thread(lane)}
    what = {**track, "name": part.name, "cat": part.category}
    args = [b',"args":{', *_args(part), b"}}"]
    if part.kind == MARK:
        yield [_open({"ph": "i", "s": "t", **what}), b',"ts":', begin, *args]
        return
    yield [_open({"ph": "X", **what}), b',"ts":', begin, b',"dur":', length, *args]
    if part.flow:
        ends = {"ph": "s"} if part.flow == "out" else {"ph": "f", "bp": "e"}
        arrow = {**ends, **track, "name": part.category, "cat": "arrow"}
        yield [_open(arrow), b',"id":', FLOW, b',"ts":', begin, b"}"]


def _args(part: Part) -> Iterator[Piece]:
    """Returns the pieces of the members of "args" of a part."""
    if part.args:
        yield orjson.dumps(part.args)[1:-1]
    for i, name in enumerate(part.numbers):
        comma = "," if i or part.args else ""
        lead, tail = (b'"0x', b'"') if name in ADDRESSES else (b"", b"")
        yield f'{comma}"{name}":'.encode() + lead
        yield FIRST + NUMBERS.index(name)
        yield tail


def _thread(lane: Lane) -> int:
    return THREADS + lane.number if lane.thread is None else lane.thread


def _open(value: Any) -> bytes:
    """Returns an object to which members can be added."""
    return orjson.dumps(value)[:-1]


def _microseconds(nanoseconds: Array) -> Array:
    """Returns times in microseconds, as text with zero bytes in it."""
    digits = _decimal(nanoseconds, least=4)
    point = np.full((len(digits), 1), ord("."), "u1")
    return np.concatenate([digits[:, :-3], point, digits[:, -3:]], axis=1)


def _decimal(values: Array, least: int = 1) -> Array:
    return _digits(values, 10, least)


def _hexadecimal(values: Array) -> Array:
    return _digits(values, 16, 1)


def _digits(values: Array, base: int, least: int) -> Array:
    """Returns numbers as text with zero bytes in it. least: the fewest digits."""
    rest = np.abs(values).astype("u8")
    lengths = np.searchsorted(_powers(base), rest, "right")
    out = np.zeros((len(rest), DIGITS), "u1")
    fours = out.view(f"V{FOUR}")
    for i in range(1, -(-max(int(lengths.max(initial=0)), least) // FOUR) + 1):
        fours[:, -i] = _fours(base)[rest % np.uint64(base**FOUR)]
        rest //= np.uint64(base**FOUR)
    out *= np.arange(DIGITS) >= DIGITS - np.maximum(lengths, least)[:, None]
    out[values < 0, 0] = ord("-")
    return out


@cache
def _fours(base: int) -> Array:
    """Returns the texts of all numbers with four digits."""
    digits = np.arange(base**FOUR)[:, None] // base ** np.arange(FOUR)[::-1] % base
    return np.frombuffer(b"0123456789abcdef", "u1")[digits].view(f"V{FOUR}")[:, 0]


@cache
def _powers(base: int) -> Array:
    return np.array([base**i for i in range(DIGITS) if base**i < 1 << 64], "u8")
