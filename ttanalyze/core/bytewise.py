"""Compares two states of a region byte by byte, and shows the bytes side by side.

Contents are read one block at a time, and only of requested blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.core import stacks
from ttanalyze.format import contents, layout
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.output import text

WINDOW = 64  # bytes shown around the first one that differs
ROW = 16  # of them in one line
LISTED_EXTENTS = 8


class Contents:
    """The contents of a region by its tt_block records, one per block.

    check: whether contents must have their digest.
    """

    def __init__(self, process: Process, records: Array, check: bool = True) -> None:
        self.process = process
        self.records = records
        self.check = check
        self.size = int(records["length"].sum(dtype="u8"))

    def block(self, index: int) -> Array:
        """Returns the bytes of a block, none behind the end of the region. Raises FormatError for
        damage.
        """
        record = self.records[index : index + 1]
        out = np.empty(int(record["length"].sum()), np.uint8)
        contents.read_blocks(self.process, record, out, self.check)
        return out

    def bytes(self, start: int, stop: int) -> bytes:
        """Returns bytes [start, stop) as far as they exist."""
        first, last = start // BLOCK_SIZE, layout.blocks_of(min(stop, self.size))
        parts = b"".join(self.block(i).tobytes() for i in range(first, last))
        return parts[start - first * BLOCK_SIZE : stop - first * BLOCK_SIZE]


def unequal_blocks(one: Array, other: Array) -> list[int]:
    """Returns the blocks with different digests, or that only one side has, from the tt_block
    records of all blocks.
    """
    common = min(len(one), len(other))
    differs = np.flatnonzero(one["digest"][:common] != other["digest"][:common])
    return [*differs.tolist(), *range(common, max(len(one), len(other)))]


@dataclass
class ByteDifference:
    """Where two states differ.

    first, last: offsets in the region. count: the number of different bytes. extents: offset and
    length of the first stretches of different bytes. extent_count: the number of stretches. window:
    offset, expected, actual (hexadecimal).
    """

    count: int
    first: int
    last: int
    extents: list[tuple[int, int]]
    extent_count: int
    window: dict[str, Any]


def compare_bytes(
    expected: Contents,
    actual: Contents,
    blocks: Iterable[int],
    tell: Callable[[Array], None] | None = None,
) -> ByteDifference | None:
    """Compares ascending blocks. Returns None if no byte differs.

    tell: called with the offsets of all bytes that differ, block by block.
    """
    extents: list[tuple[int, int]] = []
    count = extent_count = 0
    first, last = -1, -2
    for index in blocks:
        theirs, ours = expected.block(index), actual.block(index)
        common = min(len(theirs), len(ours))
        differs = np.ones(max(len(theirs), len(ours)), bool)
        np.not_equal(theirs[:common], ours[:common], out=differs[:common])
        at = np.flatnonzero(differs)
        if not len(at):
            continue
        start = index * BLOCK_SIZE
        if tell is not None:
            tell(start + at)
        breaks = np.flatnonzero(np.diff(at) != 1) + 1
        begins, ends = at[np.append(0, breaks)], at[np.append(breaks, 0) - 1] + 1
        goes_on = start + int(at[0]) == last + 1
        if goes_on and len(extents) == extent_count:
            extents[-1] = (extents[-1][0], extents[-1][1] + int(ends[0] - begins[0]))
        new = slice(goes_on, goes_on + LISTED_EXTENTS - len(extents))
        pairs = zip(begins[new].tolist(), ends[new].tolist(), strict=True)
        extents += [(start + begin, end - begin) for begin, end in pairs]
        extent_count += len(begins) - goes_on
        first = start + int(at[0]) if first < 0 else first
        last = start + int(at[-1])
        count += len(at)
    if first < 0:
        return None
    begin = max(0, first // ROW * ROW - ROW)
    window = {
        "offset": begin,
        "expected": expected.bytes(begin, begin + WINDOW).hex(),
        "actual": actual.bytes(begin, begin + WINDOW).hex(),
    }
    return ByteDifference(count, first, last, extents, extent_count, window)


def origin(process: Process, row: int) -> dict[str, Any]:
    """Returns what a region is and where it comes from: kind, label, size, base, call, seq, thread,
    stack.

    stack: as Process.stack returns it, None if unknown.
    """
    regions = process.regions
    birth = regions.birth[row]
    seq = int(birth["seq"])
    event = process.events_between(seq - 1, seq)
    return {
        "kind": layout.REGION_KINDS[int(birth["kind"])],
        "label": process.strings.get(int(regions.label[row])),
        "size": int(birth["size"]),
        "base": int(birth["base"]),
        "call": process.call(int(birth["call"])),
        "seq": seq,
        "thread": int(event["thread"][0]) if len(event) else None,
        "stack": (process.stack(int(event["stack"][0])) or None) if len(event) else None,
    }


# ---- on a screen ----


def origin_text(origin: dict[str, Any]) -> str:
    """Returns the result of `origin` in one line."""
    label = f" {text.printable(origin['label'])!r}" if origin["label"] else ""
    out = f"{origin['kind']}{label}, {origin['size']:,} bytes at {origin['base']:#x}, made by "
    out += f"{origin['call'] or 'an unknown call'} (call {origin['seq']}"
    out += f", thread {origin['thread']})" if origin["thread"] is not None else ")"
    return out + (f" at {text.printable(stacks.site(origin['stack']))}" if origin["stack"] else "")


def blocks_text(shown: list[int], count: int) -> str:
    """Returns blocks by number. count: the number of all of them."""
    tail = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return f"{'block' if count == 1 else 'blocks'} {', '.join(map(str, shown))}{tail}"


def ranges_text(blocks: list[int], size: int) -> str:
    """Returns the bytes that blocks of a region cover, as ranges of offsets. size: its bytes."""
    starts = [b for b in blocks if b - 1 not in blocks]
    ends = [b + 1 for b in blocks if b + 1 not in blocks]
    shown = [
        f"{first * BLOCK_SIZE} to {min(end * BLOCK_SIZE, size) - 1}"
        for first, end in zip(starts, ends, strict=True)
    ]
    return f"bytes {', '.join(shown)}"


def bytes_text(count: int, first: int, last: int) -> str:
    """Returns how many bytes differ, and where."""
    if count == 1:
        return f"1 differs, at offset {first}"
    return f"{count:,} differ, from offset {first} to {last}"


def window_lines(window: dict[str, Any], names: tuple[str, str], colour: bool) -> list[str]:
    """Returns rows of 16 bytes, as expected and as found, with the differences marked.

    names: the names of the two sides.
    """
    expected, actual = bytes.fromhex(window["expected"]), bytes.fromhex(window["actual"])
    width = max(map(len, names)) + 4
    out = []
    for start in range(0, max(len(expected), len(actual)), ROW):
        theirs, ours = expected[start : start + ROW], actual[start : start + ROW]
        margin = f"  {window['offset'] + start:#010x}  "
        if theirs == ours:
            out.append(f"{margin}{' ' * width}{theirs.hex(' ')}")
        else:
            rows = (_marked(theirs, ours, "green", colour), _marked(ours, theirs, "red", colour))
            out.append(f"{margin}{names[0].ljust(width)}{rows[0]}")
            out.append(f"{' ' * len(margin)}{names[1].ljust(width)}{rows[1]}")
    return out


def _marked(row: bytes, other: bytes, name: str, colour: bool) -> str:
    parts = []
    for i, byte in enumerate(row):
        same = i < len(other) and other[i] == byte
        parts.append(f"{byte:02x}" if same else text.coloured(f"{byte:02x}", name, colour))
    return " ".join(parts)
