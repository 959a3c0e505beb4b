"""What a process submitted, as steps that can be done again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    return int(process.seen.whole[epoch])


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
