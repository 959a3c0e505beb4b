"""Codes blocks as docs/format.md says, with numpy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests import support
from ttanalyze.format.layout import Array

LOWS = {16: 3, 13: 2, 0: 0}  # bits that may be the lowest, and their value in a head
MASKED = 1
PAGE = support.ROOT / "docs" / "format.md"


def decoder() -> Callable[[bytes, int], bytes]:
    """The program on the page."""
    code = re.search(r"```python\n([^`]*def decode[^`]*)```", PAGE.read_text())
    assert code
    names: dict[str, Any] = {}
    exec(code[1], names)
    decode: Callable[[bytes, int], bytes] = names["decode"]
    return decode


def encode(contents: bytes, width: int) -> bytes:
    """Returns the code of a block for elements of this width, also if it is longer."""
    bits, elements = 8 * width, 4 // width
    padded = np.frombuffer(contents + bytes(-len(contents) % 256), f"<u{width}").astype("u4")
    if width > 1:
        fraction = (1 << bits - 9) - 1
        sign, exponent = padded >> (bits - 1), padded >> (bits - 9) & 255
        padded = exponent << (bits - 8) | sign << (bits - 9) | padded & fraction
    groups = padded.reshape(-1, 32, 2, elements).transpose(0, 2, 1, 3).reshape(-1, 32, elements)
    heads, planes = [], []
    for group in groups:
        base, low, count = _shape(group, bits, tuple(LOWS))
        there, code, mask = np.ones(group.shape, bool), LOWS[low], []
        if count > 1 and not group.all():
            other = _shape(group[group != 0], bits, (0,))
            if other[2] + 1 < count:
                base, low, count = other
                there, code = group != 0, MASKED
                mask = _words(there)
        group = group - np.where(there, np.uint32(base << (bits - 8)), 0).astype("u4")
        heads.append(base | count << 8 | code << 14)
        planes += mask
        for bit in range(low, low + count):
            planes += _words(group >> np.uint32(bit) & 1)
    return width.to_bytes(4, "little") + np.array(heads, "<u2").tobytes() + b"".join(planes)


def _shape(counted: Array, bits: int, lows: tuple[int, ...]) -> tuple[int, int, int]:
    """The base of some elements, the lowest bit that varies and how many do."""
    base = int(counted.min()) >> (bits - 8)
    union = int(np.bitwise_or.reduce(counted - np.uint32(base << (bits - 8)), axis=None))
    low = next(n for n in lows if union % (1 << n) == 0) if union else 0
    return base, low, (union >> low).bit_length()


def _words(plane: Array) -> list[bytes]:
    """A word for each element of a word."""
    return [np.packbits(c.astype("u1"), bitorder="little").tobytes() for c in plane.T]
