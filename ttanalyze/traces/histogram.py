"""Counts instructions between reads of the clock (`CS2R SR_CLOCKLO`, `%clock`), for each warp.

Without named regions, each second read ends what the one before it began. Whether regions nest
cannot be told from reads alone. Named regions are pairs of offsets, which may nest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttanalyze.disassembly.decode import parsed
from ttanalyze.errors import Error
from ttanalyze.traces.native import AnyTrace
from ttanalyze.traces.reader import EVERY, Kernel, Record, cta

COLUMNS = (
    *("kernel", "launch", "cta_x", "cta_y", "cta_z", "warp", "region", "depth"),
    *("begin_pc", "end_pc", "complete", "instruction", "count", "cycles", "ipc"),
)
Pairs = Sequence[tuple[int, int]]
CLOCK = 1 << 32  # records have the low half of the clock
READS = ("CS2R", "S2R", "S2UR")


@dataclass
class _Region:
    number: int
    depth: int
    begin: int | None
    end: int | None = None
    complete: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    clock: int | None = None
    cycles: int | None = None


@dataclass
class _Warp:
    """kind: the type of the records that count, so that an instruction counts once."""

    place: dict[str, Any]
    kind: str
    begun: int = 0
    open: list[_Region] = field(default_factory=list)


def parse_regions(value: str) -> Pairs:
    """Returns the pairs of "0x10:0x80,0x30:0x50": offsets of clock reads. Raises Error."""
    try:
        pairs = [part.split(":") for part in value.split(",")]
        made = [(int(begin, 0), int(end, 0)) for begin, end in pairs]
    except ValueError:
        raise Error(
            f"--regions {value}: expected BEGIN:END,… with offsets of clock reads"
        ) from None
    if len({offset for pair in made for offset in pair}) < 2 * len(made):
        raise Error(f"--regions {value}: an offset appears twice")
    return made


class Histogram:
    """The histograms of a trace. note: what is uncertain about its regions, after the end.
    kernel: that of the last record.
    """

    def __init__(self, trace: AnyTrace, pairs: Pairs) -> None:
        self._trace, self._pairs = trace, pairs
        self._begins, self._ends = dict(pairs), {end: begin for begin, end in pairs}
        self._roles: tuple[set[int], set[int]] = set(), set()
        self._texts: dict[str, tuple[str, bool]] = {}
        self.kernel: Kernel | None = None
        self._every = False

    @property
    def note(self) -> str | None:
        if not self._every:
            return f"{self._trace.lines.path}: it lacks records of each instruction (kind opcode)"
        both = self._roles[0] & self._roles[1]
        if self._pairs or not both or len(self._roles[0] | self._roles[1]) == 1:
            return None
        return (
            f"{self._trace.lines.path}: the clock read at {min(both):#x} begins and ends regions, "
            "which may nest: name them with --regions BEGIN:END,…"
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row per warp, region and instruction. The read that begins a region counts."""
        warps: dict[tuple[Any, ...], _Warp] = {}
        for record in self._trace.whole_records():
            if isinstance(record, Kernel) or record.members["type"] not in EVERY:
                continue
            kernel, launch = record.kernel, record.members.get("grid_launch_id")
            self.kernel, self._every = kernel, True
            x, y, z = cta(record)
            number, kind = record.members["warp"], record.members["type"]
            key = (kernel.line if kernel else 0, launch, x, y, z, number)
            if key not in warps:
                values = (kernel and kernel.name, launch, x, y, z, number)
                warps[key] = _Warp(dict(zip(COLUMNS, values, strict=False)), kind)
            if warps[key].kind == kind:
                yield from self._step(warps[key], record)
        for warp in warps.values():
            for region in warp.open:
                yield from _rows(warp, region)

    def _step(self, warp: _Warp, record: Record) -> Iterator[dict[str, Any]]:
        sass = record.sass()
        if sass is None:
            raise record.place.error("no text of the instruction, here or in kernel_metadata")
        if sass not in self._texts:
            text = parsed(sass.rstrip("; "))
            self._texts[sass] = text.mnemonic, _reads_clock(text.opcode, sass)
        name, reads_clock = self._texts[sass]
        if reads_clock:
            yield from self._read(warp, record.offset(), record.members.get("clock"))
        for region in warp.open:
            region.counts[name] += 1

    def _read(self, warp: _Warp, at: int | None, clock: int | None) -> Iterator[dict[str, Any]]:
        """Begins or ends regions at a read of the clock."""
        ended = 0
        if self._pairs:
            begins = [region.begin for region in warp.open]
            begin = self._ends.get(-1 if at is None else at)
            if begin is not None and begin in begins:
                ended = begins[::-1].index(begin) + 1
            if at not in self._begins and not ended:
                return
        else:
            ended = len(warp.open)
            if at is not None:
                self._roles[bool(ended)].add(at)
        for inner in range(ended, 0, -1):
            region = warp.open.pop()
            region.end, region.complete = (at, True) if inner == 1 else (None, False)
            if inner == 1 and clock is not None and region.clock is not None:
                region.cycles = (clock - region.clock) % CLOCK
            yield from _rows(warp, region)
        if not ended:
            warp.open.append(_Region(warp.begun, len(warp.open), at, clock=clock))
            warp.begun += 1


def _rows(warp: _Warp, region: _Region) -> Iterator[dict[str, Any]]:
    told = {"region": region.number, "depth": region.depth, "begin_pc": region.begin}
    told |= {"end_pc": region.end, "complete": region.complete}
    every = region.counts.total()
    times = {"cycles": region.cycles, "ipc": every / region.cycles if region.cycles else None}
    for name, count in sorted(region.counts.items()):
        yield {**warp.place, **told, "instruction": name, "count": count, **times}


def _reads_clock(opcode: str, text: str) -> bool:
    return (opcode in READS and "SR_CLOCKLO" in text) or "%clock" in text
