"""The parts of a trace in any format: lanes, and rows of items in them.

There are many rows, most of which differ only in times and numbers. So a writer makes a template of
what rows share, once, and fills in the columns of many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

import numpy as np

from ttanalyze.format.layout import Array

NUMBERS = ("seq", "bytes", "dst", "src", "region", "node")  # a column each
ADDRESSES = ("dst", "src")
VALUE = NUMBERS.index("bytes")  # of counters
TEMPLATES = 1 << 14  # kept
LENGTH = 10_000  # nanoseconds: what a call is drawn as long as at most
LATEST = np.uint64(1 << 62)  # time: a hostile file may have any
SLICE, MARK, COUNTER = "slice", "mark", "counter"


@dataclass(frozen=True)
class Group:
    """A recorded process. pid: unique in the trace. labels: further details."""

    number: int  # of all groups and lanes
    pid: int
    name: str
    labels: str
    rank: int


@dataclass(frozen=True)
class Lane:
    """A lane.

    thread: its id, None if it is no thread of the program. rank: the position in the group.
    counter: it has values in bytes, in place of slices and marks.
    """

    group: Group
    number: int
    name: str
    rank: int
    thread: int | None = None
    counter: bool = False


@dataclass(frozen=True)
class Part:
    """One item of a row: a slice of a lane, a mark, or the value of a counter.

    span: which of the row's two spans it uses; a mark and a value use its begin. numbers: which of
    NUMBERS it shows. flow: an arrow goes "out" of this slice or comes "in".
    """

    lane: Lane
    name: str
    category: str
    args: Mapping[str, Any] = field(default_factory=dict)  # texts, whole numbers, lists of them
    kind: str = SLICE
    span: int = 0
    numbers: tuple[str, ...] = ()
    flow: str = ""


@dataclass(frozen=True)
class Rows:
    """Columns of rows: begins and ends of spans in nanoseconds, numbers of arrows, NUMBERS. The
    last may be left out if no template shows them.
    """

    spans: tuple[tuple[Array, Array], tuple[Array, Array]]
    flows: Array
    numbers: Sequence[Array]


class Template:
    """What rows share. Each writer has its own."""


class Templates:
    """Templates of rows by key, each made at its first use."""

    def __init__(self, key: np.dtype[Any], make: Callable[[Any], Template]) -> None:
        self._whole = np.dtype((np.void, key.itemsize))
        self._make = make
        self._made: dict[bytes, Template] = {}

    def for_keys(self, keys: Array) -> list[Template]:
        """Returns the template for each key."""
        names = keys.view(self._whole).tolist()
        if len(self._made) > TEMPLATES:
            self._made.clear()
        for i, name in enumerate(names):
            if name not in self._made:
                self._made[name] = self._make(keys[i])
        return list(map(self._made.__getitem__, names))


def groups(values: Array) -> Iterator[tuple[int, Array]]:
    """Yields each unique value, and its rows in order."""
    order = np.argsort(values, kind="stable")
    borders = np.flatnonzero(np.diff(values[order]) != 0) + 1
    for rows in np.split(order, borders) if len(values) else []:
        yield int(values[rows[0]]), rows


class Writer(Protocol):
    """Writes a trace from beginning to end."""

    def __init__(self, file: BinaryIO) -> None: ...

    def group(self, group: Group) -> None:
        """Writes a group, before its lanes."""
        ...

    def lane(self, lane: Lane) -> None:
        """Writes a lane, before its items."""
        ...

    def template(self, parts: Sequence[Part]) -> Template:
        """Returns a template of rows."""
        ...

    def rows(self, templates: Sequence[Template], rows: Rows) -> None:
        """Writes rows, with a template for each."""
        ...

    def end(self) -> None: ...
