"""What corresponds in two processes: calls, and through them epochs and regions.

Calls of one thread are aligned in the order in which the program made them; where several threads
submit work, their order among each other is chance, and the calls of each stream are aligned by
themselves. Two epochs are at the same point if as many of the calls that correspond come before
each, in every stream: so runs that were recorded at other points share some, and calls that only
one run makes shift nothing. A context of one run is compared with the same one of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ttanalyze.align import Alignment, align
from ttanalyze.diff.sides import Calls, Regions, Side, mixed
from ttanalyze.model.layout import Array, distinct

MOST_STREAMS = 64  # whose pairs are looked for by what they do
Pair = tuple[Array, Array]


@dataclass(frozen=True)
class MatchedCalls:
    """a, b: a context's calls of either side, or none where a side's are not known. alignment:
    which correspond; b does not ascend where streams were aligned by themselves.
    """

    a: Calls
    b: Calls
    alignment: Alignment
    lanes: int

    def points(self, side: int, cuts: Array, all_calls: bool = False) -> Array:
        """For each cut, a number that is the same where the same calls come before it.

        side: 0 or 1. cuts: seqs from which on calls come after. all_calls: not only those that
        may change memory.
        """
        calls = (self.a, self.b)[side]
        own = (self.alignment.a, self.alignment.b)[side]
        counted = own if all_calls else own[calls.work[own]]
        lanes = _lane_of(self.alignment, self.a, self.lanes)
        lanes = lanes if all_calls else lanes[calls.work[own]]
        out = np.zeros(len(cuts), "u8")
        for lane in range(self.lanes):
            before = np.searchsorted(calls.seq[counted[lanes == lane]], cuts)
            out = mixed(out, before)
        return out


def _lane_of(alignment: Alignment, a: Calls, lanes: int) -> Array:
    if lanes == 1:
        return np.zeros(len(alignment.a), "i8")
    return np.unique(a.stream[alignment.a], return_inverse=True)[1]


def match_calls(a: Calls, b: Calls) -> MatchedCalls:
    """Aligns the calls of one context."""
    threads = [len(distinct(calls.thread[calls.work])) for calls in (a, b)]
    if max(threads) <= 1:
        return MatchedCalls(a, b, align((a.same, b.same), (a.alike, b.alike)), 1)
    parts = []
    for stream, other in _match_streams(a, b):
        of_a, of_b = np.flatnonzero(a.stream == stream), np.flatnonzero(b.stream == other)
        found = align((a.same[of_a], b.same[of_b]), (a.alike[of_a], b.alike[of_b]))
        parts.append(Alignment(of_a[found.a], of_b[found.b], found.level, found.exact))
    at_a = np.concatenate([np.empty(0, "i8"), *(p.a for p in parts)])
    order = np.argsort(at_a, kind="stable")
    whole = Alignment(
        at_a[order],
        np.concatenate([np.empty(0, "i8"), *(p.b for p in parts)])[order],
        np.concatenate([np.empty(0, "u1"), *(p.level for p in parts)])[order],
        all(p.exact for p in parts),
    )
    return MatchedCalls(a, b, whole, len(distinct(a.stream[whole.a])))


def _match_streams(a: Calls, b: Calls) -> list[tuple[int, int]]:
    """Streams that do alike things, of equally good ones those of the same number."""
    streams = distinct(a.stream), distinct(b.stream)
    if np.array_equal(streams[0], streams[1]) or max(map(len, streams)) > MOST_STREAMS:
        common = np.intersect1d(streams[0], streams[1]).tolist()
        return [(stream, stream) for stream in common]
    kinds = np.unique(np.concatenate([a.alike, b.alike]), return_inverse=True)[1]
    of_a, of_b = kinds[: len(a.seq)], kinds[len(a.seq) :]
    most = int(kinds.max()) + 1 if len(kinds) else 0
    counts_a = [np.bincount(of_a[a.stream == s], minlength=most) for s in streams[0]]
    counts_b = [np.bincount(of_b[b.stream == s], minlength=most) for s in streams[1]]
    ranked = sorted(
        (-int(np.minimum(x, y).sum()), abs(int(s) - int(t)), int(s), int(t))
        for x, s in zip(counts_a, streams[0].tolist(), strict=True)
        for y, t in zip(counts_b, streams[1].tolist(), strict=True)
    )
    pairs: dict[int, int] = {}
    for alike, _, s, t in ranked:
        if alike and s not in pairs and t not in pairs.values():
            pairs[s] = t
    return sorted(pairs.items())


# ---- regions ----


@dataclass(frozen=True)
class MatchedRegions:
    """Rows of a and b that correspond. a, b: the regions of a context."""

    a: Regions
    b: Regions
    rows_a: Array
    rows_b: Array

    def alone(self, side: int) -> Array:
        """The rows of a side that nothing corresponds to."""
        regions, rows = ((self.a, self.rows_a), (self.b, self.rows_b))[side]
        return np.setdiff1d(np.arange(len(regions.id)), rows)


def match_regions(a: Regions, b: Regions, calls: MatchedCalls | None) -> MatchedRegions:
    """Matches regions in the order of allocation: of the same size and label at the same point of
    the program, at another point, and then of other sizes.
    """
    sides = (a, b)
    points = [
        np.zeros(len(r.id), "u8") if calls is None else calls.points(i, r.seq)
        for i, r in enumerate(sides)
    ]
    by_size = [(r.label, r.size) for r in sides]
    found = align(
        _both([(p, r.kind, *s) for p, r, s in zip(points, sides, by_size, strict=True)]),
        _both([(p, *s) for p, s in zip(points, by_size, strict=True)]),
        _both(by_size),
        _both([(np.where(r.label > 0, 0, p), r.label) for p, r in zip(points, sides, strict=True)]),
    )
    return MatchedRegions(a, b, found.a, found.b)


def _both(columns: Sequence[tuple[Array, ...]]) -> Pair:
    """The columns of a and of b, as keys that are equal where they are."""
    return mixed(*columns[0]), mixed(*columns[1])


# ---- epochs ----


def match_epochs(
    a: Side,
    b: Side,
    epochs_a: Array,
    epochs_b: Array,
    calls: MatchedCalls | None,
    changes: Callable[[], Pair],
) -> Pair:
    """Which of these epochs, by number, are at the same point of the program. Both ascend.

    changes: gives a number for each epoch that is the same where the same changed in it, to go by
    where no calls are known.
    """
    sides = ((a, epochs_a), (b, epochs_b))
    causes = [(side.trigger[them], side.label[them]) for side, them in sides]
    if calls is None:
        whole = _both(causes)
        if np.array_equal(whole[0], whole[1]):
            return epochs_a, epochs_b
        found = align(_both([(*c, d) for c, d in zip(causes, changes(), strict=True)]), whole)
        return epochs_a[found.a], epochs_b[found.b]
    cuts = [side.cut[them] for side, them in sides]
    points = [calls.points(i, cut) for i, cut in enumerate(cuts)]
    waits = [calls.points(i, cut, all_calls=True) for i, cut in enumerate(cuts)]
    found = align(
        _both([(p, w, *c) for p, w, c in zip(points, waits, causes, strict=True)]),
        _both([(p, *c) for p, c in zip(points, causes, strict=True)]),
        (points[0], points[1]),
    )
    return epochs_a[found.a], epochs_b[found.b]
