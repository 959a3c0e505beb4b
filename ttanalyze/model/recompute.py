"""Region digests computed anew from the stored contents, epoch after epoch.

Every stored content is read and hashed once, however many epochs refer to it, and a region's
digest is computed again only where one of its blocks changed. Works through the run in
batches of epochs; memory is bounded by a batch, 8 bytes per block of every region, and one
dictionary entry per stored content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xxhash

from ttanalyze.model import layout
from ttanalyze.model.layout import Array
from ttanalyze.model.process import Process

BATCH_BLOCKS = 1 << 18
BATCH_EPOCHS = 1 << 16
READ_AT_ONCE = 8 << 20  # bytes


@dataclass(frozen=True)
class Damage:
    """A block whose stored contents do not have the digest that was recorded for them."""

    epoch: int
    region: int
    block: int
    segment: int
    offset: int
    recorded: int
    found: int


class Change(NamedTuple):
    """A region's digest from an epoch on; None: not to be known."""

    region: int
    epoch: int
    digest: int | None


@dataclass(frozen=True)
class Batch:
    """What epochs begin to end - 1 come to. One row per recorded region digest.

    digest: computed from the stored contents where `stored`, else as recorded.
    """

    begin: int
    end: int
    epoch: Array
    region: Array
    digest: Array
    recorded: Array
    stored: Array
    damage: list[Damage]


class Recompute:
    """The pass over one process's epochs first to last, of all regions or of those wanted."""

    def __init__(self, process: Process, first: int, last: int, wanted: Array | None) -> None:
        self.process = process
        self.first = first
        self.last = last
        self.wanted = wanted
        self.blocks_read = 0
        self.bytes_read = 0
        self._contents: dict[int, dict[int, int]] = {}  # segment, where: digest
        # Of regions all of whose blocks are known: the blocks' digests, and the region's.
        self._states: dict[int, Array] = {}
        self._digests: dict[int, int] = {}

    def batches(self, progress: Callable[[int], None] | None = None) -> Iterator[Batch]:
        """In order. Those before `first` only lead up to it. progress gets the epochs done."""
        at = restart(self.process, self.first)
        while at <= self.last:
            end = self._batch_end(at)
            yield self._batch(at, end)
            if progress:
                progress(max(0, end - self.first))
            at = end

    def _batch_end(self, at: int) -> int:
        """Up to BATCH_BLOCKS records of one segment, at least one epoch, [.., first) by itself."""
        epochs = self.process.epochs
        limit = min(self.last + 1 if at >= self.first else self.first, at + BATCH_EPOCHS)
        ends = epochs["blocks_first"][at:limit] + epochs["blocks_count"][at:limit]
        fits = int(np.searchsorted(ends, int(epochs["blocks_first"][at]) + BATCH_BLOCKS, "right"))
        other = epochs["segment"][at:limit] != epochs["segment"][at]
        same = int(other.argmax()) if other.any() else limit - at
        return at + max(1, min(fits, same))

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
        return Batch(
            begin, end, digest_epochs, digests["region"], digest, digests["digest"], stored, damage
        )

    def _wanted(self, kind: str, begin: int, end: int) -> tuple[Array, Array]:
        """The records of these epochs that are wanted, and the epoch of each."""
        get = self.process.digests if kind == "digests" else self.process.blocks
        records, epochs = get(begin, end), self.process.epoch_of(kind, begin, end)
        if self.wanted is None:
            return records, epochs
        of = np.isin(records["region"], self.wanted)
        return records[of], epochs[of]

    # ---- contents ----

    def _hash(self, blocks: Array) -> tuple[Array, Array]:
        """The digest of each record's stored contents, and whether they are still there."""
        found = blocks["digest"].copy()
        there = np.ones(len(blocks), bool)
        for segment in np.unique(blocks["segment"]).tolist():
            of = np.flatnonzero(blocks["segment"] == segment)
            if segment not in self.process.segments:
                there[of] = False
                continue
            known = self._contents.setdefault(segment, {})
            # An offset is below 2**47: no file is larger.
            place = (blocks["offset"][of] << np.uint64(17)) | blocks["length"][of].astype("u8")
            places, which = np.unique(place, return_inverse=True)
            listed = places.tolist()
            new = [p for p in listed if p not in known]
            if new:
                self._read(segment, new, known)
            found[of] = np.array([known[p] for p in listed], "u8")[which]
        return found, there

    def _read(self, segment: int, places: list[int], known: dict[int, int]) -> None:
        """Hashes contents, places ascending, neighbours read together."""
        offsets = [p >> 17 for p in places]
        ends = [(p >> 17) + (p & 0x1FFFF) for p in places]
        first = 0
        with self.process.data(segment) as file:
            while first < len(places):
                last, end = first, ends[first]
                while (
                    last + 1 < len(places)
                    and offsets[last + 1] - end < 4096
                    and ends[last + 1] - offsets[first] <= READ_AT_ONCE
                ):
                    last += 1
                    end = max(end, ends[last])
                start = offsets[first]
                view = memoryview(file.bytes(start, end - start))
                for i in range(first, last + 1):
                    contents = view[offsets[i] - start : ends[i] - start]
                    known[places[i]] = xxhash.xxh3_64_intdigest(contents)
                    self.bytes_read += len(contents)
                self.blocks_read += last + 1 - first
                first = last + 1

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
    ) -> list[Change]:
        """Where regions' digests may have changed, in the order of the epochs."""
        regions = self.process.regions
        rows = regions.rows(blocks["region"]).astype("u8")
        place = (block_epochs - np.uint32(begin)).astype("u8") * np.uint64(len(regions)) + rows
        order = np.argsort(place, kind="stable")
        place, blocks, found, there = place[order], blocks[order], found[order], there[order]
        starts = np.flatnonzero(np.append(True, place[1:] != place[:-1])) if len(place) else order
        stops = np.append(starts[1:], len(order))
        dropped = self.process.epochs["flags"][digest_epochs] & layout.DROPPED != 0
        changed = np.ones(len(starts), bool)
        if len(starts) and there.all() and not dropped.any():
            new = ~_repeated(rows[order], blocks["block"], place, found)
            changed = np.logical_or.reduceat(new, starts)
        group_epochs = block_epochs[order][starts].tolist()
        group_regions = blocks["region"][starts].tolist()
        todo = [(group_epochs[i], group_regions[i], i) for i in np.flatnonzero(changed).tolist()]
        lost = digest_epochs[dropped].tolist(), digests["region"][dropped].tolist()
        todo += [(epoch, region, -1) for epoch, region in zip(*lost, strict=True)]
        todo.sort()
        out = []
        for epoch, region, i in todo:
            if i < 0:
                self._forget(region)
            else:
                of = slice(starts[i], stops[i])
                self._take(region, blocks["block"][of], found[of], bool(there[of].all()))
            out.append(Change(region, epoch, self._digests.get(region)))
        return out

    def _take(self, region: int, block: Array, digest: Array, there: bool) -> None:
        """A region's blocks have new digests."""
        state = self._states.get(region)
        if state is None and there:
            row = self.process.regions.rows(np.array([region]))
            if len(block) == int(self.process.regions.blocks[row][0]):
                state = self._states[region] = np.empty(len(block), "<u8")
        if state is None or not there:
            self._forget(region)
        else:
            state[block] = digest
            self._digests[region] = xxhash.xxh3_64_intdigest(state.data)

    def _forget(self, region: int) -> None:
        """Contents changed that are not stored: unknown until all blocks are listed again."""
        self._states.pop(region, None)
        self._digests.pop(region, None)


