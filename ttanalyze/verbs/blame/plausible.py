"""Whether memory looks like numbers of a type.

Random bits, integers, addresses and texts that are seen as floating-point numbers are very large
or very small ones: half of all bit patterns of a type are, and nearly all integers. Numbers that a
program computes with are mostly of ordinary size.

Two numbers of 16 bits side by side are an f32 of ordinary size, too. They are recognised by their
halves: both have the same distribution of exponents, whereas the lower half of an f32 is a part of
its mantissa and has any bits.
"""

from __future__ import annotations

import numpy as np

from ttanalyze.core.values import Type
from ttanalyze.format.layout import Array

EXPONENT_BITS = {
    name: bits
    for bits, names in ((4, "e4m3"), (5, "f16 e5m2"), (8, "bf16 f32 c64"), (11, "f64 c128"))
    for name in names.split()
}
ENOUGH = 0.75  # of the numbers that say anything
PAGE = 4096  # bytes that have one type: a pool gives its memory to tensors of all types
WIDE = (0x7F80, 0x7FC0, 0x7FF0, 0x7FF8)  # upper halves of infinity and NaN, of f32 and of f64
HALVES = 128  # numbers of 16 bits at even and at odd positions, to compare them
APART = 0.2  # total variation distance of their upper bytes
RANDOM = 6.6  # bits of entropy that the upper bytes of numbers do not reach
UNIFORM = 2.5  # of 3 bits of entropy: the upper bits of a mantissa
RISING = 0.08  # share of numbers by which the upper half of an exponent's mantissas may be fuller
F16_BITS, BF16_BITS = 10, 7  # of the mantissa
F16_EXPONENTS, BF16_EXPONENTS = (1, 26), (63, 191)  # ordinary ones


def looks_like(type: Type, raw: Array, of: Array) -> bool | None:  # noqa: A002
    """Whether these items of a float or complex type have the middle half of its exponents: f32
    from 2**-64 to 2**64. of: which items are asked about. None where all are 0, NaN or infinite.
    """
    with np.errstate(invalid="ignore"):
        numbers = np.abs(type.parts(raw)[of].astype("f8"))
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    if not len(numbers):
        return None
    most = 2.0 ** (1 << (EXPONENT_BITS[type.name] - 2))
    ordinary = (numbers >= 1 / most) & (numbers <= most)
    return bool(np.count_nonzero(ordinary) >= ENOUGH * len(numbers))


def holds(
    type: Type,  # noqa: A002
    now: Array,
    old: Array | None,
    of: Array,
    asked: Array,
    apart: Array,
    strict: bool,
) -> Array:
    """Returns which items of a block hold numbers of a float or complex type.

    Args:
        type: The type.
        now: The bytes.
        old: What they were before, None if unknown.
        of: Which items of the type may say what type they are.
        asked: Which of these are asked about.
        apart: What `pages_apart` says, of the first pages.
        strict: Whether f16 and bf16 have to be recognised as such.
    """
    out = np.zeros(len(of), bool)
    step = PAGE // type.itemsize
    ordinary: bool | None = None
    for page, first in enumerate(range(0, len(of), step)):
        own = asked[first : first + step]
        if not own.any():
            continue
        there = slice(first * type.itemsize, (first + step) * type.itemsize)
        kind, may = None, of[first : first + step]
        known = page < len(apart) and bool(apart[page]) and bool(may.all())
        if type.itemsize > 1 and not known:
            before = None if old is None else _bytes_of(type, old[there], may)
            kind = _half_type_of_page(_bytes_of(type, now[there], may), before)
        inferred = kind is not None or (strict and type.itemsize == 2)
        if not inferred and ordinary is None:
            like = looks_like(type, now, of)
            ordinary = like is not False or (old is not None and bool(looks_like(type, old, of)))
        out[first : first + step] = own & (kind == type.name if inferred else bool(ordinary))
    return out


