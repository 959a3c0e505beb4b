"""The memory of a rank by blocks, in the form in which `diff` compares regions.

Each block of 64 KiB of the regions that all ranks have gets a number, the same on every rank.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, fields

import numpy as np
import xxhash

from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.unread import EPOCH_BITS, EPOCH_MASK, Unread, keys_of
from ttanalyze.verbs.diff.sides import Side

# Memory that was only set holds one of these words again and again: 0, all bits, 1 as f32, as f64,
# as bf16 and as f16.
CONSTANTS = (
    *(b"\0" * 8, b"\xff" * 8, np.float32(1).tobytes() * 2, np.float64(1).tobytes()),
    *(b"\x80\x3f" * 4, np.float16(1).tobytes() * 4),
)


@dataclass(frozen=True)
class Layout:
    """The regions of the first rank that all ranks have.

    size: in bytes. base: the number of the first block of each, and last the number of all blocks.
    """

    size: Array
    base: Array

    @staticmethod
    def of(size: Array) -> Layout:
        blocks = -(-size.astype("i8") // BLOCK_SIZE)
        return Layout(size, np.append(0, np.cumsum(blocks)))

    @property
    def count(self) -> int:
        return int(self.base[-1])

    @property
    def blocks(self) -> Array:
        """The number of blocks of each region."""
        return np.diff(self.base)

    def place(self, block: Array) -> tuple[Array, Array]:
        """Returns the row of the region of each block, and its number in the region."""
        row = np.searchsorted(self.base, block, "right") - 1
        return row, block - self.base[row]

    def bytes_of(self, block: Array) -> int:
        """Returns the size of some blocks together, in bytes."""
        row, number = self.place(block)
        return int(np.minimum(self.size[row].astype("i8") - number * BLOCK_SIZE, BLOCK_SIZE).sum())

    @functools.cached_property
    def constant_digests(self) -> Array:
        """The digests of blocks of each size that hold one of CONSTANTS alone."""
        sizes = set((self.size % BLOCK_SIZE).tolist()) - {0} | {BLOCK_SIZE}
        digest = xxhash.xxh3_64_intdigest
        every = {digest((word * (n // 8 + 1))[:n]) for n in sizes for word in CONSTANTS}
        return np.array(sorted(every), "u8")


@dataclass
class Blocks(Side):
    """A side whose digests are those of blocks.

    whole: the side. ids: of its regions, in the order of `layout`.
    """

    whole: Side = field(kw_only=True)
    ids: Array = field(kw_only=True)
    layout: Layout = field(kw_only=True)

    @staticmethod
    def of(side: Side, ids: Array, layout: Layout) -> Blocks:
        assert side.process is not None, "ranks are recorded processes"
        epochs = side.process.epochs
        ends = (epochs["blocks_first"] + epochs["blocks_count"]).astype("u8")
        same = {f.name: getattr(side, f.name) for f in fields(Side) if f.init}
        return Blocks(**{**same, "digest_end": ends}, whole=side, ids=ids, layout=layout)

    @functools.cached_property
    def _order(self) -> Array:
        return np.argsort(self.ids, kind="stable")

    def _rows(self, region: Array) -> tuple[Array, Array]:
        """Returns the rows of regions, and which of them have one."""
        if not len(self.ids):
            return np.zeros(len(region), "i8"), np.zeros(len(region), bool)
        at = np.minimum(np.searchsorted(self.ids[self._order], region), len(self.ids) - 1)
        row = self._order[at]
        return row, self.ids[row] == region

    @functools.cached_property
    def unread(self) -> Unread:
        """The blocks of the regions that epochs left out."""
        left_out = self.whole.unread
        row, ours = self._rows((left_out.begin >> EPOCH_BITS).astype("u4"))
        row, count = row[ours], self.layout.blocks[row[ours]]
        inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        block = np.repeat(self.layout.base[row], count) + inside
        begin, end = (
            keys_of(block, np.repeat(keys[ours] & EPOCH_MASK, count))
            for keys in (left_out.begin, left_out.end)
        )
        order = np.argsort(begin, kind="stable")
        return Unread(begin[order], end[order])

    def digests(
        self, first: int, end: int, only: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Returns block, epoch and digest of the records of epochs first to end - 1, by epoch.

        only: numbers of blocks, ascending. The records of others may be left out.
        """
        assert self.process is not None
        if only is not None:
            only = np.unique(self.ids[self.layout.place(only)[0]])
        records, epoch = self._kept(self.records(first, end), "blocks", first, end, only)
        row, ours = self._rows(records["region"])
        block = self.layout.base[row[ours]] + records["block"][ours]
        return block, epoch[ours], records["digest"][ours]

    def records(self, first: int, end: int) -> Array:
        """Returns the records of epochs first to end - 1."""
        assert self.process is not None
        return self.process.blocks(first, end)

    def places(self, regions: Array) -> Array:
        """Returns the number of the first block of each region by its id, -1 if it has none.

        regions: the numbers of all blocks.
        """
        assert len(regions) == self.layout.count
        row = super().places(self.ids)
        return np.where(row >= 0, self.layout.base[row], -1)
