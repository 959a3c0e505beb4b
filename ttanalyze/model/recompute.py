"""Region digests computed anew from the stored contents, epoch after epoch.

Every stored content is read and hashed once, however many epochs refer to it, and a region's
digest is computed again only where one of its blocks changed. Works through the run in
batches of epochs; memory is bounded by a batch, 8 bytes per block of every region, and 16 bytes
per stored content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xxhash

from ttanalyze.model import layout
from ttanalyze.model.digest import digests_of_words
from ttanalyze.model.layout import Array
from ttanalyze.model.process import Process

BATCH_BLOCKS = 1 << 18
BATCH_EPOCHS = 1 << 16
READ_AT_ONCE = 8 << 20  # bytes
ONE = np.uint64(1)


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


class Changes(NamedTuple):
    """Regions' digests from epochs on, one row each. known: whether there is one."""

    region: Array
    epoch: Array
    digest: Array
    known: Array


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


class Contents:
    """The digests of a segment's contents, by place: where they are and how long.

    Kept as sorted runs, each longer than the next, so that neither a look-up nor what is added
    takes longer for all that there is already.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[Array, Array]] = []

    def find(self, places: Array) -> tuple[Array, Array]:
        """For each place the digest, and whether it is known."""
        digests, known = np.zeros(len(places), "u8"), np.zeros(len(places), bool)
        for keys, values in self.runs:
            at = np.searchsorted(keys, places)
            at[at == len(keys)] = 0
            here = keys[at] == places
            digests[here] = values[at[here]]
            known |= here
        return digests, known

    def add(self, places: Array, digests: Array) -> None:
        """Places ascending, at least one, none of them known."""
        while self.runs and len(self.runs[-1][0]) <= len(places):
            keys, values = self.runs.pop()
            places, digests = np.concatenate([keys, places]), np.concatenate([values, digests])
            order = np.argsort(places, kind="stable")
            places, digests = places[order], digests[order]
        self.runs.append((places, digests))


class Recompute:
    """The pass over one process's epochs first to last, of all regions or of those wanted."""

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
        for segment in layout.distinct(blocks["segment"]).tolist():
            of = np.flatnonzero(blocks["segment"] == segment)
            if segment not in self.process.segments:
                there[of] = False
                continue
            known = self._contents.setdefault(segment, Contents())
            # An offset is below 2**47: no file is larger.
            place = (blocks["offset"][of] << np.uint64(17)) | blocks["length"][of].astype("u8")
            places, which = place, np.arange(len(place))
            if (place[1:] <= place[:-1]).any():
                places, which = np.unique(place, return_inverse=True)
            digests, old = known.find(places)
            new = places[~old]
            if len(new):
                digests[~old] = self._read(segment, new)
                known.add(new, digests[~old])
            found[of] = digests[which]
        return found, there

    def _read(self, segment: int, places: Array) -> Array:
        """The digests of contents, places ascending; neighbours are read together."""
        place = places.astype("i8")
        offsets = place >> 17
        ends = np.maximum.accumulate(offsets + (place & 0x1FFFF))
        gaps = np.append(np.flatnonzero(offsets[1:] - ends[:-1] >= 4096) + 1, len(place))
        digest = xxhash.xxh3_64_intdigest
        out = np.empty(len(place), "u8")
        first = 0
        with self.process.data(segment) as file:
            while first < len(place):
                start = int(offsets[first])
                if not file.plain:
                    length = int(place[first] & 0x1FFFF)
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
                lengths = place[first:last] & 0x1FFFF
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
        """Where regions' digests may have changed."""
        regions = self.process.regions
        rows = regions.rows(blocks["region"])
        place = (block_epochs - np.uint32(begin)).astype("u8") * np.uint64(len(regions))
        place += rows.astype("u8")
        order = np.lexsort((blocks["block"], place))
        place, rows, blocks = place[order], rows[order], blocks[order]
        found, there = found[order], there[order]
        starts = np.flatnonzero(np.append(True, place[1:] != place[:-1])) if len(place) else order
        stops = np.append(starts[1:], len(order))
        row = rows[starts]
        dropped = self.process.epochs["flags"][digest_epochs] & layout.DROPPED != 0
        changed = np.ones(len(starts), bool)
        if len(starts) and there.all() and not dropped.any():
            new = ~_repeated(rows, blocks["block"], place, found)
            changed = np.logical_or.reduceat(new, starts)
        # Where every change of a region lists all of its blocks, none needs what was before it.
        alone = stops - starts == regions.blocks[row]
        if len(starts):
            alone &= np.logical_and.reduceat(there, starts)
        in_parts = np.zeros(len(regions), bool)
        in_parts[row[changed & ~alone]] = True
        in_parts[regions.rows(digests["region"][dropped])] = True
        epoch, region = block_epochs[order][starts], blocks["region"][starts]

        whole = np.flatnonzero(changed & ~in_parts[row])
        values = self._take_all(region[whole], starts[whole], stops[whole], found)

        todo = [
            (int(epoch[i]), int(region[i]), i)
            for i in np.flatnonzero(changed & in_parts[row]).tolist()
        ]
        lost = digest_epochs[dropped].tolist(), digests["region"][dropped].tolist()
        todo += [(e, r, -1) for e, r in zip(*lost, strict=True)]
        todo.sort()
        for _, r, i in todo:
            if i < 0:
                self._forget(r)
            else:
                of = slice(starts[i], stops[i])
                self._take(r, blocks["block"][of], found[of], bool(there[of].all()))
            values.append(self._digests.get(r))
        return Changes(
            np.concatenate([region[whole], np.array([r for _, r, _ in todo], "u4")]),
            np.concatenate([epoch[whole], np.array([e for e, _, _ in todo], "u4")]),
            np.array([value or 0 for value in values], "u8"),
            np.array([value is not None for value in values], bool),
        )

    def _take_all(
        self, regions: Array, starts: Array, stops: Array, found: Array
    ) -> list[int | None]:
        """Regions get found[start:stop] as their blocks' digests; gives their own, in order."""
        words = digests_of_words(found[starts])
        several = np.flatnonzero(stops - starts > 1)
        raw = found.astype("<u8").tobytes()  # whose pieces are mostly small: views would cost more
        spans = zip((starts[several] * 8).tolist(), (stops[several] * 8).tolist(), strict=True)
        digest = xxhash.xxh3_64_intdigest
        words[several] = np.array([digest(raw[a:b]) for a, b in spans], "u8")
        values: list[int | None] = words.tolist()
        last = dict(zip(regions.tolist(), range(len(values)), strict=True))
        for region, i in last.items():
            self._states[region] = found[starts[i] : stops[i]].astype("<u8")
            value = values[i]
            assert value is not None, "these are all known"
            self._digests[region] = value
        return values

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
    begin: int, digests: Array, epochs: Array, changes: Changes, before: dict[int, int]
) -> tuple[Array, Array]:
    """For each digest record, the last digest computed of its region, and whether there is one.

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
