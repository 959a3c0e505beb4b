"""What a process submitted, as steps that can be done again."""

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
    """A launch. function: tt_function.id. params: as the kernel saw them. attributes: further ones
    that the program gave it, by CUlaunchAttributeID; settings: what was in force, as tt_setting has
    it: kind, number and value. Both are known of launches that were recorded to be run again.
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
    """Where the rows of a copy lie: dst_pitch bytes behind each other, those of the next slice
    dst_height rows behind; of the source likewise.
    """

    rows: int
    slices: int
    dst_pitch: int
    src_pitch: int
    dst_height: int
    src_height: int

    def reach(self, size: int) -> int:
        """Bytes from the first to the last that is written, of rows of `size` bytes."""
        return size + (self.rows - 1 + (self.slices - 1) * self.dst_height) * self.dst_pitch


@dataclass(frozen=True)
class Move:
    """A copy within the device's memory, of `size` bytes or of rows of so many each. Addresses are
    those of the recorded process.
    """

    dst: int
    src: int
    size: int
    rows: Rows | None = None


@dataclass(frozen=True)
class Upload:
    """A copy from the host. What it copied is what the region holds in an epoch; sure: nothing that
    is known of may have written there before that, else why not.
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
        """Bytes from the first to the last that it wrote."""
        return self.size if self.rows is None else self.rows.reach(self.size)


@dataclass(frozen=True)
class Fill:
    """Memory that was set, in `rows` of `size` bytes each, which begin `pitch` bytes behind each
    other.
    """

    dst: int
    size: int
    value: int
    item: int
    rows: int = 1
    pitch: int = 0


@dataclass(frozen=True)
class Step:
    """seq: of the call. what: None where it is there for the order. after: numbers of steps."""

    seq: int
    what: Launch | Move | Upload | Fill | None
    after: tuple[int, ...]


@dataclass(frozen=True)
class Span:
    """What was recorded between two epochs, or from one up to a call, where last is None. regions:
    rows of process.regions that lived in it. left_out: what else was submitted, and does nothing to
    memory.
    """

    process: Process
    first: int
    last: int | None
    steps: list[Step]
    regions: Array
    left_out: list[str]

    def born_within(self, row: int) -> bool:
        """Whether a region was allocated in it."""
        return int(self.process.regions.birth["seq"][row]) > cut(self.process, self.first)


def cut(process: Process, epoch: int) -> int:
    """The last call before an epoch."""
    return int(process.coverage.whole[epoch])


NAMES = {
    Launch: ("launch", "launches"),
    Move: ("copy", "copies"),
    Upload: ("copy from the host", "copies from the host"),
    Fill: ("set", "sets"),
}


def summary(steps: Iterable[Step]) -> str:
    """How many steps of each kind there are, in words."""
    kinds = [type(step.what) for step in steps]
    there = ((kinds.count(kind), names) for kind, names in NAMES.items())
    return ", ".join(text.count(n, *names) for n, names in there if n) or "nothing"


class Used:
    """Addresses that were somebody's: ranges in order, none of which overlap."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, size: int) -> bool:
        """Adds a range, and says whether any of it was there."""
        end = begin + size
        first = bisect.bisect_right(self._ends, begin)
        last = bisect.bisect_left(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]
        return first < last


def rows_of(record: Any) -> Rows | None:
    """Of a copy (an event, or a node) of more than one row, where that is known."""
    width, rows, slices = three(record["grid"])
    if not width or rows * slices < 2:
        return None
    (to, source, _), (high, far, _) = three(record["block"]), three(record["cluster"])
    return Rows(rows, slices, to, source, high, far)


def three(size: Any) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in size)
    return x, y, z
