"""Compares two histories of region digests.

A history has records "region R has digest D in epoch E". The state of a region in an epoch is its
last record up to this epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ttanalyze.format.layout import Array, distinct
from ttanalyze.format.unread import EPOCH_BITS, EPOCH_MASK, Unread, keys_of


@dataclass(frozen=True)
class DigestHistory:
    """A history by ascending keys. stored: whether the digest was computed from contents."""

    key: Array
    digest: Array
    stored: Array

    @staticmethod
    def from_unordered(key: Array, digest: Array, stored: Array) -> DigestHistory:
        """Makes a history of records in any order, with unique keys."""
        order = np.argsort(key, kind="stable")
        return DigestHistory(key[order], digest[order], stored[order])

    def find(self, keys: Array) -> tuple[Array, Array]:
        """Returns for each key the row of the last record of the region, and whether there is
        one.
        """
        if not len(self.key):
            return np.zeros(len(keys), "i8"), np.zeros(len(keys), bool)
        if np.array_equal(keys, self.key):  # histories that agree are the usual case
            return np.arange(len(keys)), np.ones(len(keys), bool)
        row = np.searchsorted(self.key, keys, "right") - 1
        there: Array = (row >= 0) & (self.key[row] >> EPOCH_BITS == keys >> EPOCH_BITS)
        return row, there

    def with_digest(self, region: int, epoch: int, digest: int) -> DigestHistory:
        """Returns the history with another digest of a region in one epoch."""
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
    """The result of `compare`.

    region_epochs: the number of compared states. digest_only: those without contents of the second
    history. differing: those that differ. unread: the states that were not compared.

    There is one row per stretch of epochs, `epoch` to `until`, over which a region differs, by
    epoch; both were compared. has_first, has_second: whether the history has a digest. first,
    second: this digest.
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
    """Compares epochs begin to end - 1 of live regions.

    skip: by epoch, up to end at least, which to leave out. A change in one of them is compared in
    the next epoch that is not left out. unread: the epochs that left regions out.
    """
    compared = np.flatnonzero(~skip).astype("u8")
    before = np.append(0, np.cumsum(~skip))  # epochs that are compared before each
    ids = lives.region.astype("u8")
    born = np.maximum(lives.born, np.uint64(begin))
    died = np.minimum(lives.died, np.uint64(end))
    opening = keys_of(ids[born < died], born[born < died])  # of what began before
    both = [first.key] if second.key is first.key else [first.key, second.key]
    keys = distinct(np.concatenate([*both, opening, unread.begin, unread.end]))
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
    """Returns values[rows] where there is a row, else 0."""
    if there.all():
        return np.asarray(values[rows])
    out = np.zeros(len(rows), values.dtype)
    out[there] = values[rows[there]]
    return out
