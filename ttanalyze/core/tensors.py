"""What lies at a place of a region: the tensor, where the program named parts of its memory.

This is the one place where an offset in a region becomes a name that people read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.core.values import Type, parse
from ttanalyze.errors import Error
from ttanalyze.format.labels import Part
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.output import text


@dataclass(frozen=True)
class TensorByte:
    """A byte of a tensor. offset: in bytes from its beginning; element: in items of its type,
    None where that is not known.
    """

    name: str
    type: str | None
    offset: int
    element: int | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "tensor": self.name,
            "tensor_type": self.type,
            "tensor_offset": self.offset,
            "tensor_element": self.element,
        }

    @property
    def where(self) -> str:
        return f"byte {self.offset}" if self.element is None else f"[{self.element}]"

    def __str__(self) -> str:
        """On a screen: layer.weight [17], or layer.weight byte 68; safe to print."""
        return f"{text.printable(self.name)} {self.where}"


def place_of(part: Part, offset: int) -> TensorByte:
    """A byte of the region as one of the part that it lies in."""
    within, kind = part.within(offset), type_of(part)
    element = None if kind is None else within // kind.itemsize
    return TensorByte(part.name, part.type, within, element)


def type_of(part: Part) -> Type | None:
    """What a part's items are, None where that was not said or is not known here."""
    try:
        return None if part.type is None else parse(part.type)
    except Error:
        return None


def tensor_at(
    process: Process | None,
    region: int,
    offset: int,
    *,
    epoch: int | None = None,
    seq: int | None = None,
) -> TensorByte | None:
    """What a byte of a region was part of in an epoch, or after a call. None where the program
    named nothing there, or of a manifest, which has no process.
    """
    part = None if process is None else process.labels.at(region, offset, epoch=epoch, seq=seq)
    return None if part is None else place_of(part, offset)


@dataclass(frozen=True)
class TensorDifference:
    """A tensor some of whose bytes differ: how many of its bytes, and the first of these. offset:
    of the part of the region that it lies in, or a part of it does; bytes: the size of that.
    """

    name: str
    type: str | None
    offset: int
    bytes: int
    differing: int
    first: int  # in bytes from the tensor's beginning
    first_element: int | None


class Tally:
    """Counts the bytes that differ by the tensor that they lie in."""

    def __init__(self, process: Process, region: int, epoch: int) -> None:
        self._process = process
        self._region = region
        self._parts = process.labels.parts(region, epoch=epoch)
        self._counts = np.zeros(len(self._parts), "i8")
        self._first = np.full(len(self._parts), np.iinfo("i8").max)

    def add(self, offsets: Array) -> None:
        """Takes offsets in the region."""
        if not len(self._parts):
            return
        starts = self._parts["offset"].astype("i8")
        part = np.searchsorted(starts, offsets, "right") - 1
        inside = (part >= 0) & (offsets - starts[part] < self._parts["bytes"][part].astype("i8"))
        self._counts += np.bincount(part[inside], minlength=len(starts))
        np.minimum.at(self._first, part[inside], offsets[inside])

    def parts(self) -> list[Part]:
        """Those in which any byte differs, by offset."""
        labels = self._process.labels
        rows = self._parts[self._counts > 0]
        return [labels.part(self._region, row) for row in rows]

    def result(self) -> list[TensorDifference]:
        """The same, with what was counted."""
        differs = self._counts > 0
        counts, first = self._counts[differs].tolist(), self._first[differs].tolist()
        return [
            TensorDifference(
                part.name,
                part.type,
                part.offset,
                part.bytes,
                count,
                part.within(at),
                place_of(part, at).element,
            )
            for part, count, at in zip(self.parts(), counts, first, strict=True)
        ]
