"""Computes region digests from the stored contents, epoch by epoch.

Each stored content is read and hashed once, and the digest of a region is computed again only if
one of its blocks changed. Memory is bounded by a batch of epochs, 8 bytes per block of every
region, and 16 bytes per stored content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xxhash

from ttanalyze.format import layout
from ttanalyze.format.digest import digests_of_words
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

BATCH_BLOCKS = 1 << 18
BATCH_EPOCHS = 1 << 16
READ_AT_ONCE = 8 << 20  # bytes
ONE = np.uint64(1)


@dataclass(frozen=True)
class Damage:
    """A block whose stored contents do not have their recorded digest."""

    epoch: int
    region: int
    block: int
    segment: int
    offset: int
    recorded: int
    found: int


class Changes(NamedTuple):
    """Digests of regions from epochs on, one row each. known: whether there is one."""

    region: Array
    epoch: Array
    digest: Array
    known: Array


@dataclass(frozen=True)
class Batch:
    """The digests of epochs begin to end - 1, one row per recorded region digest.

    digest: computed from the stored contents if `stored`, else as recorded.
    """

    begin: int
    end: int
    epoch: Array
    region: Array
    digest: Array
    recorded: Array
    stored: Array
    damage: list[Damage]


class Contents:
    """The digests of the contents in a segment, by place (offset and length).

    They are kept as sorted runs, each longer than the next, so look-ups and insertions stay fast.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[Array, Array]] = []

    def find(self, positions: Array) -> tuple[Array, Array]:
        """Returns the digest at each place, and whether it is known."""
        digests, known = np.zeros(len(positions), "u8"), np.zeros(len(positions), bool)
        for keys, values in self.runs:
            at = np.searchsorted(keys, positions)
            at[at == len(keys)] = 0
            here = keys[at] == positions
            digests[here] = values[at[here]]
            known |= here
        return digests, known

    def add(self, positions: Array, digests: Array) -> None:
        """Adds digests at new, ascending positions; there is at least one."""
        while self.runs and len(self.runs[-1][0]) <= len(positions):
            keys, values = self.runs.pop()
            positions, digests = (
                np.concatenate([keys, positions]),
                np.concatenate([values, digests]),
            )
            order = np.argsort(positions, kind="stable")
            positions, digests = positions[order], digests[order]
        self.runs.append((positions, digests))


