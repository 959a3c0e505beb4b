"""Memory as it was in an epoch: into a file, or as a summary of what it held.

Contents go from the run to the file piece by piece, each checked against its digest, so that
memory is bounded however large the regions are.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from ttanalyze import text
from ttanalyze.errors import Error
from ttanalyze.model import contents, layout
from ttanalyze.model.layout import Array
from ttanalyze.model.process import Process
from ttanalyze.model.run import Run
from ttanalyze.output import replacing
from ttanalyze.selection import by_region, label_of, region_named
from ttanalyze.values import Summary, Type, parse, summarise_pieces

FORMATS = ("npy", "npz", "bin", "safetensors")
BARS = " ▁▂▃▄▅▆▇█"
Progress = Callable[[int, int], None] | None


@dataclass(frozen=True)
class Part:
    """A region as it is written: records are its tt_block records, one per block."""

    region: int
    name: str
    type: Type
    shape: tuple[int, ...]
    size: int
    records: Array

    def as_dict(self) -> dict[str, Any]:
        return {
            "region": self.region,
            "name": self.name,
            "dtype": self.type.name,
            "shape": list(self.shape),
            "bytes": self.size,
        }


@dataclass(frozen=True)
class Rewound:
    """What was asked for of an epoch. left_out: regions that live in it and were not captured
    until then, where all were asked for.
    """

    process: Process
    epoch: int
    parts: list[Part]
    left_out: list[int]

    @property
    def size(self) -> int:
        """Bytes of contents."""
        return sum(part.size for part in self.parts)


def rewind(
    run: Run,
    epoch: int,
    regions: Iterable[int | str] | None = None,
    *,
    process: int = 0,
    dtypes: Iterable[str] = (),
    shapes: Iterable[str] = (),
) -> Rewound:
    """Looks up where the contents of regions (ids or labels; default: all) in an epoch are.

    dtypes: "TYPE" or "REGION=TYPE", bytes unless given; shapes: "N,M" or "REGION=N,M", a vector
    unless given, and one of the numbers may be -1. Raises Error for what isn't there, FormatError
    where files are damaged.
    """
    of = run.process(process)
    left_out: list[int] = []
    if regions is None:
        found, left_out = contents.snapshot_all(of, epoch)
    else:
        ids = list(dict.fromkeys(region_named(of, str(name), epoch) for name in regions))
        found = dict(zip(ids, contents.snapshot(of, epoch, ids), strict=True))
    wanted = list(found)
    types = by_region(of, dtypes, "--dtype", epoch)
    sizes = by_region(of, shapes, "--shape", epoch)
    if sizes[0] is not None and len(wanted) != 1:
        raise Error(f"--shape {sizes[0]}: of several regions, say which: REGION={sizes[0]}")
    for option, given in (("--dtype", types[1]), ("--shape", sizes[1])):
        stray = [region for region in given if region not in found]
        if stray:
            raise Error(f"{option}: region {stray[0]} is not among those asked for")
    names = _names(of, wanted)
    parts = []
    for (region, blocks), name in zip(found.items(), names, strict=True):
        kind = parse(types[1].get(region, types[0] or "u8"))
        size = int(blocks["length"].sum(dtype="u8"))
        shape = sizes[1].get(region, sizes[0])
        parts.append(Part(region, name, kind, _shape(region, kind, size, shape), size, blocks))
    return Rewound(of, epoch, parts, left_out)


def _names(process: Process, regions: list[int]) -> list[str]:
    """A name for each region: its label, or region-ID; with its id where that is not enough."""
    labels = [label_of(process, region) or f"region-{region}" for region in regions]
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


def _shape(region: int, kind: Type, size: int, wanted: str | None) -> tuple[int, ...]:
    count, rest = divmod(size, kind.itemsize)
    if rest:
        raise Error(
            f"region {region}: {size} bytes don't divide into {kind.name} items of "
            f"{kind.itemsize}; give it another type: --dtype {region}=u8"
        )
    if wanted is None:
        return (count,)
    if not re.fullmatch(r"(-1|\d{1,18})([,x](-1|\d{1,18}))*", wanted):
        raise Error(f"--shape {wanted}: numbers such as 64,128 are expected")
    shape = [int(number) for number in re.split("[,x]", wanted)]
    known = math.prod(number for number in shape if number >= 0)
    if shape.count(-1) == 1 and known and count % known == 0:
        shape[shape.index(-1)] = count // known
    if -1 in shape or math.prod(shape) != count:
        raise Error(f"--shape {wanted}: region {region} has {text.count(count, 'item')}")
    return tuple(shape)


# ---- into a file ----


def save(
    rewound: Rewound,
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    progress: Progress = None,
) -> str:
    """Writes a file as a whole, in a format of FORMATS, by its suffix unless given. Gives the
    format. progress: called with the bytes written and those in all.

    Raises Error where the format can't hold it or the system refuses, FormatError for damage.
    """
    path = Path(path)
    chosen = format or path.suffix.removeprefix(".")
    if chosen not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS[:-1]) + f" or .{FORMATS[-1]}"
        raise Error(f"{path}: {known} is expected" if format is None else f"no format {format!r}")
    if chosen in ("npy", "bin") and len(rewound.parts) != 1:
        count = text.count(len(rewound.parts), "region")
        raise Error(f"{path}: .{chosen} holds one region, these are {count}: say which, or .npz")
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
        records = [np.empty(0, layout.BLOCK), *(part.records for part in parts)]
        _write(rewound.process, np.concatenate(records), file, done)
    return chosen


class _Progress:
    """Counts bytes, from whichever thread."""

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


def _write(process: Process, records: Array, file: BinaryIO, done: _Progress) -> None:
    """The contents of blocks one behind the other, from where the file is."""
    number = file.fileno()
    try:
        base = os.lseek(number, 0, os.SEEK_CUR)
    except OSError:  # a pipe or a terminal
        with contents.DataFiles(process) as files:
            for _, piece in files.pieces(records):
                file.write(piece)
                done.add(len(piece))
        return

    def write(position: int, piece: memoryview) -> None:
        at = 0
        while at < len(piece):
            at += os.pwrite(number, piece[at:], base + position + at)
        done.add(len(piece))

    contents.visit(process, records, write)


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
                for _, piece in files.pieces(part.records):
                    member.write(piece)
                    done.add(len(piece))


def _safetensors_head(rewound: Rewound, parts: Sequence[Part]) -> bytes:
    head: dict[str, Any] = {"__metadata__": {"epoch": str(rewound.epoch)}}
    at = 0
    for part in parts:
        kind = _SAFETENSORS.get(part.type.name)
        if kind is None:
            raise Error(f"region {part.region}: safetensors has no type for {part.type.name}")
        shape, end = list(part.shape), at + part.size
        head[part.name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    out = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    out += b" " * (-len(out) % 8)
    return len(out).to_bytes(8, "little") + out


_SAFETENSORS = {
    "e4m3": "F8_E4M3",
    "e5m2": "F8_E5M2",
    "c64": "C64",
    **{name: name.upper() for name in ("f16", "bf16", "f32", "f64", "bool")},
    **{f"{sign}{bits}": f"{sign}{bits}".upper() for sign in "iu" for bits in (8, 16, 32, 64)},
}


# ---- as a summary ----


def summaries(rewound: Rewound, progress: Progress = None) -> list[Summary]:
    """What each part holds. progress: as of save; contents are gone through twice."""
    done = _Progress(2 * rewound.size, progress)
    with contents.DataFiles(rewound.process) as files:

        def pieces(part: Part) -> Iterator[Array]:
            for _, piece in files.pieces(part.records):
                yield np.frombuffer(piece, np.uint8)
                done.add(len(piece))

        return [summarise_pieces(part.type, partial(pieces, part)) for part in rewound.parts]


def summary_text(rewound: Rewound, found: Sequence[Summary]) -> str:
    """Summaries for a screen: a table, and of one region alone the histogram."""
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


def left_out_text(rewound: Rewound) -> str:
    """Which regions were not captured by then."""
    some = ", ".join(map(str, rewound.left_out[:8])) + (" …" if len(rewound.left_out) > 8 else "")
    count = text.count(len(rewound.left_out), "region")
    return f"{count} left out, which no epoch had captured by then: {some}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _spark(counts: list[int]) -> str:
    """A histogram in one line: what isn't nothing shows."""
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
