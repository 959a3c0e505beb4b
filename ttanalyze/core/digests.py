"""Compares two histories of region digests: the arithmetic of verify, without files.

A history is a set of records: in epoch E region R got digest D. A region's state in an epoch is
that of its last record up to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ttanalyze.format.layout import Array, distinct
from ttanalyze.format.unread import EPOCH_BITS, EPOCH_MASK, Unread, keys_of


@dataclass(frozen=True)
class DigestHistory:
    """A history, keys ascending. stored: whether the digest was computed from contents."""

    key: Array
    digest: Array
    stored: Array

    @staticmethod
    def from_unordered(key: Array, digest: Array, stored: Array) -> DigestHistory:
        """Records in any order; no key twice."""
        order = np.argsort(key, kind="stable")
        return DigestHistory(key[order], digest[order], stored[order])

    def find(self, keys: Array) -> tuple[Array, Array]:
        """For each key the row of the region's last record up to it, and whether there is one."""
        if not len(self.key):
            return np.zeros(len(keys), "i8"), np.zeros(len(keys), bool)
        if np.array_equal(keys, self.key):  # histories that agree are the usual case
            return np.arange(len(keys)), np.ones(len(keys), bool)
        row = np.searchsorted(self.key, keys, "right") - 1
        there: Array = (row >= 0) & (self.key[row] >> EPOCH_BITS == keys >> EPOCH_BITS)
        return row, there

    def with_digest(self, region: int, epoch: int, digest: int) -> DigestHistory:
        """The same history, but in one epoch the region has another digest."""
        now, after = keys_of(np.array([region, region]), np.array([epoch, epoch + 1]))
        row, there = self.find(np.array([after]))
        key, values = [now], [digest]
        if there[0] and after not in self.key:  # what it was again from the next epoch on
            key.append(after)
            values.append(int(self.digest[row[0]]))
        kept = self.key != now
        return DigestHistory.from_unordered(
            np.concatenate([self.key[kept], np.array(key, "u8")]),
            np.concatenate([self.digest[kept], np.array(values, "u8")]),
            np.concatenate([self.stored[kept], np.ones(len(key), bool)]),
        )


class Lives(NamedTuple):
    """Regions by id, and the epochs [born, died) in which they live."""

    region: Array
    born: Array
    died: Array


@dataclass(frozen=True)
class Comparison:
    """What compare found. region_epochs: states compared; digest_only: of these, without the
    contents of the second history; differing: of these, different. unread: states that were not
    compared.

    One row per stretch of epochs, `epoch` to `until`, over which a region differs, in the order
    of epochs; both were compared. has_first, has_second: whether the history says anything;
    first, second: what.
    """

    region_epochs: int
    digest_only: int
    differing: int
    unread: int
    region: Array
    epoch: Array
    until: Array
    has_first: Array
    first: Array
    has_second: Array
    second: Array


def compare(
    first: DigestHistory,
    second: DigestHistory,
    lives: Lives,
    begin: int,
    end: int,
    skip: Array,
    unread: Unread,
) -> Comparison:
    """Compares epochs begin to end - 1 of regions in their lives.

    skip: by epoch, up to end at least, those to leave out. What came in one of them is compared in
    the next one that is not. unread: those that left regions out.
    """
    compared = np.flatnonzero(~skip).astype("u8")
    before = np.append(0, np.cumsum(~skip))  # epochs that are compared before each
    ids = lives.region.astype("u8")
    born = np.maximum(lives.born, np.uint64(begin))
    died = np.minimum(lives.died, np.uint64(end))
    opening = keys_of(ids[born < died], born[born < died])  # of what began before
    keys = distinct(np.concatenate([first.key, second.key, opening, unread.begin, unread.end]))
    keys = keys[keys & EPOCH_MASK < np.uint64(end)]
    following = before[(keys & EPOCH_MASK).astype("i8")]
    keys, following = keys[following < len(compared)], following[following < len(compared)]
    keys = distinct(keys_of(keys >> EPOCH_BITS, compared[following]))
    row = np.searchsorted(ids, keys >> EPOCH_BITS)
    keys, row = keys[row < len(ids)], row[row < len(ids)]
    epoch = keys & EPOCH_MASK
    inside = (ids[row] == keys >> EPOCH_BITS) & (epoch >= born[row]) & (epoch < died[row])
    keys, row, epoch = keys[inside], row[inside], epoch[inside]
    until = died[row]
    until[:-1] = np.where(row[1:] == row[:-1], epoch[1:], until[:-1])
    one, has_one = first.find(keys)
    two, has_two = second.find(keys)
    digest_one, digest_two = _where(first.digest, one, has_one), _where(second.digest, two, has_two)
    left_out = unread.holds(keys)
    told = (has_one | has_two) & ~left_out
    differs = told & ((has_one != has_two) | (digest_one != digest_two))
    stored = _where(second.stored, two, has_two)
    last = before[until.astype("i8")]
    epochs = last - before[epoch.astype("i8")]
    at = np.flatnonzero(differs)
    at = at[np.lexsort((row[at], epoch[at]))]
    return Comparison(
        region_epochs=int(epochs[told].sum()),
        digest_only=int(epochs[told & has_two & ~stored].sum()),
        differing=int(epochs[differs].sum()),
        unread=int(epochs[(has_one | has_two) & left_out].sum()),
        region=ids[row[at]],
        epoch=epoch[at],
        until=compared[last[at] - 1],
        has_first=has_one[at],
        first=digest_one[at],
        has_second=has_two[at],
        second=digest_two[at],
    )


def _where(values: Array, rows: Array, there: Array) -> Array:
    """values[rows] where there, else 0."""
    out = np.zeros(len(rows), values.dtype)
    out[there] = values[rows[there]]
    return out
