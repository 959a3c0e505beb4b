"""Aligns two sequences, as a text diff aligns lines.

Sequences are integer arrays; equal items have equal integers. A common beginning and end
corresponds. Between them the alignment is exact if few items differ (Myers' O(ND) algorithm, up to
MOST_EDITS) or if the gap is short (dynamic programming, up to CELLS pairs).

A longer gap is first divided at stretches of items that occur equally often on both sides. What
remains is aligned in windows of WINDOW items, each exactly. So a million items take seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from ttanalyze.format.layout import Array

MOST_EDITS = 32
CELLS = 1 << 24
SMALL = 1 << 16  # so many take less time than looking for few edits does
WINDOW = 4096
KEPT = 3072  # of it: what comes behind might be better aligned with what follows
STRETCHES = (64, 8, 1)  # items that are looked for as anchors, one length after the other
HARD = 8  # windows after one in which there are many edits
STEPS = 8  # items by which many gaps are compared at once
FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Alignment:
    """Pairs of items that correspond.

    Attributes:
        a, b: The indices of the items in each sequence, int64, ascending.
        level: The level by which the items are equal, from 0.
        exact: Whether no alignment has more pairs of level 0.
    """

    a: Array
    b: Array
    level: Array
    exact: bool


@dataclass(frozen=True)
class _Gaps:
    """Gaps in order: boxes a[begin_a:end_a] by b[begin_b:end_b] without pairs so far."""

    begin_a: Array
    end_a: Array
    begin_b: Array
    end_b: Array

    def where(self, chosen: Array) -> _Gaps:
        columns = (self.begin_a, self.end_a, self.begin_b, self.end_b)
        return _Gaps(*(column[chosen] for column in columns))

    def moved(self, by_a: int, by_b: int) -> _Gaps:
        return _Gaps(self.begin_a + by_a, self.end_a + by_a, self.begin_b + by_b, self.end_b + by_b)

    def wide(self) -> _Gaps:
        """Returns the gaps with items on both sides."""
        return self.where((self.begin_a < self.end_a) & (self.begin_b < self.end_b))


Runs = list[tuple[int, int, int]]  # (a, b, length): a[a:a+length] corresponds to b[b:b+length]


def align(*levels: tuple[Array, Array]) -> Alignment:
    """Aligns two sequences.

    Each level has two arrays with a number for each item. Items with equal numbers may correspond.
    Items that are unequal by the first level may be equal by the next, within the gaps that are
    left.

    Args:
        levels: Pairs of integer arrays. Each level has arrays of the same two lengths.

    Returns:
        The pairs of items, one to one and in order.

    Source:
        E. W. Myers, An O(ND) Difference Algorithm and Its Variations, 1986.

    Example:
        >>> import numpy as np
        >>> found = tt.align.align((np.array([1, 2, 3]), np.array([1, 3])))
        >>> found.a.tolist(), found.b.tolist()
        ([0, 2], [0, 1])
    """
    count_a, count_b = len(levels[0][0]), len(levels[0][1])
    pairs = [np.empty((0, 2), "i8")]
    at_level = [np.empty(0, "u1")]
    exact = True
    gaps = _Gaps(*(np.array([end]) for end in (0, count_a, 0, count_b)))
    for number, (a, b) in enumerate(levels):
        found, sure = _fill(np.asarray(a), np.asarray(b), gaps.wide())
        exact &= sure or number > 0
        pairs.append(found)
        at_level.append(np.full(len(found), number, "u1"))
        done = np.concatenate(pairs)
        done = done[np.argsort(done[:, 0], kind="stable")]
        gaps = _between(done, count_a, count_b)
    both = np.concatenate(pairs)
    order = np.argsort(both[:, 0], kind="stable")
    return Alignment(both[order, 0], both[order, 1], np.concatenate(at_level)[order], exact)


def _between(pairs: Array, count_a: int, count_b: int) -> _Gaps:
    """Returns the gaps before, between and behind ascending pairs."""
    a, b = pairs[:, 0], pairs[:, 1]
    return _Gaps(
        np.append(0, a + 1), np.append(a, count_a), np.append(0, b + 1), np.append(b, count_b)
    )


def _fill(a: Array, b: Array, gaps: _Gaps) -> tuple[Array, bool]:
    """Returns the pairs within gaps, ascending, and whether no alignment has more."""
    aligner = _Aligner(a, b)
    aligner.boxes(gaps, 0)
    pairs = np.concatenate([_expanded(np.array(aligner.runs, "i8").reshape(-1, 3)), *aligner.pairs])
    pairs = pairs[a[pairs[:, 0]] == b[pairs[:, 1]]]  # anchors were only compared by a hash
    return pairs[np.argsort(pairs[:, 0], kind="stable")], aligner.exact


def _strip_many(a: Array, b: Array, gaps: _Gaps) -> tuple[_Gaps, Array]:
    """Pairs equal items at the beginning and the end of gaps, up to STEPS each, and returns what is
    left.
    """
    found = []
    begin_a, end_a, begin_b, end_b = (
        column.copy() for column in (gaps.begin_a, gaps.end_a, gaps.begin_b, gaps.end_b)
    )
    for from_end in (False, True):
        open_ = np.arange(len(begin_a))
        for _ in range(STEPS):
            open_ = open_[(begin_a[open_] < end_a[open_]) & (begin_b[open_] < end_b[open_])]
            at_a = end_a[open_] - 1 if from_end else begin_a[open_]
            at_b = end_b[open_] - 1 if from_end else begin_b[open_]
            same = a[at_a] == b[at_b]
            open_ = open_[same]
            if not len(open_):
                break
            found.append(np.stack([at_a[same], at_b[same]], axis=1))
            if from_end:
                end_a[open_] -= 1
                end_b[open_] -= 1
            else:
                begin_a[open_] += 1
                begin_b[open_] += 1
    pairs = np.concatenate(found) if found else np.empty((0, 2), "i8")
    return _Gaps(begin_a, end_a, begin_b, end_b).wide(), pairs


def _expanded(runs: Array) -> Array:
    """Returns the pairs of runs, one row each."""
    begin_a, begin_b, length = runs.T
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    return np.stack([np.repeat(begin, length) + within for begin in (begin_a, begin_b)], axis=1)


class _Aligner:
    """Collects the pairs of two sequences, as runs and as pairs.

    exact: whether every box was aligned exactly.
    """

    def __init__(self, a: Array, b: Array) -> None:
        self.a = a
        self.b = b
        self.runs: Runs = []
        self.pairs: list[Array] = []
        self.exact = True

    def boxes(self, gaps: _Gaps, stretch: int) -> None:
        """Aligns each of the gaps. None is empty on a side."""
        if len(gaps.begin_a) > 1:
            gaps, easy = _strip_many(self.a, self.b, gaps)
            self.pairs.append(easy)
        columns = np.stack([gaps.begin_a, gaps.end_a, gaps.begin_b, gaps.end_b], axis=1)
        for begin_a, end_a, begin_b, end_b in columns.tolist():
            self.box(begin_a, end_a, begin_b, end_b, stretch)

    def box(self, begin_a: int, end_a: int, begin_b: int, end_b: int, stretch: int) -> None:
        """Aligns a[begin_a:end_a] and b[begin_b:end_b]. stretch: the first of STRETCHES to try."""
        a, b = self.a, self.b
        same = _common(a[begin_a:end_a], b[begin_b:end_b])
        self._add(begin_a, begin_b, same)
        begin_a, begin_b = begin_a + same, begin_b + same
        same = _common(a[begin_a:end_a][::-1], b[begin_b:end_b][::-1])
        end_a, end_b = end_a - same, end_b - same
        self._add(end_a, end_b, same)
        length_a, length_b = end_a - begin_a, end_b - begin_b
        if not length_a or not length_b:
            return
        in_a, in_b = a[begin_a:end_a], b[begin_b:end_b]
        cells = length_a * length_b
        runs = _few_edits(in_a, in_b) if cells > SMALL else None
        if runs is None and cells <= CELLS:
            runs = _longest(in_a, in_b)
        if runs is not None:
            self.runs += [(begin_a + i, begin_b + j, n) for i, j, n in runs]
            return
        self.exact = False
        for number in range(stretch, len(STRETCHES)):
            anchors = _anchors(in_a, in_b, STRETCHES[number])
            if len(anchors):
                self._divide(anchors, (begin_a, end_a, begin_b, end_b), number + 1)
                return
        self._window(begin_a, end_a, begin_b, end_b)

    def _add(self, at_a: int, at_b: int, length: int) -> None:
        if length:
            self.runs.append((at_a, at_b, length))

    def _divide(self, anchors: Array, corners: tuple[int, int, int, int], stretch: int) -> None:
        """Takes anchors, pairs relative to the corner of a box, and aligns the gaps between
        them.
        """
        begin_a, end_a, begin_b, end_b = corners
        gaps = _between(anchors, end_a - begin_a, end_b - begin_b).moved(begin_a, begin_b)
        self.pairs.append(anchors + np.array([begin_a, begin_b]))
        self.boxes(gaps.wide(), stretch)

    def _window(self, at_a: int, end_a: int, at_b: int, end_b: int) -> None:
        """Aligns WINDOW items at a time and keeps the first KEPT of them."""
        hard = 0  # windows to go without hope that few edits will do
        while at_a < end_a and at_b < end_b:
            in_a = self.a[at_a : min(end_a, at_a + WINDOW)]
            in_b = self.b[at_b : min(end_b, at_b + WINDOW)]
            last = at_a + len(in_a) == end_a and at_b + len(in_b) == end_b
            most = WINDOW if last else KEPT
            next_a = next_b = most
            runs = None if hard else _few_edits(in_a, in_b)
            if runs is None:
                hard = hard - 1 if hard else HARD
                runs = _longest(in_a, in_b)
            for i, j, length in runs:
                length = min(length, most - i, most - j)
                if length > 0:
                    self._add(at_a + i, at_b + j, length)
                    next_a, next_b = i + length, j + length
            at_a, at_b = at_a + next_a, at_b + next_b


def _common(a: Array, b: Array) -> int:
    """Returns the length of the common beginning."""
    count = min(len(a), len(b))
    at, piece = 0, 64
    while at < count:
        end = min(count, at + piece)
        differs = a[at:end] != b[at:end]
        if differs.any():
            return at + int(differs.argmax())
        at, piece = end, piece * 4
    return count


def _few_edits(a: Array, b: Array) -> Runs | None:
    """Returns an alignment with the most pairs, if at most MOST_EDITS items have no counterpart.

    After E. W. Myers, An O(ND) Difference Algorithm and Its Variations, 1986: for each number of
    edits, the furthest point on each diagonal.
    """
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(MOST_EDITS + 1):
        trace.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            x = _step(furthest, diagonal, edits)
            y = x - diagonal
            if x <= len(a) and 0 <= y <= len(b):
                x += _common(a[x:], b[y:])
            furthest[diagonal] = x
            if x >= len(a) and x - diagonal >= len(b):
                return _back(trace, len(a), len(b))
    return None


def _step(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Returns where a diagonal is entered with one more edit: from above (b alone) or from the
    left.
    """
    if diagonal == -edits or (
        diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1]
    ):
        return furthest[diagonal + 1]
    return furthest[diagonal - 1] + 1


