"""Checks arguments of callers: integers and dtypes. Raises Error for wrong ones."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ttanalyze.errors import Error

MOST = (1 << 63) - 1


def whole(value: Any, what: str, least: int = 0, most: int = MOST) -> int:
    """Returns an integer from least to most; a float may be one. what: its name in the error."""
    try:
        number = int(value) if _is_whole_float(value) else operator.index(value)
    except TypeError:
        raise Error(f"{what} {value!r}: give a whole number") from None
    if not least <= number <= most:
        limit = f"at least {least:,}" if number < least else f"at most {most:,}"
        raise Error(f"{what} {number:,}: give {limit}")
    return number


def _is_whole_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and float(value).is_integer()


def items(dtype: Any) -> np.dtype[Any]:
    """Returns a dtype whose items can be in memory."""
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        raise Error(f"{dtype!r} is not a numpy type") from None
    if kind.hasobject or not kind.itemsize:
        raise Error(f"items of type {kind} can't lie in memory of a device")
    return kind
