"""The contents of regions over time, in epochs that both sides of a comparison have."""

from __future__ import annotations

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.diff.match import MatchedRegions
from ttanalyze.verbs.diff.sides import Side, mixed
from ttanalyze.verbs.diff.states import Common

PIECE = 1 << 12  # epochs whose digests are looked at together


def common_states(
    a: Side, b: Side, epochs_a: Array, epochs_b: Array, regions: MatchedRegions
) -> Common:
    """Returns the common epochs and pairs, and the positions in which both sides of a pair live."""
    rows_a, rows_b = regions.rows_a, regions.rows_b
    born = [
        np.searchsorted(epochs, of.born[rows])
        for epochs, of, rows in ((epochs_a, regions.a, rows_a), (epochs_b, regions.b, rows_b))
    ]
    died = [
        np.searchsorted(epochs, of.died[rows])
        for epochs, of, rows in ((epochs_a, regions.a, rows_a), (epochs_b, regions.b, rows_b))
    ]
    return Common(
        a,
        b,
        epochs_a,
        epochs_b,
        regions.a.id[rows_a],
        regions.b.id[rows_b],
        np.maximum(born[0], born[1]),
        np.minimum(died[0], died[1]),
    )


def contents_of(side: Side, epochs: Array, regions: Array) -> Array:
    """Returns a number per region that is equal for equal contents in the same of these epochs:
    those in which the contents changed.
    """
    order = np.argsort(regions, kind="stable")
    out, last = np.zeros(len(regions), "u8"), np.zeros(len(regions), "u8")
    first = 0
    for begin in range(0, len(epochs), PIECE):
        end = min(begin + PIECE, len(epochs))
        region, epoch, digest = side.digests(first, int(epochs[end - 1]) + 1)
        first = int(epochs[end - 1]) + 1
        at = np.minimum(np.searchsorted(regions[order], region), len(regions) - 1)
        ours = np.flatnonzero(regions[order][at] == region)
        row, position = order[at[ours]], np.searchsorted(epochs, epoch[ours])
        in_order = np.lexsort((epoch[ours], row))
        row, position, digest = row[in_order], position[in_order], digest[ours][in_order]
        newest = np.append((row[1:] != row[:-1]) | (position[1:] != position[:-1]), True)[
            : len(row)
        ]
        row, position, digest = row[newest], position[newest], digest[newest]
        begins = np.append(True, row[1:] != row[:-1])[: len(row)]
        before = np.where(begins, last[row], np.append(digest[:1], digest[:-1])[: len(row)])
        new = digest != before
        np.add.at(out, row[new], mixed(position[new], digest[new]))
        ends = np.append(begins[1:], True)[: len(row)]
        last[row[ends]] = digest[ends]
    return out


def history(side: Side, epochs: Array, regions: MatchedRegions, which: int) -> tuple[Array, Array]:
    """Returns two numbers per epoch: equal if all pairs have equal digests, and equal if the same
    pairs got the same new digests.
    """
    of, rows = ((regions.a, regions.rows_a), (regions.b, regions.rows_b))[which]
    ids, died = of.id[rows], of.died[rows].astype("i8")
    order = np.argsort(ids, kind="stable")
    count = len(side.flags)
    states, changes = np.zeros(count + 1, "u8"), np.zeros(count, "u8")
    last = np.zeros(len(ids), "u8")  # of each pair, what it adds to the state
    for first in range(0, count if len(ids) else 0, PIECE):
        region, epoch, digest = side.digests(first, min(first + PIECE, count))
        at = np.minimum(np.searchsorted(ids[order], region), len(ids) - 1)
        ours = np.flatnonzero(ids[order][at] == region)
        ours = ours[np.argsort(order[at[ours]], kind="stable")]
        pair, epoch, now = order[at[ours]], epoch[ours], digest[ours]
        now = mixed(pair, now)
        np.add.at(changes, epoch, now)
        follows = np.append(False, pair[1:] == pair[:-1])[: len(pair)]
        before = np.where(follows, np.append(now[:1], now[:-1])[: len(now)], last[pair])
        np.add.at(states, epoch, now - before)
        ends = np.append(~follows[1:], True)[: len(pair)]
        last[pair[ends]] = now[ends]
    gone = died < count
    np.subtract.at(states, died[gone], last[gone])
    return np.cumsum(states)[epochs], changes[epochs]