def _back(trace: list[dict[int, int]], x: int, y: int) -> Runs:
    """Returns the path to (x, y) from the furthest points before each edit."""
    runs: Runs = []
    for edits in range(len(trace) - 1, -1, -1):
        diagonal = x - y
        entered = _step(trace[edits], diagonal, edits) if edits else 0
        if x > entered:
            runs.append((entered, entered - diagonal, x - entered))
        x, y = entered, entered - diagonal
        if edits:
            down = diagonal == -edits or (
                diagonal != edits and trace[edits][diagonal - 1] < trace[edits][diagonal + 1]
            )
            x, y = (x, y - 1) if down else (x - 1, y)
    return runs[::-1]


def _longest(a: Array, b: Array) -> Runs:
    """Returns a longest common subsequence.

    After M. Crochemore and others, A fast and practical bit-vector algorithm for the longest common
    subsequence problem, 2001. A row of the table of lengths is a Python integer; a bit is 0 where
    the length grows from one column to the next.
    """
    if len(a) > len(b):
        return [(i, j, length) for j, i, length in _longest(b, a)]
    items = a.tolist()
    places = _positions(b, items)
    whole = (1 << len(b)) - 1
    row = whole
    rows = [row]
    for item in items:
        met = row & places.get(item, 0)
        row = ((row + met) | (row - met)) & whole
        rows.append(row)
    runs: Runs = []
    i, j = len(items), len(b)
    while i > 0:
        grows = ~rows[i] & ((1 << j) - 1)
        if not grows:
            break
        j = grows.bit_length()
        i -= 1
        # A length grows from one row to the next at one column less or not at all.
        if rows[i] >> (j - 1) & 1:
            j -= 1
            if runs and runs[-1][:2] == (i + 1, j + 1):
                runs[-1] = (i, j, runs[-1][2] + 1)
            else:
                runs.append((i, j, 1))
    return runs[::-1]


