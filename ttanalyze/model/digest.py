"""Digests of many short inputs at once."""

from __future__ import annotations

import numpy as np

from ttanalyze.model.layout import Array

# Bytes 8 to 16 of XXH3's secret, exclusive or its bytes 16 to 24; and its multiplier PRIME_MX2.
BITFLIP, MULTIPLIER = np.uint64(0xC73AB174C5ECD5A2), np.uint64(0x9FB21C651E98DF25)


def digests_of_words(words: Array) -> Array:
    """XXH3-64, seed 0, of each uint64 as 8 little-endian bytes, as uint64: what a region of one
    block has. An input of 4 to 8 bytes is one word to XXH3, its halves swapped (the algorithm:
    XXH3_len_4to8_64b of xxHash).
    """
    with np.errstate(over="ignore"):
        h: Array = ((words << np.uint64(32)) | (words >> np.uint64(32))) ^ BITFLIP
        h ^= _rotated(h, 49) ^ _rotated(h, 24)
        h *= MULTIPLIER
        h ^= (h >> np.uint64(35)) + np.uint64(8)
        h *= MULTIPLIER
        h ^= h >> np.uint64(28)
        return h


def _rotated(words: Array, bits: int) -> Array:
    out: Array = (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
    return out
