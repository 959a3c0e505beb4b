"""The steps of recorded work that can be repeated: launches, copies, sets."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.output import text


@dataclass(frozen=True)
class Launch:
    """A launch.

    function: tt_function.id. params: the bytes of the parameters. attributes: further ones by
    CUlaunchAttributeID. settings: as tt_setting: kind, number and value. The last two are known for
    replayable launches.
    """

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    cooperative: bool
    params: bytes
    attributes: tuple[tuple[int, bytes], ...] = ()
    settings: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class Rows:
    """The layout of the rows of a copy: dst_pitch bytes from row to row, dst_height rows from slice
    to slice; the source likewise.
    """

    rows: int
    slices: int
    dst_pitch: int
    src_pitch: int
    dst_height: int
    src_height: int

    def reach(self, size: int) -> int:
        """Returns the number of bytes from the first to the last written one, for rows of `size`
        bytes.
        """
        return size + (self.rows - 1 + (self.slices - 1) * self.dst_height) * self.dst_pitch


@dataclass(frozen=True)
class Move:
    """A copy within device memory, of `size` bytes or of rows of `size` bytes. Addresses are
    recorded ones.
    """

    dst: int
    src: int
    size: int
    rows: Rows | None = None


@dataclass(frozen=True)
class Upload:
    """A copy from the host. Its bytes are those of the region in an epoch.

    doubt: why something may have written there before that epoch, else "".
    """

    dst: int
    size: int
    region: int
    offset: int
    epoch: int
    doubt: str = ""
    rows: Rows | None = None

    @property
    def reach(self) -> int:
        """The number of bytes from the first to the last written one."""
        return self.size if self.rows is None else self.rows.reach(self.size)


@dataclass(frozen=True)
class Fill:
    """A set of `rows` of `size` bytes each, `pitch` bytes apart."""

    dst: int
    size: int
    value: int
    item: int
    rows: int = 1
    pitch: int = 0


@dataclass(frozen=True)
class Step:
    """A step. seq: of the call. what: None for a step that only orders others. after: the numbers
    of earlier steps that it depends on.
    """

    seq: int
    what: Launch | Move | Upload | Fill | None
    after: tuple[int, ...]


@dataclass(frozen=True)
class Span:
    """The recorded work between two epochs, or up to a call if last is None.

    regions: rows of process.regions that lived in it. left_out: other submitted work, without
    effect on memory.
    """

    process: Process
    first: int
    last: int | None
    steps: list[Step]
    regions: Array
    left_out: list[str]

    def born_within(self, row: int) -> bool:
        """Returns whether a region was allocated in the span."""
        return int(self.process.regions.birth["seq"][row]) > cut(self.process, self.first)


def cut(process: Process, epoch: int) -> int:
    """Returns the last call before an epoch."""
    return int(process.coverage.whole[epoch])


NAMES = {
    Launch: ("launch", "launches"),
    Move: ("copy", "copies"),
    Upload: ("copy from the host", "copies from the host"),
    Fill: ("set", "sets"),
}


def summary(steps: Iterable[Step]) -> str:
    """Returns the number of steps of each kind in words."""
    kinds = [type(step.what) for step in steps]
    there = ((kinds.count(kind), names) for kind, names in NAMES.items())
    return ", ".join(text.count(n, *names) for n, names in there if n) or "nothing"


class Used:
    """Used addresses: ordered ranges without overlap."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, size: int) -> bool:
        """Adds a range and returns whether any part of it was used before."""
        end = begin + size
        first = bisect.bisect_right(self._ends, begin)
        last = bisect.bisect_left(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]
        return first < last


def rows_of(record: Any) -> Rows | None:
    """Returns the rows of a copy (an event or a node), None if it has one row or they are
    unknown.
    """
    width, rows, slices = three(record["grid"])
    if not width or rows * slices < 2:
        return None
    (to, source, _), (high, far, _) = three(record["block"]), three(record["cluster"])
    return Rows(rows, slices, to, source, high, far)


def three(size: Any) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in size)
    return x, y, z
