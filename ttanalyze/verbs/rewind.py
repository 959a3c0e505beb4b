"""Memory as it was in an epoch: writes it to a file or summarises it."""

from __future__ import annotations

import json
import math
import os
import re
import threading
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from ttanalyze.core.tensors import type_of
from ttanalyze.core.values import Summary, Type, parse
from ttanalyze.core.values.summary import summarise_pieces
from ttanalyze.core.values.types import SAFETENSORS
from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.labels import Part as NamedPart
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.format.selection import by_region, label_of, named
from ttanalyze.format.unread import UNREAD
from ttanalyze.output import text
from ttanalyze.output.files import replacing
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress

__all__ = ["Rewound", "rewind", "save", "summaries"]

FORMATS = ("npy", "npz", "bin", "safetensors")
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Part:
    """A region or a tensor as it is saved.

    Attributes:
        region: The id of the region; of a tensor, the first region that it lies in.
        name: The name in the saved file.
        type: The type of the items.
        shape: The shape in items.
        size: The size in bytes.
        records: The tt_block records of the blocks to read.
        offset: The offset of a tensor in its region, in bytes.
        ranges: The byte ranges [first, end) of a tensor, counted from the first of these blocks.
            Empty for a region, which has all their bytes.
    """

    region: int
    name: str
    type: Type
    shape: tuple[int, ...]
    size: int
    records: Array
    offset: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def pieces(self, files: contents.DataFiles) -> Iterator[memoryview]:
        """Reads the contents piece by piece.

        Args:
            files: The open data files of the process.

        Yields:
            Contents in order. Each piece is valid until the next one.
        """
        for at, piece in files.pieces(self.records):
            for begin, end in self.ranges or [(at, at + len(piece))]:
                some = piece[max(0, begin - at) : max(0, end - at)]
                if len(some):
                    yield some

    def as_dict(self) -> dict[str, Any]:
        return {
            "region": self.region,
            **({"offset": self.offset} if self.ranges else {}),
            "name": self.name,
            "dtype": self.type.name,
            "shape": list(self.shape),
            "bytes": self.size,
        }


@dataclass(frozen=True)
class Rewound:
    """The selected regions and tensors of an epoch. Their contents are read later.

    Attributes:
        process: The process.
        epoch: The number of the epoch.
        parts: The regions and tensors.
        left_out: The ids of regions that no epoch had captured by then, if all regions were
            selected.
    """

    process: Process
    epoch: int
    parts: list[Part]
    left_out: list[int]

    @property
    def unread(self) -> list[int]:
        """The ids of regions that the epoch did not read. Their contents are those of the last
        epoch that did.
        """
        regions = dict.fromkeys(part.region for part in self.parts)
        return [r for r in regions if self.process.unread.left_out(r, self.epoch)]

    @property
    def size(self) -> int:
        """The size of all parts in bytes."""
        return sum(part.size for part in self.parts)


def rewind(
    run: Run,
    epoch: int,
    regions: Iterable[int | str] | None = None,
    *,
    process: int = 0,
    rank: int | None = None,
    dtypes: Iterable[str] = (),
    shapes: Iterable[str] = (),
) -> Rewound:
    """Selects the contents of regions or tensors as they were in an epoch.

    Args:
        run: The run.
        epoch: The number of the epoch.
        regions: Ids or labels of regions, or names of tensors. Default: all regions.
        process: The number of the process.
        rank: Its rank, instead of the number.
        dtypes: Types of items: "TYPE" for all, "REGION=TYPE" for one. Default: the type of a tensor
            that the program gave, else u8.
        shapes: Shapes in items: "N,M" for all, "REGION=N,M" for one. One number may be -1. Default:
            one dimension.

    Returns:
        The selection. Use `save` or `summaries` to read it.

    Raises:
        Error: An epoch, region or tensor does not exist, or the bytes do not fit a type or shape.
        FormatError: A file does not follow the format.

    Example:
        >>> rewound = tt.rewind(tt.open("run1"), epoch=1, dtypes=["f32"], shapes=["32,32"])
        >>> [(part.name, part.shape) for part in rewound.parts]
        [('weights', (32, 32))]
        >>> tt.rewind.save(rewound, "weights.npy")
        'npy'
    """
    of = run.process(process, rank)
    found, left_out = _selected(of, epoch, regions)
    for one in found.values():
        contents.require_stored(of, epoch, one.region, one.records)
    tensors = [key for key in found if isinstance(key, str)]
    types = by_region(of, dtypes, "--dtype", epoch, tensors)
    sizes = by_region(of, shapes, "--shape", epoch, tensors)
    if sizes[0] is not None and len(found) != 1:
        raise Error(f"--shape {sizes[0]}: several regions are selected: use REGION={sizes[0]}")
    for option, given in (("--dtype", types[1]), ("--shape", sizes[1])):
        stray = [region for region in given if region not in found]
        if stray:
            raise Error(f"{option}: region {stray[0]} is not selected")
    names = _names(of, list(found))
    parts = []
    for (key, one), name in zip(found.items(), names, strict=True):
        wanted = types[1].get(key, types[0])
        kind = one.type or parse("u8") if wanted is None else parse(wanted)
        shape = _shape(key, kind, one.size, sizes[1].get(key, sizes[0]))
        parts.append(
            Part(one.region, name, kind, shape, one.size, one.records, one.offset, one.ranges)
        )
    return Rewound(of, epoch, parts, left_out)


