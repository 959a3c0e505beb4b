"""What new memory holds in runs that were recorded with --fill; interpose/include/fill_pattern.h
has the same pattern.
"""

from __future__ import annotations

import numpy as np

from ttanalyze.format.layout import Array

OPTION = "TT_FILL"
CONSTANT = {"zero": 0x00, "ones": 0xFF}
PATTERN = "pattern:"


def seed_of(fill: str) -> int:
    """Returns the seed of a pattern."""
    return int(fill.removeprefix(PATTERN))


def fill_bytes(fill: str, address: int, size: int) -> Array:
    """Returns what new memory holds.

    Args:
        fill: The value of --fill, other than "off".
        address: The address of the first byte.
        size: The number of bytes.

    Returns:
        The bytes (uint8).
    """
    if fill in CONSTANT:
        return np.full(size, CONSTANT[fill], "u1")
    seed = seed_of(fill)
    first = address // 8
    index = np.arange(first, -(-(address + size) // 8), dtype="u8")
    x = index + np.uint64(seed * 0xD1342543DE82EF95 & (1 << 64) - 1)
    x *= np.uint64(0xA24BAED4963EE407)
    x = (x ^ x >> np.uint64(29)) * np.uint64(0x9FB21C651E98DF25)
    words = (x ^ x >> np.uint64(32)).astype("<u8")
    return words.view("u1")[address - 8 * first :][:size]
