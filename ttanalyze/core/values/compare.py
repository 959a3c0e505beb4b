"""Compares two buffers of items."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ttanalyze.core.values.types import PIECE, Number, Type
from ttanalyze.errors import Error
from ttanalyze.format.layout import Array
from ttanalyze.util.arguments import checked

FIRST = 8  # indices of differing items that are listed
NORMS = ("l1", "l2", "linf")
LEAST = 5e-324  # float64 above 0


@checked
@dataclass(frozen=True)
class Tolerance:
    """Limits within which two items count as equal. One limit that holds is enough.

    NaN equals NaN, and infinities of the same sign are equal; nothing else is close to them.
    Complex items with NaN or infinity must be equal in both parts. None turns a limit off.

    Attributes:
        abs: The limit of the absolute difference.
        rel: The limit of the difference relative to the larger absolute value.
        ulp: The limit in units of the last place; for integers it is the difference.
        norm: "l1", "l2" or "linf": the limits are of this norm of the differences of all items, not
            of each item; None: of each item.
    """

    abs: Number | None = None
    rel: float | None = None
    ulp: int | None = None
    norm: str | None = None

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Parses "ABS,REL,ULP", such as "1e-6", "1e-6,1e-3" or ",,4", or "NORM:ABS,REL".

        Args:
            text: The text. Parts may be empty.

        Raises:
            Error: The text is malformed.

        Example:
            >>> tt.values.Tolerance.parse("1e-6,,4")
            Tolerance(abs=1e-06, rel=None, ulp=4, norm=None)
        """
        norm, named, numbers_text = text.rpartition(":")
        if named:
            made = cls.parse(numbers_text)
            if norm not in NORMS or made.ulp is not None:
                raise Error(f"tolerance {text}: expected l1:ABS,REL, l2:ABS,REL or linf:ABS,REL")
            return replace(made, norm=norm)
        parts = [part.strip() for part in text.split(",")]
        if len(parts) > 3 or not any(parts):
            raise Error(f"tolerance {text}: expected ABS,REL,ULP, such as 1e-6,1e-3 or ,,4")
        parts += [""] * (3 - len(parts))
        names = ("ABS", "REL", "ULP")
        numbers = [_tolerance(text, *pair) for pair in zip(names, parts, strict=True)]
        if not isinstance(numbers[2], int | None):
            raise Error(f"tolerance {text}: ULP is a whole number")
        return cls(numbers[0], None if numbers[1] is None else float(numbers[1]), numbers[2])


def _tolerance(text: str, name: str, part: str) -> Number | None:
    if not part:
        return None
    try:
        number: Number = int(part) if part.isdecimal() else float(part)
        if math.isfinite(number) and number >= 0:
            return number
    except (ValueError, OverflowError):
        pass
    raise Error(f"tolerance {text}: {name} must be a number, 0 or more")


@dataclass(frozen=True)
class ValueDifference:
    """How two buffers of items differ.

    Attributes:
        type: The name of the type.
        elements: The number of compared items.
        unequal: The number of items whose bytes differ.
        count: The number of items that differ by more than the tolerance.
        max_abs, max_rel, max_ulp: The largest absolute, relative and ulp difference of items that
            are finite on both sides, 0 if there are none.
        nan, inf: The number of NaNs and infinities on each side.
        first: The indices of the first items that count as different.
        tail: The number of bytes behind the last whole item.
        tail_differs: Whether these bytes differ.
    """

    type: str
    elements: int
    unequal: int
    count: int
    max_abs: Number
    max_rel: float
    max_ulp: int
    nan: tuple[int, int]
    inf: tuple[int, int]
    first: list[int]
    tail: int = 0
    tail_differs: bool = False

    @property
    def same(self) -> bool:
        """Whether nothing counts as different."""
        return not self.count and not self.tail_differs


@checked
def compare_values(
    type: Type,  # noqa: A002
    ours: Array,
    theirs: Array,
    tolerance: Tolerance | None = None,
    first: int = FIRST,
) -> ValueDifference:
    """Compares two buffers item by item.

    Without a tolerance every item with different bytes counts, such as -0 and 0 or two NaNs.

    Args:
        type: The type of the items.
        ours: A buffer, 1-D uint8.
        theirs: A buffer of the same length.
        tolerance: Items this close do not count as different.
        first: The maximal number of listed indices.

    Raises:
        Error: The buffers differ in length.

    Example:
        >>> import numpy as np
        >>> a, b = (np.array([1, x], "f4").view("u1") for x in (2, 2.5))
        >>> found = tt.values.compare_values(tt.values.parse("f32"), a, b)
        >>> found.count, found.max_abs, found.first
        (1, 0.5, [1])
    """
    comparison = Comparison(type, tolerance, first)
    comparison.add(ours, theirs)
    return comparison.result()