def _positions(items: Array, wanted: list[int]) -> dict[int, int]:
    """Returns the positions of each wanted item as the bits of an integer."""
    out: dict[int, int] = {}
    if len(items) > WINDOW:
        for item in set(wanted):
            bits = np.packbits(items == item, bitorder="little")
            out[item] = int.from_bytes(bits.tobytes(), "little")
        return out
    for i, item in enumerate(items.tolist()):
        out[item] = out.get(item, 0) | 1 << i
    return out


def _anchors(a: Array, b: Array, length: int) -> Array:
    """Returns the pairs of stretches of `length` items that both sequences have once, ascending.

    If most common stretches occur equally often on both sides, these count too: the k-th
    corresponds to the k-th. Of stretches that cross each other a largest set without crossings is
    kept.
    """
    if min(len(a), len(b)) < length:
        return np.empty((0, 2), "i8")
    order_a, counts_a, values_a = _ordered(_stretches(a, length))
    order_b, counts_b, values_b = _ordered(_stretches(b, length))
    _, in_a, in_b = np.intersect1d(values_a, values_b, True, return_indices=True)
    equal = counts_a[in_a] == counts_b[in_b]
    if equal.sum() < len(equal) / 2:
        equal &= counts_a[in_a] == 1
    good_a, good_b = np.zeros(len(values_a), bool), np.zeros(len(values_b), bool)
    good_a[in_a[equal]] = good_b[in_b[equal]] = True
    at_a, at_b = order_a[np.repeat(good_a, counts_a)], order_b[np.repeat(good_b, counts_b)]
    order = np.argsort(at_a, kind="stable")
    at_a, at_b = at_a[order], at_b[order]
    if (at_b[1:] <= at_b[:-1]).any():
        kept = _ascending(at_b.tolist())
        at_a, at_b = at_a[kept], at_b[kept]
    if not len(at_a):
        return np.empty((0, 2), "i8")
    breaks = np.flatnonzero((np.diff(at_a) != 1) | (np.diff(at_b) != 1)) + 1
    starts = np.append(0, breaks)
    begin_a, begin_b = at_a[starts], at_b[starts]
    lengths = np.append(breaks, len(at_a)) - starts + (length - 1)
    # Stretches that follow each other on different diagonals may overlap.
    cut = np.zeros(len(starts), "i8")
    for begin in (begin_a, begin_b):
        ends = np.maximum.accumulate(begin + lengths)
        cut[1:] = np.maximum(cut[1:], ends[:-1] - begin[1:])
    kept = cut < lengths
    runs = np.stack([begin_a + cut, begin_b + cut, lengths - cut], axis=1)
    return _expanded(runs[kept])


def _stretches(items: Array, length: int) -> Array:
    """Returns a hash of every `length` consecutive items. length: a power of two."""
    with np.errstate(over="ignore"):
        out: Array = (items.astype("u8") ^ FACTOR) * FACTOR
        out ^= out >> np.uint64(29)
        done = 1
        while done < length:
            out = (out[:-done] * FACTOR + out[done:]) * FACTOR
            out ^= out >> np.uint64(29)
            done *= 2
    return out


def _ordered(values: Array) -> tuple[Array, Array, Array]:
    """Returns the stable sorting order, the number of each value, and the values, ascending."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.append(True, ordered[1:] != ordered[:-1])
    starts = np.flatnonzero(first)
    return order, np.diff(np.append(starts, len(values))), ordered[starts]


def _ascending(values: list[int]) -> Array:
    """Returns the indices of a longest ascending subsequence."""
    ends: list[int] = []  # the smallest last value of those of each length
    at: list[int] = []  # and where it is
    before = []
    for i, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(at[length - 1] if length else -1)
        ends[length : length + 1] = [value]
        at[length : length + 1] = [i]
    out = []
    i = at[-1]
    while i >= 0:
        out.append(i)
        i = before[i]
    return np.array(out[::-1])
