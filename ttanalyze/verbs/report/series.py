"""Statistics of tensors over time, for a report.

The number of epochs and of bytes is bounded: of many epochs some are read, evenly spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ttanalyze.core import values
from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout
from ttanalyze.format.labels import Part
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.format.selection import named
from ttanalyze.output import text

EPOCHS = 200  # of a tensor
BYTES = 1 << 28  # read of a tensor, but of two epochs at least
FIGURES = ("min", "max", "mean", "nan", "inf", "zero", "edges", "counts")


@dataclass(frozen=True)
class Wanted:
    """A tensor or region, and the type of its items: None for the type that is recorded."""

    name: str
    type: str | None

    @classmethod
    def parse(cls, given: str) -> Wanted:
        """Parses NAME or NAME=TYPE. Raises Error if there is no such type."""
        name, equals, kind = given.rpartition("=")
        if not equals:
            return cls(given, None)
        values.parse(kind)
        return cls(name, kind)


@dataclass(frozen=True)
class Series:
    """Statistics of a tensor: lists with an item per epoch.

    Attributes:
        name: The name of the tensor.
        type: The type of its items.
        elements: The number of items.
        epochs: The epochs, ascending.
        figures: min, max, mean, nan, inf, zero, and edges and counts of the histogram.
        note: What was left out, "" if nothing.
    """

    name: str
    type: str
    elements: int
    epochs: list[int]
    figures: dict[str, list[Any]]
    note: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def series(run: Run, wanted: Sequence[str]) -> dict[int, list[Series]]:
    """Returns the statistics of tensors by process.

    Args:
        run: The run.
        wanted: NAME or NAME=TYPE each: the id or label of a region, or the name of a tensor.

    Raises:
        Error: A name or type is unknown, or the type is not recorded.
    """
    found: dict[int, list[Series]] = {}
    for one in map(Wanted.parse, dict.fromkeys(wanted)):
        failure, there = None, False
        for process in run.processes:
            try:
                place = named(process, one.name)
            except FormatError:
                raise
            except Error as e:
                failure = e
                continue
            there = True
            found.setdefault(process.index, []).append(_of(run, process, one, place))
        if not there:
            raise Error(f"--values {one.name}: {failure or 'no process was recorded'}")
    return found


def _of(run: Run, process: Process, wanted: Wanted, place: int | list[Part]) -> Series:
    kind = wanted.type or (None if isinstance(place, int) else place[0].type)
    if kind is None:
        raise Error(f"--values {wanted.name}: its type is not recorded; use {wanted.name}=f32")
    type_ = values.parse(kind)
    size = _size(process, place)
    there = _epochs(process, place)
    most = max(2, min(EPOCHS, BYTES // max(1, size)))
    chosen = there[np.unique(np.linspace(0, len(there) - 1, min(most, len(there))).astype("i8"))]
    epochs: list[int] = []
    figures: dict[str, list[Any]] = {name: [] for name in FIGURES}
    elements, lost = 0, 0
    for epoch in chosen.tolist():
        raw = _read(run, process, wanted, place, epoch)
        if raw is None:
            lost += 1
            continue
        summary = values.summarise(type_, raw)
        elements = max(elements, summary.elements)
        epochs.append(epoch)
        for name in FIGURES:
            figures[name].append(getattr(summary, name))
    notes = []
    if len(chosen) < len(there):
        notes.append(f"{len(chosen):,} of {text.count(len(there), 'epoch')} were read")
    if lost:
        notes.append(f"{text.count(lost, 'epoch')} without these contents")
    name = text.printable(wanted.name)
    return Series(name, type_.name, elements, epochs, figures, "; ".join(notes))


def _size(process: Process, place: int | list[Part]) -> int:
    if isinstance(place, list):
        return sum(part.bytes for part in place)
    return int(process.regions.size[process.regions.rows(np.array([place]))[0]])


def _epochs(process: Process, place: int | list[Part]) -> Array:
    """Returns the epochs with contents in which the place can exist."""
    epochs = process.epochs
    usable = epochs["flags"] & (layout.REFUSED | layout.DROPPED) == 0
    usable &= ~(process.removed | process.digests_alone)
    numbers = epochs["number"]
    if isinstance(place, int):
        row = process.regions.rows(np.array([place]))[0]
        context = int(process.regions.birth["context"][row])
        usable &= (numbers >= process.regions.born[row]) & (numbers < process.regions.died[row])
        usable &= epochs["context"] == context
    return np.asarray(numbers[usable])


def _read(
    run: Run, process: Process, wanted: Wanted, place: int | list[Part], epoch: int
) -> Array | None:
    """Returns the bytes in an epoch. None if they were not read, or are not there."""
    parts: list[tuple[int, int, int | None]]
    if isinstance(place, int):
        parts = [(place, 0, None)]
    else:
        known = sorted(process.labels.named(wanted.name, epoch), key=lambda part: part.start)
        parts = [(part.region, part.offset, part.offset + part.bytes) for part in known]
    if not parts or any(process.unread.left_out(region, epoch) for region, _, _ in parts):
        return None
    try:
        pieces = [run.read(epoch, r, process.index, start=a, stop=b) for r, a, b in parts]
    except FormatError:
        raise
    except Error:
        return None
    return np.concatenate(pieces)
