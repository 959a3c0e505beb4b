"""Computes region digests from the stored contents, epoch by epoch.

Each stored content is read and hashed once, and the digest of a region is computed again only if
one of its blocks changed. Memory is bounded by a batch of epochs, 8 bytes per block of every
region, and 16 bytes per stored content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from ttanalyze._format import ffi
from ttanalyze.format import layout
from ttanalyze.format.digest import digests_of_spans
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.util import libraries
from ttanalyze.util.parallel import workers
from ttanalyze.util.remote import Url

BATCH_BLOCKS = 1 << 18
BATCH_EPOCHS = 1 << 16
WORTH = 1 << 34  # bytes of contents for which processes of their own are worth it
KEPT = 64  # bytes of memory, more than a digest takes while parts are put together
READ_AT_ONCE = 8 << 20  # bytes


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
        self._states = np.zeros(len(process.regions), layout.dtype("region_state"))
        self._words = np.empty(0, "u8")

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
        self._forget_dead(begin)
        digest, stored = self._digests(digests, digest_epochs, blocks, block_epochs, found, there)
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
        out = np.empty(len(location), "u8")
        first = 0
        with self.process.data(segment) as file:
            while first < len(location):
                start = int(offsets[first])
                if not file.plain:
                    length = int(location[first] & 0x1FFFF)
                    out[first] = xxhash.xxh3_64_intdigest(file.contents(start, length))
                    self.bytes_read += length
                    self.blocks_read += 1
                    first += 1
                    continue
                fit = int(np.searchsorted(ends, start + READ_AT_ONCE, "right"))
                gap = int(gaps[np.searchsorted(gaps, first, "right")])
                last = max(first + 1, min(fit, gap))
                begins = offsets[first:last] - start
                lengths = location[first:last] & 0x1FFFF
                read = file.bytes(start, int(ends[last - 1]) - start)
                out[first:last] = digests_of_spans(read, begins, begins + lengths)
                self.bytes_read += int(lengths.sum())
                self.blocks_read += last - first
                first = last
        return out

    # ---- regions ----

    def _digests(
        self,
        digests: Array,
        digest_epochs: Array,
        blocks: Array,
        block_epochs: Array,
        found: Array,
        there: Array,
    ) -> tuple[Array, Array]:
        """Returns the digest of each digest record, computed where it can be, and whether it
        was.
        """
        regions = self.process.regions
        rows = regions.rows(blocks["region"])
        self._make_room(rows)
        digest, stored = digests["digest"].copy(), np.empty(len(digests), bool)
        lost = self.process.epochs["flags"][digest_epochs] & layout.DROPPED != 0
        of_digests = [digest_epochs, regions.rows(digests["region"]).astype("u4"), lost]
        of_blocks = [block_epochs, rows.astype("u4"), blocks["block"].copy(), found, there]
        point = layout.pointer
        members = [
            *(point(self._states, "struct tt_region_state"), len(regions)),
            *(point(self._words), len(self._words)),
            *(*map(point, [*of_digests, digest, stored]), len(digest)),
            *(*map(point, of_blocks), len(rows)),
        ]
        libraries.toolkit().tt_recompute(ffi.new("struct tt_recompute *", members))
        return digest, stored

    def _make_room(self, rows: Array) -> None:
        """Gives words to regions whose blocks may all be listed in one epoch. rows: of records.

        A region that no epoch lists whole gets none, so a file takes no more memory than it has.
        """
        states, blocks = self._states, self.process.regions.blocks
        count = np.bincount(rows, minlength=len(states))
        new = np.flatnonzero((states["room"] == 0) & (count > 0) & (count.astype("u8") >= blocks))
        if not len(new):
            return
        old = np.flatnonzero(states["room"])
        rooms = np.concatenate([states["room"][old], blocks[new]])
        firsts = np.cumsum(rooms) - rooms
        words = np.empty(int(rooms.sum()), "u8")
        kept = int(rooms[: len(old)].sum())
        words[:kept] = self._words[_ranges(states["first"][old], rooms[: len(old)])]
        both = np.concatenate([old, new])
        states["first"][both], states["room"][both] = firsts, rooms
        states["listed"][new] = states["known"][new] = 0
        self._words = words

    def _forget_dead(self, epoch: int) -> None:
        """Drops regions that died. Otherwise memory would grow with every region there was."""
        dead = self.process.regions.died <= epoch
        self._states["room"][dead] = self._states["known"][dead] = 0


def _ranges(firsts: Array, counts: Array) -> Array:
    """Returns the numbers of all ranges of `count` numbers from `first` on, one after the other."""
    skipped = firsts.astype("i8") - (np.cumsum(counts) - counts).astype("i8")
    return np.repeat(skipped, counts.astype("i8")) + np.arange(int(counts.sum()))


def is_cut(processes: Sequence[Process], cluster: str | None) -> bool:
    """Returns whether to read the contents of processes in parts: on a cluster, and on this machine
    if there are so many that to read them side by side is worth to read all of them.
    """
    if cluster is not None:
        return True
    stored = sum(int(process.epochs["bytes_stored"].sum()) for process in processes)
    digests = sum(int(process.epochs["digests_count"].sum()) for process in processes)
    elsewhere = any(isinstance(process.path, Url) for process in processes)
    return stored > max(WORTH, KEPT * digests) and workers(None) > 1 and not elsewhere


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
