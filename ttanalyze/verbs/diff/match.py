"""Matches calls of two processes, and through them epochs and regions.

The calls of one thread are aligned in program order. If several threads submit work, their relative
order is random, so the calls of each stream or of each thread are aligned by themselves. Calls from
the same place of the program correspond before others do, if both runs have the same call stacks.

Two epochs correspond if the same number of matched calls comes before each, in every alignment. So
runs that were recorded at other points share some epochs, and calls that only one run makes shift
nothing. A context corresponds to the same context of the other run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ttanalyze.core.align import Alignment, align
from ttanalyze.format.layout import Array, distinct
from ttanalyze.verbs.diff.sides import Calls, Regions, Side, mixed

SHARED_STACKS = 0.9  # of the calls of each side, whose call stack the other side has, too
MOST_GROUPS = 64  # streams or threads whose pairs are looked for by what they do
Pair = tuple[Array, Array]


@dataclass(frozen=True)
class MatchedCalls:
    """The calls of a context on both sides, and the pairs that correspond.

    lane: of each pair, the group of calls in which it was found. b ascends only within a lane.
    """

    a: Calls
    b: Calls
    alignment: Alignment
    lane: Array

    @property
    def lanes(self) -> int:
        return int(self.lane.max()) + 1 if len(self.lane) else 1

    def calls_before(self, side: int, cuts: Array, all_calls: bool = False) -> Array:
        """Returns a number per cut that is equal if the same calls come before it.

        side: 0 or 1. cuts: the seqs from which on calls come after. all_calls: whether calls count
        that cannot change memory.
        """
        calls = (self.a, self.b)[side]
        matched = (self.alignment.a, self.alignment.b)[side]
        counted = np.ones(len(matched), bool) if all_calls else calls.work[matched]
        seqs, lane = calls.seq[matched[counted]], self.lane[counted]
        out = np.zeros(len(cuts), "u8")
        for number in range(self.lanes):
            out = mixed(out, np.searchsorted(seqs[lane == number], cuts))
        return out


def several_threads(calls: Calls) -> bool:
    """Returns whether more than one thread submits work."""
    return len(distinct(calls.thread[calls.work])) > 1


def settled_cuts(side: Side, epochs: Array, calls: Calls) -> tuple[Array, Array]:
    """Returns the cuts of epochs if several threads submit work, and which of them are certain.

    An epoch at a wait is cut at the end of the wait, so it has work that other threads submitted
    meanwhile. Most epochs record up to which call. For the others the cut may have held up the last
    call of each thread; then the cut is certain only if that call changes no memory.
    """
    cuts, times, exact = side.cut[epochs].copy(), side.time[epochs], side.exact[epochs]
    sure = np.ones(len(epochs), bool)
    before = np.zeros(len(epochs), "i8")
    for rows in _members(calls.thread).values():
        last = np.searchsorted(np.maximum.accumulate(calls.time[rows]), times, "right") - 1
        call = rows[np.maximum(last, 0)]
        meanwhile = ~exact & (last >= 0) & (calls.seq[call] >= cuts)
        meanwhile &= calls.seq[call] != side.seq[epochs]  # itself, before which the cut is
        sure &= ~(meanwhile & calls.work[call])
        before = np.maximum(before, np.where(meanwhile, calls.seq[call].astype("i8") + 1, 0))
    return np.maximum(cuts, before.astype("u8")), sure


def match_calls(a: Calls, b: Calls) -> MatchedCalls:
    """Aligns the calls of one context: in order for one thread, else by stream or by thread,
    whichever gives more pairs.
    """
    if not (several_threads(a) or several_threads(b)):
        found = _align(a, b)
        return MatchedCalls(a, b, found, np.zeros(len(found.a), "u1"))
    ways = [_in_lanes(a, b, a.stream, b.stream), _in_lanes(a, b, a.thread, b.thread)]
    return max(ways, key=lambda way: len(way.alignment.a))


def _align(a: Calls, b: Calls) -> Alignment:
    """Aligns calls: those with equal arguments and call stacks, then with equal arguments, then of
    the same kernel. Level 0 has equal arguments.
    """
    levels = (a.same, b.same), (a.alike, b.alike)
    shared = np.isin(a.stack, b.stack[b.stack > 0]), np.isin(b.stack, a.stack[a.stack > 0])
    if not all(len(one) and one.mean() >= SHARED_STACKS for one in shared):
        return align(*levels)
    found = align((mixed(a.same, a.stack), mixed(b.same, b.stack)), *levels)
    return replace(found, level=np.maximum(found.level, 1) - 1)


def _in_lanes(a: Calls, b: Calls, group_a: Array, group_b: Array) -> MatchedCalls:
    """Aligns the calls of each group by themselves."""
    parts = []
    in_a, in_b = _members(group_a), _members(group_b)
    for one, other in _match_groups(a, b, in_a, in_b):
        of_a, of_b = in_a[one], in_b[other]
        found = _align(a.where(of_a), b.where(of_b))
        parts.append(Alignment(of_a[found.a], of_b[found.b], found.level, found.exact))
    at_a = np.concatenate([np.empty(0, "i8"), *(part.a for part in parts)])
    at_b = np.concatenate([np.empty(0, "i8"), *(part.b for part in parts)])
    level = np.concatenate([np.empty(0, "u1"), *(part.level for part in parts)])
    lane = np.repeat(np.arange(len(parts)), [len(part.a) for part in parts])
    order = np.argsort(at_a, kind="stable")
    exact = all(part.exact for part in parts)
    whole = Alignment(at_a[order], at_b[order], level[order], exact)
    return MatchedCalls(a, b, whole, lane[order])


Groups = dict[int, Array]


def _members(group: Array) -> Groups:
    """Returns the ascending indices of each group's items. Groups are in the order of their first
    items.
    """
    order = np.argsort(group, kind="stable")
    breaks = np.flatnonzero(group[order][1:] != group[order][:-1]) + 1
    parts = np.split(order, breaks) if len(order) else []
    parts.sort(key=lambda part: int(part[0]))
    return {int(group[part[0]]): part for part in parts}


def _match_groups(a: Calls, b: Calls, in_a: Groups, in_b: Groups) -> list[tuple[int, int]]:
    """Matches streams or threads that do equal work, or else similar work, and among these by their
    beginning.

    If there are very many, all are matched by their beginning.
    """
    if max(len(in_a), len(in_b)) > MOST_GROUPS:
        return list(zip(in_a, in_b, strict=False))
    same = _in_common(a.same, in_a, b.same, in_b)
    alike = _in_common(a.alike, in_a, b.alike, in_b)
    ranked = sorted(
        (-int(same[i, j]), -int(alike[i, j]), abs(i - j), i, j)
        for i, j in zip(*(at.tolist() for at in alike.nonzero()), strict=True)
    )
    names_a, names_b = list(in_a), list(in_b)
    return [(names_a[i], names_b[j]) for i, j in _best_first([(i, j) for *_, i, j in ranked])]


def _best_first(ranked: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns pairs, the best first, without those that share a side with a better one."""
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for one, other in ranked:
        if one not in pairs and other not in taken:
            pairs[one] = other
            taken.add(other)
    return sorted(pairs.items())


