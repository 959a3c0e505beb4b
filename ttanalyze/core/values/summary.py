"""Summarises buffers of items: range, mean, NaNs, histogram."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ttanalyze.core.values.types import PIECE, Number, Type
from ttanalyze.format.layout import Array
from ttanalyze.util.arguments import checked

BINS = 16
LARGEST = np.finfo("f8").max
HUGE = 2.0**900  # sums of a piece's items below it don't overflow


@dataclass(frozen=True)
class Summary:
    """A summary of a buffer. Complex items count by their absolute value, at most the largest
    float64.

    Attributes:
        type: The name of the type.
        elements: The number of items.
        nan, inf, zero: The number of NaNs, infinities and zeros.
        min, max, mean: Of the finite items, None if there are none. Minimum and maximum of integers
            are exact.
        edges: The edges of the histogram, one more than bins.
        counts: The number of finite items in each bin: from edges[i] (included) to edges[i + 1]
            (included in the last bin only).
        tail: The number of bytes behind the last whole item.
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
        """Returns the attributes as an object for JSON."""
        return asdict(self)


@checked
def summarise(type: Type, raw: Array, bins: int = BINS) -> Summary:  # noqa: A002
    """Summarises a buffer.

    Args:
        type: The type of the items.
        raw: The buffer, 1-D uint8.
        bins: The maximal number of bins of the histogram.

    Example:
        >>> import numpy as np
        >>> raw = np.array([0, 1, 2, np.nan], "f4").view("u1")
        >>> found = tt.values.summarise(tt.values.parse("f32"), raw, bins=2)
        >>> found.nan, found.mean, found.counts
        (1, 1.0, [1, 2])
    """

    def pieces() -> Iterator[Array]:
        for at in range(0, len(raw), PIECE):
            yield raw[at : at + PIECE]

    return summarise_pieces(type, pieces, bins)


def summarise_pieces(
    type: Type,  # noqa: A002
    pieces: Callable[[], Iterator[Array]],
    bins: int = BINS,
) -> Summary:
    """Summarises a buffer that comes in pieces. All pieces but the last have whole items.

    Args:
        type: The type of the items.
        pieces: Returns the pieces from the beginning. It is called twice, the second time for the
            histogram.
        bins: The maximal number of bins of the histogram.
    """
    if type.itemsize <= 2:
        return _counted(type, pieces, bins)
    elements = nan = zero = tail = finite = 0
    low: Number | None = None
    high: Number | None = None
    total = Fraction(0)
    for raw in pieces():
        tail = len(raw) % type.itemsize
        whole = raw[: len(raw) - tail]
        values = _numbers(type, whole)
        count = len(whole) // type.itemsize
        elements += count
        finite += len(values)
        if len(values) < count:
            nan += int(np.count_nonzero(type.is_nan(whole)))
        if len(values):
            zero += len(values) - int(np.count_nonzero(values))
            least, most = values.min().item(), values.max().item()
            low = least if low is None else min(low, least)
            high = most if high is None else max(high, most)
            total += _sum(values)
    inf = elements - finite - nan
    if low is None or high is None:
        return Summary(type.name, elements, nan, inf, zero, None, None, None, [], [], tail)
    histogram = _Histogram(low, high, bins)
    for raw in pieces():
        values = _numbers(type, raw[: len(raw) - len(raw) % type.itemsize])
        histogram.add(values)
    mean = float(total / finite)
    edges, counts = histogram.edges, histogram.counts
    return Summary(type.name, elements, nan, inf, zero, low, high, mean, edges, counts, tail)


def _counted(type: Type, pieces: Callable[[], Iterator[Array]], bins: int) -> Summary:  # noqa: A002
    """Of types with few values: how often each occurs says all."""
    words = np.dtype(f"<u{type.itemsize}")
    every = np.arange(1 << (8 * type.itemsize), dtype=words).view("u1")
    counts = np.zeros(1 << (8 * type.itemsize), "i8")
    tail = 0
    for raw in pieces():
        tail = len(raw) % type.itemsize
        bits = np.ascontiguousarray(raw[: len(raw) - tail]).view(words)
        counts += np.bincount(bits, minlength=len(counts))
    elements = int(counts.sum())
    nan, inf = (int(counts[test(every)].sum()) for test in (type.is_nan, type.is_inf))
    there = (counts > 0) & ~type.is_nan(every) & ~type.is_inf(every)
    counts = counts[there]
    values = _numbers(type, np.ascontiguousarray(every.reshape(-1, type.itemsize)[there]).ravel())
    if not len(values):
        return Summary(type.name, elements, nan, inf, 0, None, None, None, [], [], tail)
    low, high = values.min().item(), values.max().item()
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    total = sum((Fraction(value) * count for value, count in pairs), Fraction(0))
    mean = float(total / int(counts.sum()))
    zero = int(counts[values == 0].sum())
    histogram = _Histogram(low, high, bins)
    histogram.add(values, counts)
    edges, heights = histogram.edges, histogram.counts
    return Summary(type.name, elements, nan, inf, zero, low, high, mean, edges, heights, tail)


def _numbers(type: Type, raw: Array) -> Array:  # noqa: A002
    """The finite items: float64, or integers as they are."""
    if type.kind == "bool":
        return type.view(raw).view("u1")
    if type.kind == "int":
        return type.view(raw)
    values = type.to_float(raw)
    if type.kind == "complex":
        finite = ~(type.is_nan(raw) | type.is_inf(raw))
        values = np.minimum(values, LARGEST)
    else:
        finite = np.isfinite(values)
    return values if finite.all() else np.asarray(values[finite])


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
        if isinstance(low, int) and isinstance(high, int):
            width = -(-(high - low + 1) // bins)
            bins = -(-(high - low + 1) // width)
            self.edges: list[Number] = [*(low + i * width for i in range(bins)), high]
        else:
            parts = np.linspace(0, 1, bins + 1) if low < high else np.zeros(2)
            edges = low * (1 - parts) + high * parts  # high - low may be too large a number
            edges[-1] = high
            self.edges = edges.tolist()
        self._above = [0] * len(self.edges)  # by edge, how many are at or above it; 0 for the last

    @property
    def counts(self) -> list[int]:
        return [a - b for a, b in zip(self._above, self._above[1:], strict=False)]

    def add(self, values: Array, counts: Array | None = None) -> None:
        """counts: how often each occurs; once unless given."""
        self._above[0] += len(values) if counts is None else int(counts.sum())
        for i, edge in enumerate(self.edges[1:-1], 1):
            above = values >= values.dtype.type(edge)
            self._above[i] += int(
                np.count_nonzero(above) if counts is None else counts[above].sum()
            )
