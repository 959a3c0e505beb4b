"""Whether memory looks like numbers of a type.

Random bits, integers, addresses and texts that are seen as floating-point numbers are very large
or very small ones: half of all bit patterns of a type are, and nearly all integers. Numbers that a
program computes with are mostly of ordinary size.
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
