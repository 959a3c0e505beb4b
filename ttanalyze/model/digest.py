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


# What XXH3 takes of its secret for 65 to 96 bytes; PRIME64_1; and its multiplier PRIME_MX1.
SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    ),
    "<u8",
)
LENGTHS, LAST_MULTIPLIER = np.uint64(0x9E3779B185EBCA87), np.uint64(0x165667919E3779F9)
HALF, LOW = np.uint64(32), np.uint64((1 << 32) - 1)
COVERED = 72  # bytes of a record that checks_of knows
ROWS = 1 << 13  # at a time: what is made of them stays in the processor's cache


def checks_of(records: Array) -> Array:
    """XXH3-64, seed 0, of the first COVERED bytes of each record, as uint64 (the algorithm:
    XXH3_len_17to128_64b of xxHash). Records are contiguous and a multiple of 8 bytes long.
    """
    words = records.view("<u8").reshape(len(records), records.itemsize // 8)
    out = np.empty(len(records), "u8")
    with np.errstate(over="ignore"):
        for at in range(0, len(words), ROWS):
            some = [words[at : at + ROWS, i].copy() for i in range(COVERED // 8)]
            h = np.full(len(some[0]), np.uint64(COVERED) * LENGTHS)
            for secret, word in enumerate((0, 7, 2, 5, 4, 3)):
                low, high = SECRET[2 * secret : 2 * secret + 2]
                h += _multiplied(some[word] ^ low, some[word + 1] ^ high)
            h ^= h >> np.uint64(37)
            h *= LAST_MULTIPLIER
            h ^= h >> HALF
            out[at : at + ROWS] = h
    return out


def _multiplied(a: Array, b: Array) -> Array:
    """Both halves of the 128 bits of each product, exclusive or."""
    low_a, high_a, low_b, high_b = a & LOW, a >> HALF, b & LOW, b >> HALF
    middle = high_a * low_b + (low_a * low_b >> HALF)
    other = low_a * high_b + (middle & LOW)
    out: Array = high_a * high_b + (middle >> HALF) + (other >> HALF)
    out ^= a * b
    return out


def _rotated(words: Array, bits: int) -> Array:
    out: Array = (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
    return out