def _in_common(a: Array, in_a: Groups, b: Array, in_b: Groups) -> Array:
    """Returns how many items each group of a has in common with each of b."""
    numbers = np.unique(np.concatenate([a, b]), return_inverse=True)[1]
    most = int(numbers.max()) + 1 if len(numbers) else 0
    of_a, of_b = numbers[: len(a)], numbers[len(a) :]
    counts_a = [np.bincount(of_a[rows], minlength=most) for rows in in_a.values()]
    counts_b = [np.bincount(of_b[rows], minlength=most) for rows in in_b.values()]
    found = [[int(np.minimum(x, y).sum()) for y in counts_b] for x in counts_a]
    return np.array(found, "i8").reshape(len(counts_a), len(counts_b))


# ---- regions ----


@dataclass(frozen=True)
class MatchedRegions:
    """Pairs of rows of a and b, the regions of a context."""

    a: Regions
    b: Regions
    rows_a: Array
    rows_b: Array

    def alone(self, side: int) -> Array:
        """Returns the rows of a side without a counterpart."""
        regions, rows = ((self.a, self.rows_a), (self.b, self.rows_b))[side]
        return _without(np.arange(len(regions.id)), rows)


Used = Callable[[], tuple[Pair, Array]]  # ids of regions of a and of b, and how sure it is