class Comparison:
    """Compares two buffers that come in pieces. All pieces but the last have whole items.

    Args:
        type: The type of the items.
        tolerance: Items this close do not count as different.
        first: The maximal number of listed indices.
    """

    def __init__(
        self,
        type: Type,  # noqa: A002
        tolerance: Tolerance | None = None,
        first: int = FIRST,
    ) -> None:
        self.type = type
        self.tolerance = tolerance
        self._most = first
        self._elements = self._unequal = self._count = 0
        self._max: tuple[Number, float, int] = (0, 0.0, 0)
        self._nan, self._inf = [0, 0], [0, 0]
        self._first: list[int] = []
        self._tail, self._tail_differs = 0, False
        self._pending: list[int] = []  # first items that only the norm can allow
        self._pending_count = 0
        self._norms = [0.0, 0.0]  # absolute, relative; squares for l2

    def add(self, ours: Array, theirs: Array) -> None:
        """Compares the next piece.

        Args:
            ours: A buffer, 1-D uint8.
            theirs: A buffer of the same length.

        Raises:
            Error: The buffers differ in length.
        """
        if len(ours) != len(theirs):
            raise Error(f"{len(ours)} bytes can't be compared with {len(theirs)}")
        whole = len(ours) - len(ours) % self.type.itemsize
        for at in range(0, whole, PIECE):
            end = min(at + PIECE, whole)
            self._add(np.ascontiguousarray(ours[at:end]), np.ascontiguousarray(theirs[at:end]))
        self._tail = len(ours) - whole
        self._tail_differs = bool((ours[whole:] != theirs[whole:]).any())

    def skip(self, length: int) -> None:
        """Counts a piece as equal without reading it.

        Args:
            length: The length of the piece in bytes.
        """
        if length:
            self._elements += length // self.type.itemsize
            self._tail, self._tail_differs = length % self.type.itemsize, False

    def result(self) -> ValueDifference:
        """Returns the result for all pieces so far."""
        count, first = self._count, list(self._first)
        if self._pending_count and not self._norm_holds():
            count += self._pending_count
            first = sorted([*first, *self._pending])[: self._most]
        return ValueDifference(
            self.type.name,
            self._elements,
            self._unequal,
            count,
            *self._max,
            (self._nan[0], self._nan[1]),
            (self._inf[0], self._inf[1]),
            first,
            self._tail,
            self._tail_differs,
        )

    def _add(self, ours: Array, theirs: Array) -> None:
        size = self.type.itemsize
        for side, raw in enumerate((ours, theirs)):
            if self.type.kind in ("float", "complex"):
                self._nan[side] += int(np.count_nonzero(self.type.is_nan(raw)))
                self._inf[side] += int(np.count_nonzero(self.type.is_inf(raw)))
        words = f"<u{min(size, 8)}"
        unequal = ours.view(words) != theirs.view(words)
        at = np.flatnonzero(unequal.reshape(-1, 2).any(axis=1) if size == 16 else unequal)
        if len(at):
            mine, other = (raw.reshape(-1, size)[at].reshape(-1) for raw in (ours, theirs))
            allowed = self._look_at(mine, other, at)
            self._unequal += len(at)
            at = at[~allowed]
            self._count += len(at)
            missing = max(0, self._most - len(self._first))
            self._first += (at[:missing] + self._elements).tolist()
        self._elements += len(ours) // size

    def _norm_holds(self) -> bool:
        tolerance = self.tolerance
        assert tolerance is not None
        norms = [math.sqrt(n) if tolerance.norm == "l2" else n for n in self._norms]
        limits = (tolerance.abs, tolerance.rel)
        return any(limit is not None and n <= limit for n, limit in zip(norms, limits, strict=True))

    def _add_to_norms(self, distances: _Distances, at: Array) -> None:
        """Adds items that differ, at these indices of the piece."""
        assert self.tolerance is not None
        for i, apart in enumerate((distances.abs, distances.rel)):
            found = apart.astype("f8")
            if self.tolerance.norm == "linf":
                self._norms[i] = max(self._norms[i], float(found.max(initial=0)))
            else:
                power = found * found if self.tolerance.norm == "l2" else found
                self._norms[i] += float(power.sum())
        missing = max(0, self._most - len(self._pending))
        self._pending += (at[:missing] + self._elements).tolist()
        self._pending_count += len(at)

    def _look_at(self, ours: Array, theirs: Array, at: Array) -> Array:
        """Takes the maxima of items that are all unequal; which of them the tolerance allows."""
        one, distances = self.type, _distances(self.type, ours, theirs)
        numbers = np.ones(len(distances.ulp), bool)
        equal = np.zeros(len(numbers), bool)
        if one.kind in ("float", "complex"):
            for raw in (ours, theirs):
                numbers &= ~(one.is_nan(raw) | one.is_inf(raw))
            a, b = (one.parts(raw) for raw in (ours, theirs))
            with np.errstate(invalid="ignore"):
                equal = ((a == b) | ((a != a) & (b != b))).all(axis=1) & ~numbers
        if numbers.any():
            found = (getattr(distances, name)[numbers].max() for name in ("abs", "rel", "ulp"))
            most = [new.item() for new in found]
            self._max = (
                max(self._max[0], most[0]),
                max(self._max[1], most[1]),
                max(self._max[2], most[2]),
            )
        if self.tolerance is None:
            return np.zeros(len(numbers), bool)
        if self.tolerance.norm is not None:
            chosen = numbers & ~equal
            self._add_to_norms(distances.of(chosen), at[chosen])
            return equal | numbers
        return equal | (numbers & distances.within(self.tolerance))