def _selected(
    process: Process, epoch: int, regions: Iterable[int | str] | None
) -> tuple[dict[int | str, _Found], list[int]]:
    """Returns the contents of each region and tensor, and the regions without contents."""
    if regions is None:
        whole, left_out = contents.snapshot_all(process, epoch)
        return {region: _Found(region, records) for region, records in whole.items()}, left_out
    contents.check_epoch(process, epoch)
    found: dict[int | str, _Found] = {}
    for name in dict.fromkeys(map(str, regions)):
        what = named(process, name, epoch)
        if isinstance(what, int):
            found[what] = _Found(what, contents.block_records(process, epoch, what))
        else:
            found[name] = _of_tensor(process, epoch, what)
    return found, []


class _Found:
    """The contents of a region or tensor."""

    def __init__(self, region: int, records: Array) -> None:
        self.region = region
        self.records = records
        self.size = int(records["length"].sum(dtype="u8"))
        self.offset = 0
        self.type: Type | None = None
        self.ranges: list[tuple[int, int]] = []


def _of_tensor(process: Process, epoch: int, parts: list[NamedPart]) -> _Found:
    """Returns the contents of a tensor from all its regions."""
    records, ranges, before = [], [], 0
    for part in parts:
        first, last = part.offset // BLOCK_SIZE, layout.blocks_of(part.offset + part.bytes)
        some = contents.block_records(process, epoch, part.region, first=first, last=last)
        begin = before + part.offset - first * BLOCK_SIZE
        ranges.append((begin, begin + part.bytes))
        before += int(some["length"].sum(dtype="u8"))
        records.append(some)
    out = _Found(parts[0].region, np.concatenate(records))
    out.size = sum(part.bytes for part in parts)
    out.offset, out.ranges, out.type = parts[0].offset, ranges, type_of(parts[0])
    return out


def _names(process: Process, regions: list[int | str]) -> list[str]:
    """Returns a unique name for each region: its label or region-ID, with its id if needed. A
    tensor has its own name.
    """
    labels = [(r if isinstance(r, str) else label_of(process, r)) or f"region-{r}" for r in regions]
    plain = [re.sub(r"[\x00-\x1f/\\\x7f]", "_", label) for label in labels]
    counts = {name: plain.count(name) for name in set(plain)} if len(plain) < 5000 else {}
    taken = {"__metadata__"}  # which safetensors keeps for itself
    out = []
    for name, region in zip(plain, regions, strict=True):
        if counts.get(name, 2) > 1 and name != f"region-{region}":
            name = f"{name}-{region}"
        while name in taken:
            name += f"-{region}"
        taken.add(name)
        out.append(name)
    return out


