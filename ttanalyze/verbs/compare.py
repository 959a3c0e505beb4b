"""Compares two instruction traces, which may have different formats, warp by warp.

Warps of two runs take turns differently, so records are compared in the order of each warp.
Contexts, times, and the numbers of records and launches are not compared: launches count from 0 in
each trace. What the text format lacks is compared in no trace. 16 bytes per record stay in memory.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson
import xxhash

from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.traces.native import open_trace
from ttanalyze.traces.reader import IN_TEXT, Kernel, Record, cta
from ttanalyze.util.progress import Progress, tell

__all__ = ["Comparison", "Counts", "Difference", "Warp", "compare"]

MEMBERS = (
    *("sass", "pc", "regs", "regs_indices", "uregs", "uregs_indices", "ipoint", "mem_space"),
    *("is_load", "access_size", "addrs", "values", "desc_addr", "tma_transfer_info"),
)


class Warp(NamedTuple):
    """The records of a kind that a warp of a launch made.

    Attributes:
        kernel: The mangled name, None if unknown.
        launch: The number of the launch, from 0; None if unknown.
        kind: The kind of the records.
        cta: The block, as x, y, z.
        warp: The number of the warp.
    """

    kernel: str | None
    launch: int | None
    kind: str
    cta: tuple[int, int, int]
    warp: int


SHOWN = 10  # launches of which the text has the counts


@dataclass
class Counts:
    """What each trace has of a kernel's launch: a pair of numbers each.

    Attributes:
        kernel: The mangled name, None if unknown.
        launch: The number of the launch, from 0; None if unknown.
        kind: The kind of the records.
        records, blocks, warps: How many, in the first and in the second trace.
    """

    kernel: str | None
    launch: int | None
    kind: str
    records: tuple[int, int]
    blocks: tuple[int, int]
    warps: tuple[int, int]

    @property
    def equal(self) -> bool:
        """Whether both traces have as many."""
        return all(x == y for x, y in (self.records, self.blocks, self.warps))


@dataclass
class Difference:
    """The first record that differs.

    Attributes:
        warp: Whose record it is.
        number: The number of the record among those of the warp, from 0.
        lines: The line in each trace, None where it has no such record.
        member: What differs in it, None if one trace has no such record.
        values: The two values of the member.
    """

    warp: Warp
    number: int
    lines: tuple[int | None, int | None]
    member: str | None
    values: tuple[Any, Any]


@dataclass
class Comparison:
    """The result of `compare`.

    Attributes:
        paths: The two traces.
        same: Whether no record differs.
        counts: The numbers of records, by kernel, launch and kind.
        first: The first record that differs, None if there is none.
        notes: What was not compared.
    """

    paths: tuple[str, str]
    same: bool
    counts: list[Counts]
    first: Difference | None
    notes: list[str]


class _Side:
    """A trace: members seen by kind, and digests and lines of the records of each warp."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self.members: dict[str, set[str]] = {}
        self.named = self.text = False
        self.note: str | None = None
        self.warps: dict[Warp, tuple[array[int], array[int]]] = {}

    def records(self, progress: Progress = None) -> Iterator[tuple[Warp, Record]]:
        trace, launches = open_trace(self.path), dict[tuple[int, int], int]()
        size = trace.lines.size
        for count, record in enumerate(trace.whole_records()):
            if isinstance(record, Kernel):
                continue
            kernel, number = record.kernel, record.members.get("grid_launch_id")
            launch = None
            if number is not None:
                key = (kernel.line if kernel else 0, number)
                launch = launches.setdefault(key, len(launches))
            name, kind = kernel.name if kernel else None, record.members["type"]
            yield Warp(name, launch, kind, cta(record), record.members["warp"]), record
            if count % 4096 == 0:
                tell(progress, trace.lines.at, size)
        self.text, self.note = trace.lines.text, trace.lines.note

    def survey(self) -> None:
        """Finds which members its records have."""
        for warp, record in self.records():
            self.named |= warp.kernel is not None
            key = f"{warp.kind} launch" if warp.launch is not None else warp.kind
            self.members.setdefault(key, set())
            here = self.members.setdefault(warp.kind, set())
            if not here >= record.members.keys() or "sass" not in here:
                here.update(member for member in MEMBERS if _value(record, member) is not None)

    def read(self, other: _Side, progress: Progress) -> None:
        """Reads the digests of what both sides have."""
        for warp, record in self.records(progress):
            if self.text != other.text and warp.kind not in IN_TEXT:
                continue
            digests, lines = self.warps.setdefault(
                self.known(warp, other), (array("Q"), array("Q"))
            )
            told = [_value(record, member) for member in self.common(warp.kind, other)]
            digests.append(xxhash.xxh3_64_intdigest(_as_json(told)))
            lines.append(record.place.number)

    def known(self, warp: Warp, other: _Side) -> Warp:
        """Returns a warp without what only one side tells of it."""
        key = f"{warp.kind} launch"
        launch = warp.launch if key in self.members and key in other.members else None
        return warp._replace(
            kernel=warp.kernel if self.named and other.named else None, launch=launch
        )

    def common(self, kind: str, other: _Side) -> list[str]:
        """Returns the members to compare. The text format leaves out some."""
        mine, theirs = (side.members.get(kind, set()) for side in (self, other))
        wanted = mine & theirs if self.text or other.text else mine | theirs
        return [member for member in MEMBERS if member in wanted]


