"""Codes blocks as docs/format.md says, with numpy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests import support

LOWS = (16, 13, 8, 0)
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
        base = int(group.min()) >> (bits - 8)
        group = group - np.uint32(base << (bits - 8))
        union = int(np.bitwise_or.reduce(group, axis=None))
        low = next(n for n in LOWS if union % (1 << n) == 0) if union else 0
        count = (union >> low).bit_length()
        heads.append(base | count << 8 | sorted(LOWS).index(low) << 14)
        for bit in range(low, low + count):
            for column in (group >> np.uint32(bit) & 1).T:
                planes.append(np.packbits(column.astype("u1"), bitorder="little").tobytes())
    return width.to_bytes(4, "little") + np.array(heads, "<u2").tobytes() + b"".join(planes)