def match_regions(
    a: Regions, b: Regions, calls: MatchedCalls | None, used: Used | None = None
) -> MatchedRegions:
    """Matches regions.

    First come regions that calls use alike. Then come regions in the order of allocation: of the
    same size and label at the same point of the program, at another point, in another order, and
    last of other sizes. If several threads allocate, matched threads come first.
    """
    rows_a, rows_b = _used_alike(a, b, used)
    parts = [(rows_a, rows_b)]
    left = _without(np.arange(len(a.id)), rows_a), _without(np.arange(len(b.id)), rows_b)
    for one, other in _match_threads(calls) if calls is not None else []:
        lane = left[0][a.thread[left[0]] == one], left[1][b.thread[left[1]] == other]
        left = _add(parts, left, lane, _match_rows(a, b, lane, calls)[0])
    same, other_sizes = _match_rows(a, b, left, calls)
    rest = _add(parts, left, left, same)
    _add(parts, rest, rest, _match_any_order(a.where(rest[0]), b.where(rest[1])))
    taken = [np.concatenate(side) for side in zip(*parts, strict=True)]
    ends = [left[i][other_sizes[i]] for i in (0, 1)]
    free = ~np.isin(ends[0], taken[0]) & ~np.isin(ends[1], taken[1])
    parts.append((ends[0][free], ends[1][free]))
    pairs = [np.concatenate(side) for side in zip(*parts, strict=True)]
    order = np.argsort(pairs[0], kind="stable")
    return MatchedRegions(a, b, pairs[0][order], pairs[1][order])


def _add(parts: list[Pair], left: Pair, rows: Pair, found: Pair) -> Pair:
    """Adds pairs among some rows, and returns the remaining rows."""
    parts.append((rows[0][found[0]], rows[1][found[1]]))
    return _without(left[0], parts[-1][0]), _without(left[1], parts[-1][1])


def _without(rows: Array, taken: Array) -> Array:
    """Returns unique rows except those taken, ascending. It is faster than numpy for millions."""
    return np.sort(rows[~np.isin(rows, taken)])


def _used_alike(a: Regions, b: Regions, used: Used | None) -> Pair:
    """Returns rows of the regions of the same size and label that most calls use alike."""
    nothing = np.empty(0, "i8")
    if used is None:
        return nothing, nothing
    (ids_a, ids_b), counts = used()
    rows_a, rows_b = _rows_of(a, ids_a), _rows_of(b, ids_b)
    keys_a, keys_b = _both([(r.kind, r.label, r.size) for r in (a, b)])
    good = (rows_a >= 0) & (rows_b >= 0)
    good[good] = keys_a[rows_a[good]] == keys_b[rows_b[good]]
    rows_a, rows_b, counts = rows_a[good], rows_b[good], counts[good]
    order = np.lexsort((np.abs(rows_a - rows_b), -counts))
    pairs = _best_first(list(zip(rows_a[order].tolist(), rows_b[order].tolist(), strict=True)))
    return (np.array([x for x, _ in pairs], "i8"), np.array([y for _, y in pairs], "i8"))


def _rows_of(regions: Regions, ids: Array) -> Array:
    """Returns rows of regions by id, -1 if there is none."""
    if not len(regions.id):
        return np.full(len(ids), -1)
    order = np.argsort(regions.id, kind="stable")
    at = np.minimum(np.searchsorted(regions.id[order], ids), len(order) - 1)
    return np.where(regions.id[order][at] == ids, order[at], -1)


def _match_any_order(a: Regions, b: Regions, *more: Array) -> Pair:
    """Matches the n-th of each size and label with the n-th. more: further columns of a and b that
    must be equal.
    """
    keys = _both([(r.label, r.size, *more[i : i + 1]) for i, r in enumerate((a, b))])
    numbered = _both([(key, _ordinal(key)) for key in keys])
    _, one, other = np.intersect1d(*numbered, return_indices=True)
    return one, other