def _as_json(value: Any) -> bytes:
    """Returns what is compared. Python takes 1, 1.0 and True for equal."""
    return orjson.dumps(value, None, orjson.OPT_SORT_KEYS)


def _value(record: Record, member: str) -> Any:
    if member == "sass":
        sass = record.sass()
        return sass and sass.rstrip("; ")
    return record.offset() if member == "pc" else record.members.get(member)


def compare(
    a: str | os.PathLike[str], b: str | os.PathLike[str], progress: Progress = None
) -> Comparison:
    """Compares two instruction traces.

    Args:
        a: A file or a run.
        b: Another.
        progress: Called with the finished and the total number of bytes.

    Raises:
        Error: Nothing can be compared, or an input is wrong.

    Example:
        >>> import json
        >>> record = {"type": "opcode_only", "ctx": "0x1", "grid_launch_id": 0, "cta": [0, 0, 0]}
        >>> record |= {"warp": 0, "opcode_id": 0, "pc": "0x0", "sass": "EXIT ;"}
        >>> record |= {"trace_index": 0, "timestamp": 1}
        >>> _ = Path("trace.ndjson").write_text(json.dumps(record))
        >>> tt.compare.compare("trace.ndjson", "trace.ndjson").same
        True
    """
    sides = _Side(a), _Side(b)
    for side in sides:
        side.survey()
    for side, other in (sides, sides[::-1]):
        side.read(other, progress)
    paths = os.fspath(a), os.fspath(b)
    kinds = [{warp.kind for warp in side.warps} for side in sides]
    if not kinds[0] & kinds[1]:
        raise Error(f"{paths[0]}, {paths[1]}: no records of the same kind; nothing was compared")
    first = _first(sides)
    notes = [side.note for side in sides if side.note]
    if first is None and notes:
        raise Error(f"{notes[0]} and agree; the rest was not compared")
    if sides[0].text != sides[1].text:
        left_out = {k for side in sides for k in side.members if not k.endswith(" launch")}
        names = ", ".join(sorted(left_out - {*IN_TEXT}))
        notes += [f"text traces have no {names}: not compared"] if names else []
    return Comparison(paths, first is None, _counts(sides), first, notes)


def _counts(sides: tuple[_Side, _Side]) -> list[Counts]:
    found: dict[tuple[Any, ...], list[list[Any]]] = {}
    for which, side in enumerate(sides):
        for warp, (digests, _) in side.warps.items():
            of_both = found.setdefault(warp[:3], [[0, set(), 0], [0, set(), 0]])
            of_both[which][0] += len(digests)
            of_both[which][1].add(warp.cta)
            of_both[which][2] += 1
    return [
        Counts(key[0], key[1], key[2], (x[0], y[0]), (len(x[1]), len(y[1])), (x[2], y[2]))
        for key, (x, y) in found.items()
    ]