def restart(process: Process, epoch: int) -> int:
    """Where to begin for the state at `epoch`: the earliest of the contexts' last full epochs."""
    epochs = process.epochs[: epoch + 1]
    contexts = epochs["context"]
    unusable = layout.DROPPED | layout.REFUSED
    full = epochs["flags"] & (layout.FULL | unusable) == layout.FULL
    starts = [0] if not len(epochs) else []
    for context in np.unique(contexts):
        usable = np.flatnonzero((contexts == context) & full)
        starts.append(int(usable[-1]) if len(usable) else 0)
    return min(starts)


def _repeated(row: Array, block: Array, place: Array, digest: Array) -> Array:
    """Records whose block had the same digest in its record before; place: ascends by epoch."""
    order = np.lexsort((place, block, row))
    same = np.zeros(len(order), bool)
    now, before = order[1:], order[:-1]
    same[now] = (row[now] == row[before]) & (block[now] == block[before])
    same[now] &= digest[now] == digest[before]
    return same


def _carried_on(
    begin: int, digests: Array, epochs: Array, changes: list[Change], before: dict[int, int]
) -> tuple[Array, Array]:
    """For each digest record, the last digest computed of its region, and whether there is one.

    epochs: of the records. before: the digests that were known when the batch began.
    """
    rows = [(region << 32 | begin, value, True) for region, value in before.items()]
    rows += [(c.region << 32 | c.epoch + 1, c.digest or 0, c.digest is not None) for c in changes]
    if not rows:
        return digests["digest"].copy(), np.zeros(len(digests), bool)
    rows.sort()
    keys = np.array([key for key, _, _ in rows], "u8")
    values = np.array([value for _, value, _ in rows], "u8")
    known = np.array([there for _, _, there in rows], bool)
    region = digests["region"].astype("u8")
    wanted = (region << np.uint64(32)) | (epochs.astype("u8") + np.uint64(1))
    at = np.searchsorted(keys, wanted, "right") - 1
    stored = (at >= 0) & (keys[at] >> np.uint64(32) == region) & known[at]
    return np.asarray(np.where(stored, values[at], digests["digest"])), stored
