"""Conditions on items: nan, inf, ==0, >1e6, changed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ttanalyze.core.values import Type
from ttanalyze.errors import Error
from ttanalyze.format.layout import Array
from ttanalyze.util.arguments import checked

COMPARES = {
    "==": np.equal,
    "!=": np.not_equal,
    ">=": np.greater_equal,
    "<=": np.less_equal,
    ">": np.greater,
    "<": np.less,
}
KNOWN = "nan, inf, changed, ==VALUE, !=VALUE, >VALUE, >=VALUE, <VALUE or <=VALUE"


@checked
@dataclass(frozen=True)
class Condition:
    """A condition on items.

    Attributes:
        text: The condition as it was given.
        type: The type of the items.
        operator: A comparison such as ">=", or "nan", "inf" or "changed".
        value: The value to compare with.

    Example:
        >>> nan = tt.blame.Condition.parse("nan", tt.values.parse("f32"))
        >>> tt.blame.watch(tt.open("run1").process(0), nan).sighting is None
        True
    """

    text: str
    type: Type
    operator: str
    value: int | float = 0

    @classmethod
    def parse(cls, text: str, type: Type) -> Condition:  # noqa: A002
        """Parses a condition.

        Args:
            text: "nan", "inf", "changed", or a comparison such as "==0" or ">1e6".
            type: The type of the items.

        Raises:
            Error: The text is no condition, or no item of the type can fulfil it.
        """
        word = re.sub(r"\s", "", text).lower()
        if word == "changed":
            return cls(text, type, word)
        if word in ("nan", "inf"):
            if type.kind not in ("float", "complex"):
                raise Error(f"--watch {text}: {type.name} items are never {word}; see --dtype")
            return cls(text, type, word)
        operator = next((o for o in COMPARES if word.startswith(o)), None)
        if operator is None:
            raise Error(f"--watch {text}: expected {KNOWN}")
        if type.kind == "complex":
            raise Error(f"--watch {text}: {type.name} items have no order: nan, inf or changed")
        exact, value = _number(word[len(operator) :], text)
        if math.isnan(value):
            raise Error(f"--watch {text}: comparisons with NaN are never true; use --watch nan")
        if type.kind == "float":
            # Equal to a number is what the type has nearest to it; order is exact.
            nearest = type.nearest(value) if operator in ("==", "!=") else value
            if math.isinf(nearest) and not math.isinf(value):
                raise Error(f"--watch {text}: no {type.name} is that number")
            return cls(text, type, operator, nearest)
        if not math.isfinite(value):
            raise Error(f"--watch {text}: {type.name} items are all finite")
        return cls(text, type, *_whole(operator, exact, type, text))

    def test(self, raw: Array) -> Array:
        """Returns which items fulfil the condition.

        Args:
            raw: A buffer of items, 1-D uint8.
        """
        if self.operator == "nan":
            return self.type.is_nan(raw)
        if self.operator == "inf":
            return self.type.is_inf(raw)
        values = self.type.view(raw)
        if self.type.kind == "bool":
            values = values.view("u1")
        if values.dtype.kind == "f":
            with np.errstate(invalid="ignore"):  # signalling NaNs
                return np.asarray(COMPARES[self.operator](values.astype("f8"), self.value))
        return np.asarray(COMPARES[self.operator](values, values.dtype.type(self.value)))


def _number(word: str, text: str) -> tuple[Fraction, float]:
    """Returns a number exactly (0 if it is not finite) and as a float."""
    word = {"true": "1", "false": "0"}.get(word, word)
    try:
        if re.search(r"e[+-]?\d{4}", word):
            raise ValueError
        if re.fullmatch(r"[+-]?0x[0-9a-f]{1,32}", word):
            return Fraction(int(word, 16)), float(int(word, 16))
        value = float(word)
        return Fraction(word) if math.isfinite(value) else Fraction(0), value
    except (ValueError, OverflowError):
        raise Error(f"--watch {text}: {word!r} is not a number") from None


def _whole(operator: str, exact: Fraction, type: Type, text: str) -> tuple[str, int]:  # noqa: A002
    """Returns the equivalent condition with an integer that the type has."""
    low, high = type.limits()
    whole = exact.denominator == 1
    if operator in ("==", "!="):
        if not whole or not low <= exact <= high:
            raise Error(f"--watch {text}: no {type.name} is that number")
        return operator, int(exact)
    up = operator in (">", ">=")
    limit = math.ceil(exact) if up else math.floor(exact)
    if whole and operator in (">", "<"):
        limit += 1 if up else -1
    if limit > high if up else limit < low:
        raise Error(f"--watch {text}: no {type.name} is, they go from {low} to {high}")
    return (">=", max(limit, low)) if up else ("<=", min(limit, high))