def _first(sides: tuple[_Side, _Side]) -> Difference | None:
    """Finds the difference with the smallest line in the first trace, or else in the second."""
    nothing = array("Q"), array("Q")
    found: list[tuple[tuple[float, float], Warp, int]] = []
    for warp in {**sides[0].warps, **sides[1].warps}:
        (x, lines_x), (y, lines_y) = (side.warps.get(warp, nothing) for side in sides)
        if x == y:
            continue
        size = min(len(x), len(y))
        differ = np.flatnonzero(np.frombuffer(x, "u8")[:size] != np.frombuffer(y, "u8")[:size])
        at = int(differ[0]) if len(differ) else size
        places = [lines[at] if at < len(lines) else np.inf for lines in (lines_x, lines_y)]
        found.append(((places[0], places[1]), warp, at))
    if not found:
        return None
    places_, warp, at = min(found, key=lambda item: item[0])
    lines = tuple(None if place == np.inf else int(place) for place in places_)
    member, values = _told_apart(sides, warp.kind, (lines[0], lines[1]))
    return Difference(warp, at, (lines[0], lines[1]), member, values)


def _told_apart(
    sides: tuple[_Side, _Side], kind: str, lines: tuple[int | None, int | None]
) -> tuple[str | None, tuple[Any, Any]]:
    """Reads two records again, and finds the member and the item that differ."""
    if lines[0] is None or lines[1] is None:
        return None, (None, None)
    records = [
        next(record for _, record in side.records() if record.place.number == line)
        for side, line in zip(sides, lines, strict=True)
    ]
    for member in sides[0].common(kind, sides[1]):
        x, y = (_value(record, member) for record in records)
        if _as_json(x) != _as_json(y):
            return _inner(member, x, y)
    raise AssertionError("digests of equal records differ")


def _inner(where: str, x: Any, y: Any) -> tuple[str, tuple[Any, Any]]:
    """Goes into lists and objects of the same shape, to the first item that differs."""
    keys: list[Any] = []
    if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
        keys = [*range(len(x))]
    elif isinstance(x, dict) and isinstance(y, dict) and x.keys() == y.keys():
        keys = [*x]
    for key in keys:
        if _as_json(x[key]) != _as_json(y[key]):
            return _inner(
                f"{where}[{key}]" if type(key) is int else f"{where}.{key}", x[key], y[key]
            )
    return where, (x, y)


def compare_text(found: Comparison) -> str:
    """Returns the result as text: counts of some launches, different ones first, and the result."""
    lines = []
    counts = sorted(found.counts, key=lambda each: each.equal)
    for each in counts[:SHOWN]:
        where = f"{each.kernel or 'all kernels'}, launch {_number(each.launch)}, {each.kind}"
        parts = [
            text.count(x, noun) if x == y else f"{x:,} and {text.count(y, noun)}"
            for noun, (x, y) in (
                ("record", each.records),
                ("block", each.blocks),
                ("warp", each.warps),
            )
        ]
        lines.append(f"{where}: {', '.join(parts)}")
    if more := counts[SHOWN:]:
        equal = sum(each.equal for each in more)
        lines.append(f"… and {len(more):,} more, {equal:,} of them with equal counts (--json: all)")
    if found.first is None:
        return "\n".join([*lines, "the same", *found.notes])
    one = found.first
    x, y, z = one.warp.cta
    who = f"block ({x}, {y}, {z}), warp {one.warp.warp}, record {one.number} of {one.warp.kind}"
    lines.append(f"differ first at {who}:")
    for path, line, value in zip(found.paths, one.lines, one.values, strict=True):
        said = "no such record" if line is None else f"line {line}"
        shown = "" if one.member is None else f": {one.member} = {_shown(one.member, value)}"
        lines.append(f"  {path}: {said}{shown}")
    return "\n".join([*lines, *found.notes])


def _number(launch: int | None) -> str:
    return "unknown" if launch is None else str(launch)


def _shown(member: str, value: Any) -> str:
    if type(value) is int and member.startswith(("addrs", "pc", "regs[", "uregs[", "values")):
        return hex(value)
    return text.printable(value if isinstance(value, str) else orjson.dumps(value).decode())[:200]


def to_object(found: Comparison) -> dict[str, Any]:
    """Returns the result for `--json`."""
    made = asdict(found)
    if found.first is not None:
        made["first"]["warp"] = found.first.warp._asdict()
    return made
