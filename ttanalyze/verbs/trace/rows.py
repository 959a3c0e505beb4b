"""The parts of a trace in any format: lanes, and rows of items in them.

There are many rows, most of which differ only in times and numbers. So a writer makes a template of
what rows share, once, and fills in the columns of many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO, Protocol

import numpy as np

from ttanalyze.format.layout import Array

NUMBERS = ("seq", "bytes", "dst", "src", "region", "node")  # a column each
ADDRESSES = ("dst", "src")
VALUE = NUMBERS.index("bytes")  # of counters
TEMPLATES = 1 << 14  # kept
BATCH = 1 << 12  # rows
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


@dataclass(frozen=True, eq=False)
class Template:
    """What rows share. Each writer has its own.

    data: the bytes of a row. columns: where in them columns are filled in, and which.
    """

    data: bytearray = field(default_factory=bytearray)
    columns: list[tuple[int, int]] = field(default_factory=list)

    @cached_property
    def places(self) -> Array:
        """The columns as an array, for a template with all its columns."""
        return np.array(self.columns, "i8").reshape(-1, 2)


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


def filled(templates: Sequence[Template], columns: Sequence[Array]) -> Iterator[Array]:
    """Yields the bytes of rows, some at a time, which a processor's cache holds.

    templates: one for each row. columns: the bytes that are filled in, as many for each row.
    """
    for at in range(0, len(templates), BATCH):
        some = slice(at, at + BATCH)
        yield _filled(templates[some], [column[some] for column in columns])


def _filled(templates: Sequence[Template], columns: Sequence[Array]) -> Array:
    data = np.frombuffer(bytearray().join([template.data for template in templates]), "u1")
    numbers = np.fromiter(map(id, templates), "u8", len(templates))
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    unique = [templates[row] for row in first.tolist()]
    sizes = np.array([len(template.data) for template in unique])[which]
    counts = np.array([len(template.columns) for template in unique])
    at, column = np.concatenate([template.places for template in unique]).T
    # The places of a template are one after the other; each row has a copy of them.
    skipped = (np.cumsum(counts) - counts)[which] - (np.cumsum(counts[which]) - counts[which])
    rows = np.repeat(np.arange(len(templates)), counts[which])
    copies = np.arange(len(rows)) + skipped[rows]
    at, column = at[copies] + (np.cumsum(sizes) - sizes)[rows], column.astype("u1")[copies]
    for number, values in enumerate(columns):
        some = np.flatnonzero(column == number)
        if len(some):
            item = np.dtype((np.void, values.shape[1]))
            anywhere = np.ndarray(len(data) - item.itemsize + 1, item, data, strides=(1,))
            anywhere[at[some]] = np.ascontiguousarray(values).view(item)[rows[some], 0]
    return data


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
