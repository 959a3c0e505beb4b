"""Finds the tensor at an offset of a region, if the program named parts of its memory.

Only this module turns an offset in a region into a name.
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
    """A byte of a tensor. offset: in bytes. element: in items of its type, None if the type is
    unknown.
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
        """Returns text for a screen: "layer.weight [17]" or "layer.weight byte 68"."""
        return f"{text.printable(self.name)} {self.where}"


def place_of(part: Part, offset: int) -> TensorByte:
    """Returns a byte of a region as a byte of a part."""
    within, kind = part.within(offset), type_of(part)
    element = None if kind is None else within // kind.itemsize
    return TensorByte(part.name, part.type, within, element)


def type_of(part: Part) -> Type | None:
    """Returns the type of a part's items, None if it is unknown."""
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
    """Returns the byte of the tensor at an offset of a region, in an epoch or after a call.

    None if the program named nothing there, or without a process (a manifest).
    """
    part = None if process is None else process.labels.at(region, offset, epoch=epoch, seq=seq)
    return None if part is None else place_of(part, offset)


@dataclass(frozen=True)
class TensorDifference:
    """A tensor with different bytes: their number and the first of them.

    offset: of the part in its region. bytes: the size of this part.
    """

    name: str
    type: str | None
    offset: int
    bytes: int
    differing: int
    first: int  # in bytes from the tensor's beginning
    first_element: int | None


class Tally:
    """Counts different bytes by tensor."""

    def __init__(self, process: Process, region: int, epoch: int) -> None:
        self._process = process
        self._region = region
        self._parts = process.labels.parts(region, epoch=epoch)
        self._counts = np.zeros(len(self._parts), "i8")
        self._first = np.full(len(self._parts), np.iinfo("i8").max)

    def add(self, offsets: Array) -> None:
        """Adds offsets in the region."""
        if not len(self._parts):
            return
        starts = self._parts["offset"].astype("i8")
        part = np.searchsorted(starts, offsets, "right") - 1
        inside = (part >= 0) & (offsets - starts[part] < self._parts["bytes"][part].astype("i8"))
        self._counts += np.bincount(part[inside], minlength=len(starts))
        np.minimum.at(self._first, part[inside], offsets[inside])

    def parts(self) -> list[Part]:
        """Returns the parts with different bytes, by offset."""
        labels = self._process.labels
        rows = self._parts[self._counts > 0]
        return [labels.part(self._region, row) for row in rows]

    def result(self) -> list[TensorDifference]:
        """Returns these parts with the counts."""
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
