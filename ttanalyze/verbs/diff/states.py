"""Compares the digests of regions in the common epochs of two runs, as a stream.

The state of a region in an epoch is its last digest up to this epoch. Only the state of each region
stays in memory; digests are read in batches. A region that an epoch of one side left out is
compared in the next common epoch that both read. Pairs whose records are the same on both sides are
found first, and need no more: see differing.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ttanalyze.core.digests import DigestHistory
from ttanalyze.format.layout import Array, distinct
from ttanalyze.format.unread import EPOCH_BITS, EPOCH_MASK, Unread, keys_of
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.diff.differing import find_differing
from ttanalyze.verbs.diff.sides import Side

BATCH = 1 << 20  # digests of a side that are compared at once
MOST = 1 << 18  # stretches that are kept
Judge = Callable[[int, int], bool]  # (pair, position): whether contents count as the same


@dataclass(frozen=True)
class Common:
    """What is compared.

    epochs: the common ones of each side, ascending; a position is an index into them. regions: ids,
    one row per pair. born, died: the positions [born, died) in which both sides of the pair live.
    """

    a: Side
    b: Side
    epochs_a: Array
    epochs_b: Array
    regions_a: Array
    regions_b: Array
    born: Array
    died: Array


@dataclass(frozen=True)
class Stretches:
    """Stretches of positions over which a pair of regions differs, by begin.

    pair, first, last: the pair, its first and its last position. since: whether it was equal at the
    position before. digest_a, digest_b: at the first position. compared: the number of compared
    states, that is, pairs at positions. differing: those that differ. tolerated: those that are
    equal within the tolerance. unknown: the states that only one side has. unread: those that an
    epoch left out. total: the number of stretches, of which the first MOST are listed. positions:
    the number of processed positions.
    """

    pair: Array
    first: Array
    last: Array
    since: Array
    digest_a: Array
    digest_b: Array
    compared: int
    differing: int
    tolerated: int
    unknown: int
    unread: int
    total: int
    positions: int


def compare_states(
    common: Common, judge: Judge | None = None, stop: bool = False, progress: Progress = None
) -> Stretches:
    """Compares all pairs at all positions.

    judge: returns whether contents with different digests count as equal. stop: at the first
    difference. progress: called with the finished and the total number of positions.
    """
    if judge is None:
        return _by_differing(common, progress)
    return _Comparison(common, judge, stop).run(progress)


def _by_differing(common: Common, progress: Progress) -> Stretches:
    """Compares only pairs whose records differ, and counts the states of the others."""
    sides, epochs = (common.a, common.b), (common.epochs_a, common.epochs_b)
    found = None
    if not any(len(side.unread.begin) for side in sides):
        found = find_differing(sides, epochs, (common.regions_a, common.regions_b), progress)
    if found is None:
        return _Comparison(common, None, False).run(progress)
    since = np.maximum(common.born, found.listed)
    same = np.maximum(np.minimum(common.died, len(epochs[0])) - since, 0)[~found.differs]
    which = np.flatnonzero(found.differs)
    names = "regions_a", "regions_b", "born", "died"
    left = replace(common, **{name: getattr(common, name)[which] for name in names})
    comparison = _Comparison(left, None, False)
    out = comparison.run(progress) if len(which) else comparison.result(len(epochs[0]))
    return replace(out, pair=which[out.pair], compared=out.compared + int(same.sum()))


class _Side:
    """The digests of one side by pair and position."""

    def __init__(self, side: Side, epochs: Array, regions: Array) -> None:
        self.side = side
        self.epochs = epochs
        self.order = np.argsort(regions, kind="stable")
        self.ids = regions[self.order]
        self.ends = side.digest_end[epochs].astype("i8")
        self.known = np.zeros(len(regions), bool)
        self.state = np.zeros(len(regions), "u8")

    def fits(self, begin: int) -> int:
        """Returns the last position of a batch of digests that begins at `begin`."""
        before = int(self.ends[begin - 1]) if begin else 0
        return int(np.searchsorted(self.ends, before + BATCH, "right"))

    @functools.cached_property
    def unread(self) -> Unread:
        """The pairs that positions left out."""
        begin, end = self.side.unread.begin, self.side.unread.end
        pair, ours = self._pairs((begin >> EPOCH_BITS).astype("u4"))
        first, last = (
            np.searchsorted(self.epochs, keys[ours] & EPOCH_MASK) for keys in (begin, end)
        )
        some = first < last
        keys = keys_of(pair[some], first[some])
        order = np.argsort(keys)
        return Unread(keys[order], keys_of(pair[some], last[some])[order])

    def history(self, begin: int, end: int) -> DigestHistory:
        """Returns the history of positions begin to end - 1, with the earlier state at position
        begin.

        Earlier positions must be requested first.
        """
        first = int(self.epochs[begin - 1]) + 1 if begin else 0
        region, epoch, digest = self.side.digests(first, int(self.epochs[end - 1]) + 1, self.ids)
        pair, ours = self._pairs(region)
        position = begin + np.searchsorted(self.epochs[begin:end], epoch[ours])
        before = np.flatnonzero(self.known)
        keys = np.concatenate(
            [keys_of(before, np.full(len(before), begin)), keys_of(pair, position)]
        )
        values = np.concatenate([self.state[before], digest[ours]])
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        newest = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
        keys, values = keys[newest], values[newest]
        last = np.append(keys[1:] >> EPOCH_BITS != keys[:-1] >> EPOCH_BITS, True)[: len(keys)]
        now = (keys[last] >> EPOCH_BITS).astype("i8")
        self.state[now], self.known[now] = values[last], True
        return DigestHistory(keys, values, np.zeros(len(keys), bool))

    def _pairs(self, region: Array) -> tuple[Array, Array]:
        """Returns the pair of each record that has one, and the indices of these records."""
        if not len(self.ids):
            return np.empty(0, "i8"), np.empty(0, "i8")
        at = np.minimum(np.searchsorted(self.ids, region), len(self.ids) - 1)
        ours = np.flatnonzero(self.ids[at] == region)
        return self.order[at[ours]], ours


class _Comparison:
    """The state of a comparison: each pair at the last position, and the stretches."""

    def __init__(self, common: Common, judge: Judge | None, stop: bool) -> None:
        self.common = common
        self.judge = judge
        self.stop = stop
        self.a = _Side(common.a, common.epochs_a, common.regions_a)
        self.b = _Side(common.b, common.epochs_b, common.regions_b)
        self.left_out = self.a.unread.joined(self.b.unread)
        self.compared = self.differing = self.tolerated = self.unknown = self.total = 0
        self.unread = 0
        self.rows: Array = np.empty((0, 5), "u8")  # pair, first, since, digest_a, digest_b
        self.last: Array = np.empty(0, "i8")
        pairs = len(common.born)
        # Of each pair at its last position: its stretch if that is listed, and what it was.
        self.row_of = np.full(pairs, -1, "i8")
        self.differed = np.zeros(pairs, bool)
        self.was_same = np.zeros(pairs, bool)

    def run(self, progress: Progress) -> Stretches:
        positions = len(self.common.epochs_a)
        begin = 0
        while begin < positions and not (self.stop and self.total):
            end = max(begin + 1, min(self.a.fits(begin), self.b.fits(begin), positions))
            begin = self._batch(begin, end)
            tell(progress, begin, positions)
        return self.result(begin)

    def result(self, positions: int) -> Stretches:
        """Returns what was found up to a position."""
        order = np.lexsort((self.rows[:, 0], self.rows[:, 1]))
        rows = self.rows[order]
        return Stretches(
            pair=rows[:, 0].astype("i8"),
            first=rows[:, 1].astype("i8"),
            last=self.last[order],
            since=rows[:, 2].astype(bool),
            digest_a=rows[:, 3],
            digest_b=rows[:, 4],
            compared=self.compared,
            differing=self.differing,
            tolerated=self.tolerated,
            unknown=self.unknown,
            unread=self.unread,
            total=self.total,
            positions=positions,
        )

    def _batch(self, begin: int, end: int) -> int:
        """Compares positions begin to end - 1, and returns the position to continue at."""
        born = np.maximum(self.common.born, begin)
        alive = np.flatnonzero(born < np.minimum(self.common.died, end))
        a, b = self.a.history(begin, end), self.b.history(begin, end)
        bounds = np.concatenate([self.left_out.begin, self.left_out.end])
        at = bounds & EPOCH_MASK
        bounds = bounds[(at >= begin) & (at < end)]
        keys = distinct(np.concatenate([a.key, b.key, bounds, keys_of(alive, born[alive])]))
        pair, position = (keys >> EPOCH_BITS).astype("i8"), (keys & EPOCH_MASK).astype("i8")
        inside = (position >= born[pair]) & (position < self.common.died[pair])
        keys, pair, position = keys[inside], pair[inside], position[inside]
        behind = self._behind(pair, position, end)
        told = ~self.left_out.holds(keys)
        said = _values(a, keys)[1] | _values(b, keys)[1]
        self.unread += int((behind - position)[said & ~told].sum())
        keys, pair, position, behind = keys[told], pair[told], position[told], behind[told]
        digest_a, has_a = _values(a, keys)
        digest_b, has_b = _values(b, keys)
        known = has_a & has_b
        differs = known & (digest_a != digest_b)
        if self.judge is not None:
            end = self._judge(pair, position, differs, behind, end)
            kept = position < end
            columns = (pair, position, behind, digest_a, digest_b, has_a, has_b, known, differs)
            pair, position, behind, digest_a, digest_b, has_a, has_b, known, differs = (
                column[kept] for column in columns
            )
            behind = np.minimum(behind, end)
        length = behind - position
        self.compared += int(length[known].sum())
        self.differing += int(length[differs].sum())
        self.unknown += int(length[has_a != has_b].sum())
        self._take(pair, position, behind, known & ~differs, differs, digest_a, digest_b)
        return end

    def _behind(self, pair: Array, position: Array, end: int) -> Array:
        """Returns up to which position each row holds. Rows are sorted by pair and position."""
        behind = np.minimum(self.common.died[pair], end)
        behind[:-1] = np.where(pair[1:] == pair[:-1], position[1:], behind[:-1])
        return np.asarray(behind)

    def _judge(self, pair: Array, position: Array, differs: Array, behind: Array, end: int) -> int:
        """Compares contents with different digests, and clears differences within the tolerance.

        Returns the position to end at: behind the first difference if the comparison stops there.
        """
        assert self.judge is not None, "only asked where there is one"
        at = np.flatnonzero(differs)
        for i in at[np.lexsort((pair[at], position[at]))].tolist():
            if position[i] >= end:
                break
            if self.judge(int(pair[i]), int(position[i])):
                differs[i] = False
                self.tolerated += int(behind[i] - position[i])
            elif self.stop:
                end = int(position[i]) + 1
        return end

    def _take(
        self,
        pair: Array,
        position: Array,
        behind: Array,
        same: Array,
        differs: Array,
        digest_a: Array,
        digest_b: Array,
    ) -> None:
        """Continues, begins and ends stretches. Rows are sorted by pair and position."""
        follows = np.append(False, pair[1:] == pair[:-1])[: len(pair)]
        was_same, goes_on = self.was_same[pair], self.differed[pair]
        was_same[1:] = np.where(follows[1:], same[:-1], was_same[1:])
        goes_on[1:] = np.where(follows[1:], differs[:-1], goes_on[1:])
        new = np.flatnonzero(differs & ~goes_on)
        self.total += len(new)
        new = np.sort(new[np.argsort(position[new], kind="stable")][: MOST - len(self.rows)])
        rows = np.full(len(pair), -1, "i8")
        rows[new] = len(self.rows) + np.arange(len(new))
        carried = differs & goes_on & ~follows
        rows[carried] = self.row_of[pair[carried]]
        # What goes on within the batch belongs to the row that began last.
        begins = (differs & ~goes_on) | carried
        chain = np.cumsum(begins) - 1
        rows[differs] = rows[begins][chain[differs]]
        columns = (pair, position, was_same, digest_a, digest_b)
        made = np.stack([column[new].astype("u8") for column in columns], axis=1)
        self.rows = np.concatenate([self.rows, made])
        self.last = np.concatenate([self.last, np.zeros(len(new), "i8")])
        listed = rows >= 0
        np.maximum.at(self.last, rows[listed], behind[listed] - 1)
        ends = np.append(~follows[1:], True)[: len(pair)]
        self.was_same[pair[ends]] = same[ends]
        self.differed[pair[ends]] = differs[ends]
        self.row_of[pair[ends]] = rows[ends]


def _values(history: DigestHistory, keys: Array) -> tuple[Array, Array]:
    """Returns the digest at each key, and whether there is one."""
    row, there = history.find(keys)
    out = np.zeros(len(keys), "u8")
    out[there] = history.digest[row[there]]
    return out, there