class Recompute:
    """The pass over epochs first to last of one process, for all or some regions."""

    def __init__(self, process: Process, first: int, last: int, wanted: Array | None) -> None:
        self.process = process
        self.first = first
        self.last = last
        self.wanted = wanted
        self.blocks_read = 0
        self.bytes_read = 0
        self._contents: dict[int, Contents] = {}  # by segment
        # Of regions all of whose blocks are known: the blocks' digests, and the region's.
        self._states: dict[int, Array] = {}
        self._digests: dict[int, int] = {}

    def batches(self, progress: Callable[[int], None] | None = None) -> Iterator[Batch]:
        """Yields batches in order. Those before `first` only prepare it. progress: called with the
        number of finished epochs.
        """
        at = restart(self.process, self.first)
        while at <= self.last:
            end = self._batch_end(at)
            yield self._batch(at, end)
            if progress:
                progress(max(0, end - self.first))
            at = end

    def _batch_end(self, at: int) -> int:
        """Returns the end of a batch: at least one epoch, at most BATCH_BLOCKS records, not across
        `first`.
        """
        epochs = self.process.epochs
        limit = min(self.last + 1 if at >= self.first else self.first, at + BATCH_EPOCHS)
        ends = epochs["blocks_first"][at:limit] + epochs["blocks_count"][at:limit]
        fits = int(np.searchsorted(ends, int(epochs["blocks_first"][at]) + BATCH_BLOCKS, "right"))
        return at + max(1, fits)

    def _batch(self, begin: int, end: int) -> Batch:
        digests, digest_epochs = self._wanted("digests", begin, end)
        blocks, block_epochs = self._wanted("blocks", begin, end)
        found, there = self._hash(blocks)
        damage = [
            Damage(
                epoch=int(block_epochs[i]),
                region=int(blocks["region"][i]),
                block=int(blocks["block"][i]),
                segment=int(blocks["segment"][i]),
                offset=int(blocks["offset"][i]),
                recorded=int(blocks["digest"][i]),
                found=int(found[i]),
            )
            for i in np.flatnonzero(there & (found != blocks["digest"])).tolist()
        ]
        before = dict(self._digests)
        changes = self._replay(begin, digests, digest_epochs, blocks, block_epochs, found, there)
        digest, stored = _carried_on(begin, digests, digest_epochs, changes, before)
        self._forget_dead(end)
        return Batch(
            begin, end, digest_epochs, digests["region"], digest, digests["digest"], stored, damage
        )

    def _wanted(self, kind: str, begin: int, end: int) -> tuple[Array, Array]:
        """Returns the wanted records of these epochs, and the epoch of each."""
        get = self.process.digests if kind == "digests" else self.process.blocks
        records, epochs = get(begin, end), self.process.epoch_of(kind, begin, end)
        if self.wanted is None:
            return records, epochs
        of = np.isin(records["region"], self.wanted)
        return records[of], epochs[of]

    # ---- contents ----

    def _hash(self, blocks: Array) -> tuple[Array, Array]:
        """Returns the digest of the stored contents of each record, and whether they still
        exist.
        """
        found = blocks["digest"].copy()
        there = np.isin(blocks["segment"], list(self.process.segments))
        rows = np.flatnonzero(there)
        rows = rows[np.argsort(blocks["segment"][rows], kind="stable")]
        segments, starts = np.unique(blocks["segment"][rows], return_index=True)
        ends = [*starts[1:].tolist(), len(rows)]
        for segment, a, b in zip(segments.tolist(), starts.tolist(), ends, strict=False):
            of = rows[a:b]
            known = self._contents.setdefault(segment, Contents())
            # An offset is below 2**47: no file is larger.
            location = (blocks["offset"][of] << np.uint64(17)) | blocks["length"][of].astype("u8")
            positions, which = location, np.arange(len(location))
            if (location[1:] <= location[:-1]).any():
                positions, which = np.unique(location, return_inverse=True)
            digests, old = known.find(positions)
            new = positions[~old]
            if len(new):
                digests[~old] = self._read(segment, new)
                known.add(new, digests[~old])
            found[of] = digests[which]
        return found, there

    def _read(self, segment: int, positions: Array) -> Array:
        """Returns the digests of contents at ascending positions. Neighbours are read together."""
        location = positions.astype("i8")
        offsets = location >> 17
        ends = np.maximum.accumulate(offsets + (location & 0x1FFFF))
        gaps = np.append(np.flatnonzero(offsets[1:] - ends[:-1] >= 4096) + 1, len(location))
        digest = xxhash.xxh3_64_intdigest
        out = np.empty(len(location), "u8")
        first = 0
        with self.process.data(segment) as file:
            while first < len(location):
                start = int(offsets[first])
                if not file.plain:
                    length = int(location[first] & 0x1FFFF)
                    out[first] = digest(file.contents(start, length))
                    self.bytes_read += length
                    self.blocks_read += 1
                    first += 1
                    continue
                fit = int(np.searchsorted(ends, start + READ_AT_ONCE, "right"))
                gap = int(gaps[np.searchsorted(gaps, first, "right")])
                last = max(first + 1, min(fit, gap))
                view = memoryview(file.bytes(start, int(ends[last - 1]) - start))
                begins = offsets[first:last] - start
                lengths = location[first:last] & 0x1FFFF
                spans = zip(begins.tolist(), (begins + lengths).tolist(), strict=True)
                out[first:last] = [digest(view[a:b]) for a, b in spans]
                self.bytes_read += int(lengths.sum())
                self.blocks_read += last - first
                first = last
        return out

    # ---- regions ----

    def _replay(
        self,
        begin: int,
        digests: Array,
        digest_epochs: Array,
        blocks: Array,
        block_epochs: Array,
        found: Array,
        there: Array,
    ) -> Changes:
        """Returns the rows at which digests of regions may have changed."""
        regions = self.process.regions
        rows = regions.rows(blocks["region"])
        location = (block_epochs - np.uint32(begin)).astype("u8") * np.uint64(len(regions))
        location += rows.astype("u8")
        order = np.lexsort((blocks["block"], location))
        location, rows, blocks = location[order], rows[order], blocks[order]
        found, there = found[order], there[order]
        starts = (
            np.flatnonzero(np.append(True, location[1:] != location[:-1]))
            if len(location)
            else order
        )
        stops = np.append(starts[1:], len(order))
        row = rows[starts]
        dropped = self.process.epochs["flags"][digest_epochs] & layout.DROPPED != 0
        changed = np.ones(len(starts), bool)
        if len(starts) and there.all() and not dropped.any():
            new = ~_repeated(rows, blocks["block"], location, found)
            changed = np.logical_or.reduceat(new, starts)
        lost = ~np.logical_and.reduceat(there, starts)  # contents that are not stored
        # Where every change of a region lists all of its blocks or is lost, none needs the others.
        in_parts = np.zeros(len(regions), bool)
        in_parts[row[changed & ~lost & (stops - starts != regions.blocks[row])]] = True
        gone = np.flatnonzero(dropped)
        epoch = np.concatenate([digest_epochs[gone], block_epochs[order][starts]])
        row = np.concatenate([regions.rows(digests["region"][gone]), row])
        at = np.concatenate([np.full(len(gone), -1), np.arange(len(starts))])
        changed = np.concatenate([np.ones(len(gone), bool), changed])
        by_epoch = np.lexsort((row, epoch))  # what was dropped first
        by_epoch = by_epoch[changed[by_epoch]]
        epoch, row, at = epoch[by_epoch], row[by_epoch], at[by_epoch]
        known = (at >= 0) & ~lost[at] if len(starts) else at >= 0
        region, values = regions.id[row], np.zeros(len(row), "u8")

        whole = np.flatnonzero(known & ~in_parts[row])
        values[whole] = _digests_of(found, starts[at[whole]], stops[at[whole]])
        alone = np.flatnonzero(~in_parts[row])
        last = dict(zip(region[alone].tolist(), alone.tolist(), strict=True))
        for r, i in last.items():
            self._forget(r)
            if known[i]:
                self._states[r] = found[starts[at[i]] : stops[at[i]]].astype("<u8")
                self._digests[r] = int(values[i])
        for i in np.flatnonzero(in_parts[row]).tolist():
            r = int(region[i])
            if known[i]:
                of = slice(starts[at[i]], stops[at[i]])
                self._take(r, blocks["block"][of], found[of])
            else:
                self._forget(r)
            known[i] = r in self._digests
            values[i] = self._digests.get(r, 0)
        return Changes(region, epoch, values, known)

    def _take(self, region: int, block: Array, digest: Array) -> None:
        """Takes new digests of a region's blocks."""
        state = self._states.get(region)
        if state is None:
            row = self.process.regions.rows(np.array([region]))
            if len(block) == int(self.process.regions.blocks[row][0]):
                state = self._states[region] = np.empty(len(block), "<u8")
        if state is None:
            self._forget(region)
        else:
            state[block] = digest
            self._digests[region] = xxhash.xxh3_64_intdigest(state.data)

    def _forget(self, region: int) -> None:
        """Forgets a region whose new contents are not stored, until all its blocks are listed
        again.
        """
        self._states.pop(region, None)
        self._digests.pop(region, None)

    def _forget_dead(self, end: int) -> None:
        """Drops dead regions. Otherwise each batch would take longer than the last."""
        known = np.fromiter(self._digests, "u4", len(self._digests))
        rows = self.process.regions.rows(known)
        for region in known[self.process.regions.died[rows] <= end].tolist():
            self._forget(region)