def _ordinal(keys: Array) -> Array:
    """Returns for each key the number of equal ones before it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begins = np.append(True, ordered[1:] != ordered[:-1])[: len(keys)]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))
    out = np.empty(len(keys), "i8")
    out[order] = np.arange(len(keys)) - first
    return out


def by_contents(found: MatchedRegions, chosen: Array, histories: Pair) -> MatchedRegions | None:
    """Matches some pairs again, so that regions with equal contents correspond. None if there are
    none.

    chosen: the pairs by number. histories: a number for each region of a and b in these pairs,
    equal for equal contents.
    """
    rows = found.rows_a[chosen], found.rows_b[chosen]
    parts: list[Pair] = []
    sides = found.a.where(rows[0]), found.b.where(rows[1])
    rest = _add(parts, rows, rows, _match_any_order(*sides, *histories))
    if not len(parts[0][0]):
        return None
    _add(parts, rest, rest, _match_any_order(found.a.where(rest[0]), found.b.where(rest[1])))
    kept = _without(np.arange(len(found.rows_a)), chosen)
    parts.append((found.rows_a[kept], found.rows_b[kept]))
    pairs = [np.concatenate(side) for side in zip(*parts, strict=True)]
    order = np.argsort(pairs[0], kind="stable")
    return MatchedRegions(found.a, found.b, pairs[0][order], pairs[1][order])


def _match_threads(calls: MatchedCalls) -> list[tuple[int, int]]:
    """Returns pairs of threads with the most corresponding calls, if there are several threads."""
    threads = calls.a.thread[calls.alignment.a], calls.b.thread[calls.alignment.b]
    if all(len(distinct(them)) <= 1 for them in threads):
        return []
    both = np.stack(threads, axis=1).astype("i8")
    pairs, counts = np.unique(both, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return _best_first([(one, other) for one, other in pairs[order].tolist()])


def _match_rows(
    a: Regions, b: Regions, rows: Pair, calls: MatchedCalls | None
) -> tuple[Pair, Pair]:
    """Matches these rows in order: those of the same size, and those of others."""
    sides = a.where(rows[0]), b.where(rows[1])
    before = [
        np.zeros(len(r.id), "u8") if calls is None else calls.calls_before(i, r.seq)
        for i, r in enumerate(sides)
    ]
    by_size = [(r.label, r.size) for r in sides]
    found = align(
        _both([(p, r.kind, *s) for p, r, s in zip(before, sides, by_size, strict=True)]),
        _both([(p, *s) for p, s in zip(before, by_size, strict=True)]),
        _both(by_size),
        _both([(np.where(r.label > 0, 0, p), r.label) for p, r in zip(before, sides, strict=True)]),
    )
    same = sides[0].size[found.a] == sides[1].size[found.b]
    return (found.a[same], found.b[same]), (found.a[~same], found.b[~same])


def _both(columns: Sequence[tuple[Array, ...]]) -> Pair:
    """Returns the columns of a and b as keys with equal numbers for equal rows."""
    return mixed(*columns[0]), mixed(*columns[1])


# ---- epochs ----


def match_epochs(
    a: Side,
    b: Side,
    epochs_a: Array,
    epochs_b: Array,
    calls: MatchedCalls | None,
    histories: Callable[[], Sequence[Pair]],
) -> Pair:
    """Returns the pairs of these epochs, by number, at the same point of the program. Both ascend.

    histories: returns two numbers per epoch for each side if no calls are known: equal for equal
    memory, and equal for equal changes.
    """
    sides = ((a, epochs_a), (b, epochs_b))
    causes = [(side.trigger[them], side.label[them]) for side, them in sides]
    if calls is None:
        whole = _both(causes)
        if np.array_equal(whole[0], whole[1]):
            return epochs_a, epochs_b
        states, changes = zip(*histories(), strict=True)
        found = align(
            (states[0], states[1]),
            _both([(*c, d) for c, d in zip(causes, changes, strict=True)]),
            whole,
        )
        return epochs_a[found.a], epochs_b[found.b]
    cuts = [side.cut[them] for side, them in sides]
    before = [
        # Inside a call, epochs are at the points that their labels name.
        mixed(calls.calls_before(i, cut), np.where(side.inside[them], label + 1, 0))
        for i, (cut, (side, them), (_, label)) in enumerate(zip(cuts, sides, causes, strict=True))
    ]
    waits = [calls.calls_before(i, cut, all_calls=True) for i, cut in enumerate(cuts)]
    found = align(
        _both([(p, w, *c) for p, w, c in zip(before, waits, causes, strict=True)]),
        _both([(p, *c) for p, c in zip(before, causes, strict=True)]),
        (before[0], before[1]),
    )
    return epochs_a[found.a], epochs_b[found.b]