@dataclass(frozen=True)
class _Distances:
    """How far apart items are; uint64 or float64, float64, uint64."""

    abs: Array
    rel: Array
    ulp: Array

    def of(self, chosen: Array) -> _Distances:
        return _Distances(self.abs[chosen], self.rel[chosen], self.ulp[chosen])

    def within(self, tolerance: Tolerance) -> Array:
        out = np.zeros(len(self.ulp), bool)
        if tolerance.abs is not None:
            out |= self._at_most(self.abs, tolerance.abs)
        if tolerance.rel is not None:
            out |= self.rel <= tolerance.rel
        if tolerance.ulp is not None:
            out |= self._at_most(self.ulp, tolerance.ulp)
        return out

    @staticmethod
    def _at_most(distance: Array, limit: Number) -> Array:
        if distance.dtype.kind == "f":
            return np.asarray(distance <= float(limit))
        return np.asarray(distance <= np.uint64(min(math.floor(limit), (1 << 64) - 1)))


def _distances(type: Type, ours: Array, theirs: Array) -> _Distances:  # noqa: A002
    a, b = type.ordinals(ours), type.ordinals(theirs)
    # The differences of int64 need 64 bits; they come out right modulo 2**64.
    ulp = np.where(a >= b, a.view("u8") - b.view("u8"), b.view("u8") - a.view("u8"))
    with np.errstate(all="ignore"):
        if type.kind in ("int", "bool"):
            size = np.maximum(*(np.abs(type.to_float(raw)) for raw in (ours, theirs)))
            return _Distances(ulp, _ratio(ulp.astype("f8"), size), ulp)
        if type.kind == "complex":
            ulp = ulp.max(axis=1)
            values = [type.view(raw).astype("c16") for raw in (ours, theirs)]
        else:
            values = [type.to_float(raw) for raw in (ours, theirs)]
        apart = _size(values[0] - values[1])
        size = np.maximum(_size(values[0]), _size(values[1]))
        rel = _ratio(apart, size)
        far = np.isinf(apart) | np.isinf(size)
        if far.any():  # of quarters they are numbers again
            quarters = [value[far] / 4 for value in values]
            rel[far] = _ratio(_size(quarters[0] - quarters[1]), np.maximum(*map(_size, quarters)))
        rel[(rel == 0) & (apart > 0)] = LEAST  # too small a number, but not 0
        return _Distances(apart, rel, ulp)


def _size(values: Array) -> Array:
    return np.hypot(values.real, values.imag) if values.dtype.kind == "c" else np.abs(values)


def _ratio(distance: Array, size: Array) -> Array:
    """distance / size, and 0 where both are."""
    return np.divide(distance, size, out=np.zeros(len(size)), where=size != 0)