def restart(process: Process, epoch: int) -> int:
    """Returns the epoch to begin at for the state at `epoch`: the earliest of the last full epochs
    of the contexts.
    """
    epochs = process.epochs[: epoch + 1]
    contexts = epochs["context"]
    unusable = layout.DROPPED | layout.REFUSED
    full = epochs["flags"] & (layout.FULL | unusable) == layout.FULL
    starts = [0] if not len(epochs) else []
    for context in np.unique(contexts):
        usable = np.flatnonzero((contexts == context) & full)
        starts.append(int(usable[-1]) if len(usable) else 0)
    return min(starts)


def _digests_of(found: Array, starts: Array, stops: Array) -> Array:
    """Returns the digests of regions whose blocks have found[start:stop]."""
    words = digests_of_words(found[starts])
    several = np.flatnonzero(stops - starts > 1)
    raw = found.astype("<u8").tobytes()  # whose pieces are mostly small: views would cost more
    spans = zip((starts[several] * 8).tolist(), (stops[several] * 8).tolist(), strict=True)
    digest = xxhash.xxh3_64_intdigest
    words[several] = np.array([digest(raw[a:b]) for a, b in spans], "u8")
    return words


def _repeated(row: Array, block: Array, position: Array, digest: Array) -> Array:
    """Returns the records whose block had the same digest in its previous record.

    position: ascends by
    epoch.
    """
    order = np.lexsort((position, block, row))
    same = np.zeros(len(order), bool)
    now, before = order[1:], order[:-1]
    same[now] = (row[now] == row[before]) & (block[now] == block[before])
    same[now] &= digest[now] == digest[before]
    return same


def _carried_on(
    begin: int, digests: Array, epochs: Array, changes: Changes, before: dict[int, int]
) -> tuple[Array, Array]:
    """Returns for each digest record the last computed digest of its region, and whether there is
    one.

    epochs: of the records. before: the digests that were known when the batch began.
    """
    if not before and not len(changes.region):
        return digests["digest"].copy(), np.zeros(len(digests), bool)
    earlier = np.fromiter(before, "u8", len(before)) << np.uint64(32) | np.uint64(begin)
    later = changes.region.astype("u8") << np.uint64(32) | (changes.epoch.astype("u8") + ONE)
    keys = np.concatenate([earlier, later])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    old = np.fromiter(before.values(), "u8", len(before))
    values = np.concatenate([old, changes.digest])[order]
    known = np.concatenate([np.ones(len(before), bool), changes.known])[order]
    region = digests["region"].astype("u8")
    wanted = (region << np.uint64(32)) | (epochs.astype("u8") + ONE)
    at = np.searchsorted(keys, wanted, "right") - 1
    stored = (at >= 0) & (keys[at] >> np.uint64(32) == region) & known[at]
    return np.asarray(np.where(stored, values[at], digests["digest"])), stored
