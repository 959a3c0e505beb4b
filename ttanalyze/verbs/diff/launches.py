"""Stretches of launches that differ between two processes, with their kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.diff.match import MatchedCalls
from ttanalyze.verbs.diff.report import Launches, Stretch
from ttanalyze.verbs.diff.sides import Calls

LISTED = 100  # stretches that are described
KERNELS = 4  # of a stretch, by name
GRAPH = "a graph"


@dataclass(frozen=True)
class _Side:
    """The launches of one side. at: which calls they are. met: the number of launches with a
    counterpart up to each, itself included.
    """

    process: Process
    calls: Calls
    at: Array
    met: Array


def add_launches(out: Launches, matched: MatchedCalls, a: Process, b: Process) -> None:
    """Adds the launches of one context."""
    found = matched.alignment
    of_launches = matched.a.launch[found.a]
    pairs, level = (found.a[of_launches], found.b[of_launches]), found.level[of_launches]
    sides = _side(a, matched.a, pairs[0]), _side(b, matched.b, pairs[1])
    changed = int(np.count_nonzero(level))
    out.a += len(sides[0].at)
    out.b += len(sides[1].at)
    out.same += len(level) - changed
    out.changed += changed
    others = ~of_launches & matched.a.work[found.a]
    out.others += int(np.count_nonzero(others))
    out.others_changed += int(np.count_nonzero(found.level[others]))
    out.others_a += _count_others(matched.a) - int(np.count_nonzero(others))
    out.others_b += _count_others(matched.b) - int(np.count_nonzero(others))
    out.exact &= found.exact
    alone = _alone(sides, matched.lanes)
    other = _changed(
        *(np.searchsorted(s.at, p[level > 0]) for s, p in zip(sides, pairs, strict=True))
    )
    out.stretch_count += len(alone) + len(other)
    spans = np.concatenate([alone, other])
    kinds = np.repeat(["alone", "changed"], [len(alone), len(other)])
    order = np.argsort(spans[:, [0, 2]].max(axis=1), kind="stable")
    for i in order[: LISTED - len(out.stretches)].tolist():
        out.stretches.append(_described(sides, str(kinds[i]), *spans[i].tolist()))


def _count_others(calls: Calls) -> int:
    return int(np.count_nonzero(calls.work & ~calls.launch))


def _side(process: Process, calls: Calls, at: Array) -> _Side:
    launches = np.flatnonzero(calls.launch)
    has_one = np.zeros(len(calls.seq), bool)
    has_one[at] = True
    return _Side(process, calls, launches, np.cumsum(has_one[launches]))


def _alone(sides: tuple[_Side, _Side], lanes: int) -> Array:
    """Returns stretches of launches without a counterpart: [begin, end) of a and of b, one row
    each.

    Stretches of both sides after the same number of counterparts belong together. If streams were
    aligned by themselves, that is unknown, and the other side is -1.
    """
    keys = [np.unique(s.met[np.diff(s.met, prepend=0) == 0]) for s in sides]
    if lanes == 1:
        both = np.union1d(keys[0], keys[1])
        return np.stack([edge for side in sides for edge in _span(side, both)], axis=1)
    rows = []
    for i, side in enumerate(sides):
        row = np.full((len(keys[i]), 4), -1)
        row[:, 2 * i : 2 * i + 2] = np.stack(_span(side, keys[i]), axis=1)
        rows.append(row)
    return np.concatenate(rows)


def _span(side: _Side, met: Array) -> tuple[Array, Array]:
    """Returns the range of launches after this number of counterparts, up to the next one."""
    begin = np.searchsorted(side.met, met) + (met > 0)
    return begin, np.searchsorted(side.met, met, "right")


def _changed(a: Array, b: Array) -> Array:
    """Returns stretches of consecutive changed pairs, as _alone does."""
    breaks = np.flatnonzero((np.diff(a) != 1) | (np.diff(b) != 1)) + 1
    starts = np.append(0, breaks)[: len(a)]
    ends = np.append(breaks, len(a))[: len(starts)] - 1
    return np.stack([a[starts], a[ends] + 1, b[starts], b[ends] + 1], axis=1)


def _described(
    sides: tuple[_Side, _Side], kind: str, begin_a: int, end_a: int, begin_b: int, end_b: int
) -> Stretch:
    seq_a, kernels_a = _look(sides[0], begin_a, end_a)
    seq_b, kernels_b = _look(sides[1], begin_b, end_b)
    return Stretch(
        kind=kind,
        before_a=begin_a if begin_a >= 0 else None,
        before_b=begin_b if begin_b >= 0 else None,
        seq_a=seq_a,
        seq_b=seq_b,
        count_a=end_a - begin_a,
        count_b=end_b - begin_b,
        kernels_a=kernels_a,
        kernels_b=kernels_b,
    )


def _look(side: _Side, begin: int, end: int) -> tuple[int | None, dict[str, int]]:
    """Returns the seq of the first launch of a stretch, and its most frequent kernels."""
    at = side.at[begin:end] if begin >= 0 else side.at[:0]
    if not len(at):
        return None, {}
    _, first, counts = np.unique(side.calls.alike[at], return_index=True, return_counts=True)
    kernels: dict[str, int] = {}
    for i in np.lexsort((first, -counts))[:KERNELS].tolist():
        seq = int(side.calls.seq[at[first[i]]])
        event = side.process.events_between(seq - 1, seq)[0]
        name = side.process.kernel(int(event["id"])) if event["kind"] == KIND["launch"] else None
        kernels[name or GRAPH] = int(counts[i])
    return int(side.calls.seq[at[0]]), kernels
