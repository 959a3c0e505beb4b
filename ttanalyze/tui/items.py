"""Formats bytes for the screen: as hexadecimal digits or as numbers of a type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.core.values import TYPES, Type, parse
from ttanalyze.errors import Error
from ttanalyze.format.layout import Array

HEX = "hex"
USUAL = ("f32", "f16", "bf16", "f64", "i32", "u32")
NAMES = (HEX, *USUAL, *(name for name in TYPES if name not in USUAL))
# Characters of the longest number of each floating point type.
WIDTHS = {"f16": 11, "bf16": 10, "e4m3": 12, "e5m2": 14, "f32": 15, "f64": 24}
WIDTHS |= {"bool": 5, "c64": 33, "c128": 51}


@dataclass(frozen=True)
class Items:
    """A format of memory. type: None for hexadecimal digits."""

    name: str
    itemsize: int
    width: int  # columns of an item
    type: Type | None

    @classmethod
    def named(cls, name: str) -> Items:
        """Returns the format of a type. Raises Error if the type does not exist."""
        if name == HEX:
            return cls(HEX, 1, 2, None)
        found = parse(name)
        if found.name in WIDTHS:
            width = WIDTHS[found.name]
        else:
            limits = np.iinfo(found.view(np.zeros(found.itemsize, np.uint8)).dtype)
            width = max(len(str(limits.min)), len(str(limits.max)))
        return cls(found.name, found.itemsize, width, found)

    def next(self, step: int) -> Items:
        return Items.named(NAMES[(NAMES.index(self.name) + step) % len(NAMES)])

    def texts(self, raw: Array) -> list[str]:
        """Returns each item as text, without bytes behind the last whole one."""
        whole = raw[: len(raw) // self.itemsize * self.itemsize]
        if self.type is None:
            return [f"{byte:02x}" for byte in whole.tolist()]
        return [self.type.text(value) for value in self.type.view(whole)]

    def number(self, raw: Array) -> float | None:
        """Returns the first item as a number, None if there is none, or if it is complex."""
        if self.type is None:
            return float(raw[0]) if len(raw) else None
        if self.type.kind == "complex" or len(raw) < self.itemsize:
            return None
        return float(self.type.view(raw[: self.itemsize])[0])

    def odd(self, raw: Array) -> Array:
        """Returns which items are NaN or infinite."""
        whole = raw[: len(raw) // self.itemsize * self.itemsize]
        if self.type is None:
            return np.zeros(len(whole), bool)
        return self.type.is_nan(whole) | self.type.is_inf(whole)

    def row_width(self, count: int) -> int:
        """Returns the columns of this many items in a row."""
        if self.type is None:
            return 4 * count + (count - 1) // 8 + 2
        return count * (self.width + 1)

    def per_row(self, room: int) -> int:
        """Returns the number of items in a row of this width: a power of two, for round offsets."""
        each = 4.125 if self.type is None else self.width + 1  # with its letter and its gaps
        count = 1
        while 2 * count * each <= room + 1 and 2 * count * self.itemsize <= 64:
            count *= 2
        return count


def as_several(raw: Array) -> str:
    """Returns the bytes at one place as numbers of the usual types, if there are enough bytes."""
    parts = []
    for name in ("u8", "i32", "f16", "bf16", "f32", "f64"):
        of = parse(name)
        try:
            parts.append(f"{name} {of.text(of.view(raw[: of.itemsize].copy())[0])}")
        except (Error, IndexError):
            break
    return "  ".join(parts)
