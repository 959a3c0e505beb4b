"""The parts of a trace in any format: lanes, and rows of items in them.

There are many rows, most of which differ only in times and numbers. So a writer makes a template of
what rows share, once, and fills in the columns of many rows.
"""

from __future__ import annotations

import operator
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
    """A recorded process. pid: different from the others'. labels: what else to say of it."""

    number: int  # of all groups and lanes
    pid: int
    name: str
    labels: str
    rank: int


@dataclass(frozen=True)
class Lane:
    """thread: its id, None of what is no thread of the program. rank: its place in the group.

    counter: it has values, in bytes, instead of slices and marks.
    """

    group: Group
    number: int
    name: str
    rank: int
    thread: int | None = None
    counter: bool = False


@dataclass(frozen=True)
class Part:
    """One thing of a row: a slice of a lane, a mark, or a counter's value.

    span: which of the row's two spans of time it takes, a mark and a value its beginning. numbers:
    which of NUMBERS it shows, each of rows that share a template its own. flow: an arrow goes
    "out" of this slice, or comes "in".
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
    """Columns of rows: begins and ends of spans in nanoseconds, the numbers of arrows, NUMBERS, of
    which the last may be left out where no template shows them.
    """

    spans: tuple[tuple[Array, Array], tuple[Array, Array]]
    flows: Array
    numbers: Sequence[Array]


@dataclass(frozen=True)
class Template:
    """What rows have in common. text: with a % conversion for each of these columns."""

    text: str
    columns: Sequence[int]
    choose: Callable[[Sequence[Any]], Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "choose", operator.itemgetter(*self.columns))


class Templates:
    """Templates of rows by what they have in common, each made when it is first needed."""

    def __init__(self, key: np.dtype[Any], make: Callable[[Any], Template]) -> None:
        self._whole = np.dtype((np.void, key.itemsize))
        self._make = make
        self._made: dict[bytes, Template] = {}

    def for_keys(self, keys: Array) -> list[Template]:
        """For each of the keys."""
        names = keys.view(self._whole).tolist()
        if len(self._made) > TEMPLATES:
            self._made.clear()
        for i, name in enumerate(names):
            if name not in self._made:
                self._made[name] = self._make(keys[i])
        return list(map(self._made.__getitem__, names))


def groups(values: Array) -> Iterator[tuple[int, Array]]:
    """Each different value, and the rows that have it, in order."""
    order = np.argsort(values, kind="stable")
    borders = np.flatnonzero(np.diff(values[order]) != 0) + 1
    for rows in np.split(order, borders) if len(values) else []:
        yield int(values[rows[0]]), rows


def filled(templates: Sequence[Template], columns: Sequence[Sequence[Any]]) -> list[str]:
    """A text for each row, the first from the first template and the first of each column."""
    rows = zip(*columns, strict=True)
    return [t.text % t.choose(row) for t, row in zip(templates, rows, strict=True)]


class Writer(Protocol):
    """Writes a trace from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None: ...

    def group(self, group: Group) -> None:
        """Before its lanes."""
        ...

    def lane(self, lane: Lane) -> None:
        """Before what is in it."""
        ...

    def template(self, parts: Sequence[Part]) -> Template:
        """Of rows, to be filled soon."""
        ...

    def rows(self, templates: Sequence[Template], rows: Rows) -> None:
        """A template and a place in the columns for each."""
        ...

    def end(self) -> None: ...
