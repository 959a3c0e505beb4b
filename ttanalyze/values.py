"""Memory as numbers: decoding, how far apart two buffers are, and what a buffer holds.

All functions take bytes as 1-D uint8 arrays, of any alignment. Nothing is rounded that need not
be: integers stay integers, and a distance in units of the last place is that of integers which
ascend with the values. Memory is bounded: large arrays are gone through in pieces.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.model.layout import Array

PIECE = 1 << 20  # bytes looked at at a time; all itemsizes divide it
FIRST = 8  # indices of differing items that are told
BINS = 16
HUGE = 2.0**900  # sums of a piece's items below it don't overflow

Number = int | float


@dataclass(frozen=True)
class Type:
    """What items of memory are. kind: "float", "int", "bool" or "complex"."""

    name: str
    itemsize: int
    kind: str

    def view(self, raw: Array) -> Array:
        """The items: numpy's own types, and float32 for those that numpy doesn't have.

        Raises Error where the bytes don't divide into items.
        """
        if len(raw) % self.itemsize:
            rest = len(raw) % self.itemsize
            raise Error(
                f"{len(raw)} bytes don't divide into {self.name} items of {self.itemsize}: "
                f"{rest} are left over"
            )
        raw = np.ascontiguousarray(raw)
        if self.name == "bool":
            return np.asarray(raw != 0)
        if self.name == "bf16":
            wide: Array = raw.view("<u2").astype("<u4") << np.uint32(16)
            return wide.view("<f4")
        if self.itemsize == 1 and self.kind == "float":
            return np.asarray(_small_floats(self.name)[raw])
        return raw.view(_NUMPY[self.name])

    def to_float(self, raw: Array) -> Array:
        """The items as float64, of complex ones the absolute values. Raises Error as view does."""
        values = self.view(raw)
        with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
            if self.kind == "complex":
                values = np.hypot(values.real.astype("f8"), values.imag.astype("f8"))
            return values.astype("f8")

    def ordinals(self, raw: Array) -> Array:
        """int64 that ascend with the values, neighbours one apart, both zeros 0 (unsigned
        64-bit integers minus 2**63). Complex items give a row of two; those of NaNs mean nothing.
        Raises Error as view does.
        """
        if self.kind in ("float", "complex"):
            bits = self._bits(raw)
            magnitude = (bits & self._magnitude).astype("i8")
            out: Array = np.where(bits > self._magnitude, -magnitude, magnitude)
            return out.reshape(-1, 2) if self.kind == "complex" else out
        values = self.view(raw)
        if self.name == "u64":
            values = (values ^ np.uint64(1 << 63)).view("i8")
        return values.astype("i8")

    def is_nan(self, raw: Array) -> Array:
        """Which items are NaN; of complex ones, those with a part that is."""
        return self._where(raw, lambda bits: bits & self._magnitude > self._last_number)

    def is_inf(self, raw: Array) -> Array:
        """Which items are infinite: not NaN, and of complex ones at least one part is."""
        infinity = _INFINITY.get(self._part)
        if infinity is None:
            return np.zeros(len(raw) // self.itemsize, bool)
        out = self._where(raw, lambda bits: bits & self._magnitude == infinity)
        if self.kind == "complex":
            out &= ~self.is_nan(raw)
        return out

    def nearest(self, value: float) -> float:
        """The item of a float type that a number is rounded to, ties to even."""
        if self.name in _NUMPY:
            with np.errstate(over="ignore"):
                return float(np.dtype(_NUMPY[self.name]).type(value))
        every = np.arange(1 << (8 * self.itemsize), dtype=self._bits_type)
        every = every[~self.is_nan(every.view("u1"))]
        values = self.to_float(every.view("u1"))
        with np.errstate(invalid="ignore"):
            distance = np.where(values == value, 0, np.abs(values - value))
        near = np.flatnonzero(distance == distance.min())
        return float(values[min(near.tolist(), key=lambda i: int(every[i]) & 1)])

    def limits(self) -> tuple[int, int]:
        """The least and the greatest item of a type of integers, or of bool."""
        if self.kind == "bool":
            return 0, 1
        known = np.iinfo(_NUMPY[self.name])
        return int(known.min), int(known.max)

    def text(self, value: Any) -> str:
        """An item of view() in the fewest digits that tell it from its neighbours."""
        return f"{float(value):.4g}" if self.name == "bf16" else str(value)

    def texts(self, data: bytes) -> list[str]:
        """Each item of some bytes as text. Raises Error as view does."""
        return [self.text(value) for value in self.view(np.frombuffer(data, "u1"))]

    def listed(self, data: bytes) -> list[Any]:
        """Each item of some bytes as JSON can have it: "nan", "inf" and "-inf" as texts, complex
        ones as two numbers. Raises Error as view does.
        """
        values = self.view(np.frombuffer(data, "u1"))
        if self.kind == "complex":
            parts = [_listed(part) for part in (values.real, values.imag)]
            return [list(pair) for pair in zip(*parts, strict=True)]
        return _listed(values)

    @property
    def numpy(self) -> str:
        """The numpy type of its items, of those that numpy doesn't have that of their bits."""
        if self.name == "bool":
            return "|b1"
        return _NUMPY.get(self.name, "<u2" if self.itemsize == 2 else "|u1")

    # ---- as bits ----

    @property
    def _part(self) -> str:
        return {"c64": "f32", "c128": "f64"}.get(self.name, self.name)

    @property
    def _bits_type(self) -> np.dtype[Any]:
        """Unsigned integers as wide as an item; of complex ones, as a part."""
        return np.dtype(f"<u{self.itemsize // (2 if self.kind == 'complex' else 1)}")

    def _bits(self, raw: Array) -> Array:
        return np.ascontiguousarray(raw).view(self._bits_type)

    @property
    def _magnitude(self) -> Any:
        """The mask of all bits but the sign, in the type of the bits."""
        return self._bits_type.type((1 << (8 * self._bits_type.itemsize - 1)) - 1)

    @property
    def _last_number(self) -> Any:
        """The bits above which a float without its sign is NaN."""
        return self._bits_type.type(_INFINITY.get(self._part, 0x7E))

    def _where(self, raw: Array, test: Callable[[Array], Array]) -> Array:
        if self.kind not in ("float", "complex"):
            return np.zeros(len(raw) // self.itemsize, bool)
        found = test(self._bits(raw))
        return np.asarray(found.reshape(-1, 2).any(axis=1)) if self.kind == "complex" else found


def _listed(values: Array) -> list[Any]:
    return [v if not isinstance(v, float) or math.isfinite(v) else str(v) for v in values.tolist()]


_NUMPY = {
    "f16": "<f2",
    "f32": "<f4",
    "f64": "<f8",
    "c64": "<c8",
    "c128": "<c16",
    **{f"{sign}{8 * size}": f"<{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)},
}
# Bits of infinity. e4m3 has none: all ones, which would follow its last number 0x7e, are NaN.
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52, "e5m2": 0x7C}

TYPES = {
    t.name: t
    for t in (
        *(Type(f"f{8 * size}", size, "float") for size in (2, 4, 8)),
        Type("bf16", 2, "float"),
        Type("e4m3", 1, "float"),
        Type("e5m2", 1, "float"),
        *(Type(f"{sign}{8 * size}", size, "int") for sign in "iu" for size in (1, 2, 4, 8)),
        Type("bool", 1, "bool"),
        Type("c64", 8, "complex"),
        Type("c128", 16, "complex"),
    )
}
_ALIASES = {
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "complex64": "c64",
    "complex128": "c128",
    "byte": "u8",
    **{f"float{n}": f"f{n}" for n in (16, 32, 64)},
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}


def parse(name: str) -> Type:
    """The type of that name: f32 and float32 alike. Raises Error for any other."""
    wanted = name.strip().lower()
    found = TYPES.get(_ALIASES.get(wanted, wanted))
    if found is None:
        raise Error(f"no type {name!r}: {', '.join(TYPES)} are known")
    return found


@functools.cache
def _small_floats(name: str) -> Array:
    """The value of each of the 256 floats of 8 bits, as float32."""
    bits = np.arange(256, dtype="<u2")
    if name == "e5m2":  # the upper half of a float16
        upper: Array = bits << np.uint16(8)
        return upper.view("<f2").astype("<f4")
    exponent, fraction = (bits >> 3) & 15, (bits & 7).astype("f4")
    normal = np.ldexp(1 + fraction / 8, exponent.astype("i4") - 7)
    out: Array = np.where(exponent > 0, normal, np.ldexp(fraction / 8, -6)).astype("<f4")
    out[(bits & 0x7F) == 0x7F] = np.nan
    out[128:] *= -1
    return out


# ---- how far apart ----


@dataclass(frozen=True)
class Tolerance:
    """What does not count as different: items no further apart than any one part allows.

    abs: in value. rel: of the larger one's absolute value. ulp: in units of the last place, for
    integers 1. None: this part allows nothing. NaNs are equal to each other, infinities of the
    same sign are, and nothing else is near to either.
    """

    abs: Number | None = None
    rel: float | None = None
    ulp: int | None = None

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Of "abs,rel,ulp", such as "1e-6", "1e-6,1e-3" or ",,4". Raises Error for all else."""
        parts = [part.strip() for part in text.split(",")]
        if len(parts) > 3 or not any(parts):
            raise Error(f"tolerance {text}: ABS,REL,ULP is expected, such as 1e-6,1e-3 or ,,4")
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
    raise Error(f"tolerance {text}: {name} is a number from 0")


@dataclass(frozen=True)
class ValueDifference:
    """How two buffers of items differ.

    elements: items compared. unequal: those whose bytes differ. count: those that count as
    different: the unequal ones, of which a tolerance allows some. first: the indices of the first
    of these. max_abs, max_rel, max_ulp: how far apart unequal items are at most, of those that are
    finite on both sides; 0 where there are none. nan, inf: how many each side has. tail: bytes
    behind the last whole item, tail_differs whether they do.
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


def compare_values(
    type: Type,  # noqa: A002
    ours: Array,
    theirs: Array,
    tolerance: Tolerance | None = None,
    first: int = FIRST,
) -> ValueDifference:
    """Compares two buffers of one length item by item; first: how many indices are told.

    Without a tolerance every item whose bytes differ counts, as -0 and 0, or two NaNs, may.
    Raises Error for buffers that aren't of one length.
    """
    comparison = Comparison(type, tolerance, first)
    comparison.add(ours, theirs)
    return comparison.result()


class Comparison:
    """compare_values for buffers that come in parts, each but the last of whole items."""

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

    def add(self, ours: Array, theirs: Array) -> None:
        """Compares what comes next. Raises Error where the two aren't of one length."""
        if len(ours) != len(theirs):
            raise Error(f"{len(ours)} bytes can't be compared with {len(theirs)}")
        whole = len(ours) - len(ours) % self.type.itemsize
        for at in range(0, whole, PIECE):
            end = min(at + PIECE, whole)
            self._add(np.ascontiguousarray(ours[at:end]), np.ascontiguousarray(theirs[at:end]))
        self._tail = len(ours) - whole
        self._tail_differs = bool((ours[whole:] != theirs[whole:]).any())

    def skip(self, length: int) -> None:
        """Counts so many bytes, of whole items, as equal without their being looked at."""
        self._elements += length // self.type.itemsize

    def result(self) -> ValueDifference:
        """What was found in all that was added."""
        return ValueDifference(
            self.type.name,
            self._elements,
            self._unequal,
            self._count,
            *self._max,
            (self._nan[0], self._nan[1]),
            (self._inf[0], self._inf[1]),
            list(self._first),
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
            both = [raw.reshape(-1, size)[at].reshape(-1) for raw in (ours, theirs)]
            allowed = self._look_at(*both)
            self._unequal += len(at)
            at = at[~allowed]
            self._count += len(at)
            missing = max(0, self._most - len(self._first))
            self._first += (at[:missing] + self._elements).tolist()
        self._elements += len(ours) // size

    def _look_at(self, ours: Array, theirs: Array) -> Array:
        """Takes the maxima of items that are all unequal; which of them the tolerance allows."""
        one, distances = self.type, _distances(self.type, ours, theirs)
        numbers = np.ones(len(distances.ulp), bool)
        equal = np.zeros(len(numbers), bool)
        if one.kind in ("float", "complex"):
            nan = [one.is_nan(raw) for raw in (ours, theirs)]
            inf = [one.is_inf(raw) for raw in (ours, theirs)]
            numbers = ~(nan[0] | nan[1] | inf[0] | inf[1])
            with np.errstate(invalid="ignore"):
                equal = inf[0] & inf[1] & (one.view(ours) == one.view(theirs))
            equal |= nan[0] & nan[1]
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
        return equal | (numbers & distances.within(self.tolerance))


@dataclass(frozen=True)
class _Distances:
    """How far apart items are; uint64 or float64, float64, uint64."""

    abs: Array
    rel: Array
    ulp: Array

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
        rel = _ratio(apart, np.maximum(_size(values[0]), _size(values[1])))
        far = np.isinf(apart)
        if far.any():  # of halves the difference is a number again
            halves = [value[far] / 4 for value in values]
            rel[far] = _ratio(_size(halves[0] - halves[1]), np.maximum(*map(_size, halves)))
        return _Distances(apart, rel, ulp)


def _size(values: Array) -> Array:
    return np.hypot(values.real, values.imag) if values.dtype.kind == "c" else np.abs(values)


def _ratio(distance: Array, size: Array) -> Array:
    """distance / size, and 0 where both are."""
    return np.divide(distance, size, out=np.zeros(len(size)), where=size != 0)


# ---- what a buffer holds ----


@dataclass(frozen=True)
class Summary:
    """What a buffer of items holds; of complex ones the absolute values.

    elements: items. nan, inf, zero: how many are that. min, max, mean: of the finite ones, None
    where there are none; those of integers are exact. counts: how many finite ones lie from
    edges[i] to edges[i + 1], the right edge excluded but the last. tail: bytes behind the last
    whole item.
    """

    type: str
    elements: int
    nan: int
    inf: int
    zero: int
    min: Number | None
    max: Number | None
    mean: float | None
    edges: list[Number]
    counts: list[int]
    tail: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The members, by name, all of them JSON's."""
        return asdict(self)


def summarise(type: Type, raw: Array, bins: int = BINS) -> Summary:  # noqa: A002
    """What a buffer holds."""

    def pieces() -> Iterator[Array]:
        for at in range(0, len(raw), PIECE):
            yield raw[at : at + PIECE]

    return summarise_pieces(type, pieces, bins)


def summarise_pieces(
    type: Type,  # noqa: A002
    pieces: Callable[[], Iterator[Array]],
    bins: int = BINS,
) -> Summary:
    """What a buffer holds that comes in pieces, each but the last of whole items.

    pieces: gives them all from the beginning; it is called twice, for the histogram's sake.
    """
    elements = nan = inf = zero = tail = finite = 0
    low: Number | None = None
    high: Number | None = None
    total = Fraction(0)
    for raw in pieces():
        tail = len(raw) % type.itemsize
        whole = raw[: len(raw) - tail]
        values = _numbers(type, whole)
        elements += len(whole) // type.itemsize
        if type.kind in ("float", "complex"):
            nans = int(np.count_nonzero(type.is_nan(whole)))
            nan += nans
            inf += len(whole) // type.itemsize - len(values) - nans
        if len(values):
            zero += len(values) - int(np.count_nonzero(values))
            finite += len(values)
            least, most = values.min().item(), values.max().item()
            low = least if low is None else min(low, least)
            high = most if high is None else max(high, most)
            total += _sum(values)
    if low is None or high is None:
        return Summary(type.name, elements, nan, inf, zero, None, None, None, [], [], tail)
    histogram = _Histogram(low, high, bins)
    for raw in pieces():
        histogram.add(_numbers(type, raw[: len(raw) - len(raw) % type.itemsize]))
    return Summary(
        type.name,
        elements,
        nan,
        inf,
        zero,
        low,
        high,
        float(total / finite),
        histogram.edges,
        histogram.counts.tolist(),
        tail,
    )


def _numbers(type: Type, raw: Array) -> Array:  # noqa: A002
    """The finite items: float64, or integers as they are."""
    if type.kind == "bool":
        return type.view(raw).view("u1")
    if type.kind == "int":
        return type.view(raw)
    values = type.to_float(raw)
    finite = np.isfinite(values)
    return values if finite.all() else values[finite]


def _sum(values: Array) -> Fraction:
    if values.dtype.kind == "f":
        scale = 2.0**-100 if max(abs(values.min()), abs(values.max())) > HUGE else 1.0
        return Fraction((values * scale).sum().item()) / Fraction(scale)
    # Of a piece's integers, the sums of either half of the bits fit into 64.
    if values.itemsize < 8:
        return Fraction(values.sum(dtype="i8").item())
    half = values.dtype.type(32)
    low = values & values.dtype.type(0xFFFFFFFF)
    return Fraction(((values >> half).sum().item() << 32) + low.sum().item())


class _Histogram:
    """Counts in bins of one width from low to high; a whole number of integers to each."""

    def __init__(self, low: Number, high: Number, bins: int) -> None:
        self.low = low
        if isinstance(low, int) and isinstance(high, int):
            self.width = -(-(high - low + 1) // bins)
            bins = -(-(high - low + 1) // self.width)
            self.edges: list[Number] = [*(low + i * self.width for i in range(bins)), high]
        else:
            parts = np.linspace(0, 1, bins + 1) if low < high else np.zeros(2)
            edges = low * (1 - parts) + high * parts  # high - low may be too large a number
            edges[-1] = high
            bins = len(parts) - 1
            self.edges = edges.tolist()
        self.counts: Array = np.zeros(bins, "i8")

    def add(self, values: Array) -> None:
        if len(self.counts) == 1:
            self.counts[0] += len(values)
            return
        if values.dtype.kind == "f":
            bins = np.searchsorted(np.array(self.edges[1:-1]), values, "right")
        else:
            # From the least one on, as unsigned integers: right modulo 2**64.
            above = values.astype("u8") - np.uint64(self.low % (1 << 64))
            bins = (above // np.uint64(self.width)).astype("i8")
        self.counts += np.bincount(bins, minlength=len(self.counts))