def _shape(region: int | str, kind: Type, size: int, wanted: str | None) -> tuple[int, ...]:
    count, rest = divmod(size, kind.itemsize)
    if rest:
        raise Error(
            f"region {region}: {size} bytes don't divide into {kind.name} items of "
            f"{kind.itemsize}; give it another type: --dtype {region}=u8"
        )
    if wanted is None:
        return (count,)
    if not re.fullmatch(r"(-1|\d{1,18})([,x](-1|\d{1,18}))*", wanted):
        raise Error(f"--shape {wanted}: expected numbers such as 64,128")
    shape = [int(number) for number in re.split("[,x]", wanted)]
    known = math.prod(number for number in shape if number >= 0)
    if shape.count(-1) == 1 and known and count % known == 0:
        shape[shape.index(-1)] = count // known
    if -1 in shape or math.prod(shape) != count:
        raise Error(f"--shape {wanted}: region {region} has {text.count(count, 'item')}")
    return tuple(shape)


# ---- into a file ----


@checked
def save(
    rewound: Rewound,
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    progress: Progress = None,
) -> str:
    """Writes the contents to a file. The file is complete or it is not written.

    Args:
        rewound: The selection.
        path: The file.
        format: "npy", "npz", "bin" or "safetensors". Default: the suffix of `path`. npy and bin
            hold one part.
        progress: Called with the written and the total number of bytes.

    Returns:
        The format.

    Raises:
        Error: The format cannot hold the parts, or the file cannot be written.
        FormatError: The stored contents do not have their digest.

    Example:
        >>> found = tt.rewind.rewind(tt.open("run1"), 1, ["weights"], dtypes=["f32"])
        >>> _ = tt.rewind.save(found, "weights.npy")
        >>> Path("weights.npy").exists()
        True
    """
    path = Path(path)
    chosen = format or path.suffix.removeprefix(".")
    if chosen not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS[:-1]) + f" or .{FORMATS[-1]}"
        raise Error(f"{path}: expected {known}" if format is None else f"no format {format!r}")
    if chosen in ("npy", "bin") and len(rewound.parts) != 1:
        count = text.count(len(rewound.parts), "region")
        raise Error(f"{path}: .{chosen} holds one region, not {count}; choose one, or use .npz")
    done = _Progress(rewound.size, progress)
    head = b""
    parts = rewound.parts
    if chosen == "safetensors":
        # Larger items first, so that all are aligned.
        parts = sorted(parts, key=lambda part: (-part.type.itemsize, part.region))
        head = _safetensors_head(rewound, parts)
    with replacing(path) as file:
        if chosen == "npz":
            _save_npz(rewound, file, done)
            return chosen
        if chosen == "npy":
            _npy_head(file, parts[0])
        file.write(head)
        file.flush()
        _write(rewound.process, parts, file, done)
    return chosen


class _Progress:
    """Counts bytes from several threads."""

    def __init__(self, total: int, show: Progress) -> None:
        self._total = total
        self._show = show
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        if self._show is not None:
            with self._lock:
                self._done += count
                self._show(self._done, self._total)


def _write(process: Process, parts: Sequence[Part], file: BinaryIO, done: _Progress) -> None:
    """Writes the contents of parts one after the other at the position of the file."""
    number = file.fileno()
    try:
        base = os.lseek(number, 0, os.SEEK_CUR)
    except OSError:  # a pipe or a terminal
        base = -1
    if base < 0 or any(part.ranges for part in parts):
        with contents.DataFiles(process) as files:
            for part in parts:
                for piece in part.pieces(files):
                    file.write(piece)
                    done.add(len(piece))
        return

    def write(position: int, piece: memoryview) -> None:
        at = 0
        while at < len(piece):
            at += os.pwrite(number, piece[at:], base + position + at)
        done.add(len(piece))

    records = [np.empty(0, layout.BLOCK), *(part.records for part in parts)]
    contents.visit(process, np.concatenate(records), write)


def _npy_head(file: IO[bytes], part: Part) -> None:
    described = {"descr": part.type.numpy, "fortran_order": False, "shape": part.shape}
    try:
        np.lib.format.write_array_header_1_0(file, described)
    except ValueError as e:
        raise Error(f"region {part.region}: numpy can't describe this shape: {e}") from None


def _save_npz(rewound: Rewound, file: BinaryIO, done: _Progress) -> None:
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        contents.DataFiles(rewound.process) as files,
    ):
        for part in rewound.parts:
            entry = zipfile.ZipInfo(f"{part.name}.npy")  # of 1980, so that equal ones are equal
            with archive.open(entry, "w", force_zip64=True) as member:
                _npy_head(member, part)
                for piece in part.pieces(files):
                    member.write(piece)
                    done.add(len(piece))