def pages_apart(now: Array, old: Array | None) -> Array:
    """Returns which whole pages of a block hold no numbers of 16 bits, because what was written
    there has other exponents at even than at odd positions: `halves_alike` for all at once.

    Args:
        now: The bytes of the block.
        old: What they were before, None if unknown.
    """
    count = len(now) // PAGE
    halves = now[: count * PAGE].view("<u2").reshape(count, PAGE // 4, 2)
    usable = _usable(halves)
    if old is not None:
        changed = now[: count * PAGE].view("<u4") != old[: count * PAGE].view("<u4")
        usable &= changed.reshape(count, PAGE // 4, 1)
    sides = np.arange(2 * count, dtype="i8").reshape(count, 1, 2) * 256
    numbers = ((halves >> 8) + sides)[usable]
    both = np.bincount(numbers, minlength=512 * count).reshape(count, 2, 256)
    totals = both.sum(axis=2)
    shares = both / np.maximum(totals, 1)[:, :, None]
    apart = np.abs(shares[:, 0] - shares[:, 1]).sum(axis=1) / 2
    every = both.sum(axis=1) / np.maximum(totals.sum(axis=1), 1)[:, None]
    entropy = -(every * np.log2(np.where(every > 0, every, 1))).sum(axis=1)
    found: Array = (totals.min(axis=1) >= HALVES) & ((apart > APART) | (entropy > RANDOM))
    return found


def _bytes_of(type: Type, raw: Array, of: Array) -> Array:  # noqa: A002
    return raw.reshape(-1, type.itemsize)[of].ravel()


def _half_type_of_page(now: Array, old: Array | None) -> str | None:
    """Returns "f16" or "bf16" if a page holds such numbers, else None.

    A pool gives the memory of one type to another type. So the bytes that changed decide. Only
    where they say nothing, the others and the old ones do.
    """
    whole = len(now) // 4 * 4
    written, earlier = now[:whole], None if old is None else old[:whole]
    if earlier is not None:
        changed = written.view("<u4") != earlier.view("<u4")
        written = written.view("<u4")[changed].view("u1")
    alike = halves_alike(written)
    if alike is False or (alike is None and _upper_halves(written)):
        return None
    rest = filter(None, (half_type(raw) for raw in (now, earlier) if raw is not None))
    return half_type(written) or next(rest, None)


def _upper_halves(raw: Array) -> bool:
    """Whether all NaN and infinity of 16 bits are the upper halves of a wider NaN or infinity."""
    pairs = raw.view("<u2").reshape(-1, 2) & 0x7FFF
    special = pairs & 0x7C00 == 0x7C00
    wide = (pairs[:, 0] == 0) & np.isin(pairs[:, 1], WIDE)
    return bool(special.any() and wide[special.any(axis=1)].all())


def half_type(raw: Array) -> str | None:
    """Returns "f16" or "bf16" if bytes look like many numbers of this type, else None.

    NaN, infinity and zero do not count. Measured on 4 KiB and on 64 KiB of normal, uniform, sorted,
    log-normal and sparse numbers: no f32, f64, integer, address, text or random memory is taken for
    f16 or bf16, and neither for the other. Constants, small whole numbers and mostly subnormal
    numbers are not recognised.
    """
    halves = raw[: len(raw) // 4 * 4].view("<u2").astype("i8")
    if not halves_alike(raw):
        return None
    numbers = halves[_usable(halves)] & 0x7FFF
    if _is_f16(numbers):
        return "f16" if _upper_mantissa(numbers, BF16_BITS) >= UNIFORM else None
    uniform = _upper_mantissa(numbers, BF16_BITS) >= UNIFORM
    return "bf16" if uniform and _ordinary(numbers >> BF16_BITS, BF16_EXPONENTS) else None


def _usable(halves: Array) -> Array:
    return (halves & 0x7FFF != 0) & (halves & 0x7C00 != 0x7C00)


def halves_alike(raw: Array) -> bool | None:
    """Whether numbers of 16 bits at even and at odd positions have the same exponents, and not any.
    None if there are too few to say.
    """
    halves = raw[: len(raw) // 4 * 4].view("<u2").astype("i8")
    usable = _usable(halves)
    both = [
        np.bincount(halves[side::2][usable[side::2]] >> 8, minlength=256).astype("f8")
        for side in (0, 1)
    ]
    if min(one.sum() for one in both) < HALVES:
        return None
    apart = np.abs(both[0] / both[0].sum() - both[1] / both[1].sum()).sum() / 2
    return bool(apart <= APART and _entropy(both[0] + both[1]) <= RANDOM)


def _is_f16(numbers: Array) -> bool:
    """Whether the upper bits of an f16's mantissa are those of a mantissa. Of a bf16 they are bits
    of its exponent: where these grow towards a common exponent, the upper half of them is fuller.
    """
    counts = np.bincount(numbers >> BF16_BITS, minlength=256).reshape(32, 2, 4).sum(axis=2)
    rising = np.maximum(counts[:, 1] - counts[:, 0], 0).sum() / len(numbers)
    uniform = _upper_mantissa(numbers, F16_BITS) >= UNIFORM
    return bool(uniform and rising < RISING and _ordinary(numbers >> F16_BITS, F16_EXPONENTS))


def _upper_mantissa(numbers: Array, bits: int) -> float:
    """The entropy of the upper 3 bits of a mantissa, in bits, if the exponent is known."""
    upper = np.bincount(numbers >> (bits - 3))
    return _entropy(upper) - _entropy(np.bincount(numbers >> bits))


def _ordinary(exponents: Array, limits: tuple[int, int]) -> bool:
    return bool(((exponents >= limits[0]) & (exponents <= limits[1])).mean() >= ENOUGH)


def _entropy(counts: Array) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum())