def _safetensors_head(rewound: Rewound, parts: Sequence[Part]) -> bytes:
    head: dict[str, Any] = {"__metadata__": {"epoch": str(rewound.epoch)}}
    at = 0
    for part in parts:
        kind = SAFETENSORS.get(part.type.name)
        if kind is None:
            raise Error(f"region {part.region}: safetensors has no type for {part.type.name}")
        shape, end = list(part.shape), at + part.size
        head[part.name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    out = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    out += b" " * (-len(out) % 8)
    return len(out).to_bytes(8, "little") + out


# ---- as a summary ----


@checked
def summaries(rewound: Rewound, progress: Progress = None) -> list[Summary]:
    """Summarises each part. Reads the contents twice.

    Args:
        rewound: The selection.
        progress: Called with the read and the total number of bytes.

    Returns:
        A summary for each part.

    Raises:
        FormatError: The stored contents do not have their digest.

    Example:
        >>> found = tt.rewind.rewind(tt.open("run1"), 1, ["weights"], dtypes=["f32"])
        >>> [summary.max for summary in tt.rewind.summaries(found)]
        [1.5]
    """
    done = _Progress(2 * rewound.size, progress)
    with contents.DataFiles(rewound.process) as files:

        def pieces(part: Part) -> Iterator[Array]:
            rest = np.empty(0, np.uint8)  # of an item that goes on in the next piece
            for piece in part.pieces(files):
                raw = np.concatenate([rest, np.frombuffer(piece, np.uint8)])
                whole = len(raw) - len(raw) % part.type.itemsize
                yield raw[:whole]
                rest = raw[whole:]
                done.add(len(piece))
            if len(rest):
                yield rest

        return [summarise_pieces(part.type, partial(pieces, part)) for part in rewound.parts]


def summary_text(rewound: Rewound, found: Sequence[Summary]) -> str:
    """Returns summaries as a table for a screen, and the histogram if there is one part.

    Args:
        rewound: The selection.
        found: The summaries of its parts.
    """
    head = ["region", "name", "type", "items", "min", "max", "mean", "NaN", "Inf", "zero", ""]
    rows = [head]
    for part, summary in zip(rewound.parts, found, strict=True):
        numbers = [_number(v) for v in (summary.min, summary.max, summary.mean)]
        counts = [f"{n:,}" for n in (summary.nan, summary.inf, summary.zero)]
        name = text.printable(part.name)
        name = name if len(name) <= 40 else name[:39] + "…"
        one = [str(part.region), name, part.type.name, f"{summary.elements:,}", *numbers, *counts]
        rows.append([*one, _spark(summary.counts)])
    out = [text.table(rows, {0, *range(3, 10)})]
    if len(found) == 1 and found[0].counts:
        out += ["", _histogram(found[0])]
    return "\n".join(out)


def remarks(rewound: Rewound) -> list[str]:
    """Returns one line per group of regions that were left out or not read in the epoch.

    Args:
        rewound: The selection.
    """
    said = (
        (rewound.left_out, "left out, which no epoch had captured by then"),
        (rewound.unread, f"as read last: {UNREAD}"),
    )
    return [
        f"{text.count(len(which), 'region')} {what}: {_some(which)}"
        for which, what in said
        if which
    ]


def _some(regions: list[int]) -> str:
    return ", ".join(map(str, regions[:8])) + (" …" if len(regions) > 8 else "")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _spark(counts: list[int]) -> str:
    """Returns a histogram in one line. Every count above 0 is visible."""
    most = max(counts, default=0)
    return "".join(BARS[math.ceil(count / most * 8)] if most else " " for count in counts)


def _histogram(summary: Summary, width: int = 40) -> str:
    most = max(summary.counts)
    rows = []
    for i, count in enumerate(summary.counts):
        bar = "█" * round(count / most * width) or ("▏" if count else "")
        low, high = (_number(edge) for edge in summary.edges[i : i + 2])
        rows.append([low, f"to {high}", f"{count:,}", bar])
    return text.table(rows, {0, 1, 2})
