"""The memory that a launch found, if copies and sets came between the last epoch and the launch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xxhash

from ttanalyze.errors import Error
from ttanalyze.format import contents
from ttanalyze.format.contents import DataFiles
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.gpu.rebuild.live_regions import LiveRegions
from ttanalyze.gpu.rebuild.steps import Fill, Move, Rows, Upload, cut
from ttanalyze.verbs.replay import Plan


class Prepared:
    """The contents of regions right before a launch.

    arrays: by row, the contents of regions that differ from the epoch before.
    """

    def __init__(self, plan: Plan, before: dict[int, Array]) -> None:
        self._process = plan.process
        self._before = before
        self._birth = plan.process.regions.birth
        self._alive = LiveRegions(self._process, cut(self._process, plan.before) + 1)
        self.arrays: dict[int, Array] = {}
        for step in plan.prepare:
            self._alive.advance(step.seq + 1)
            if isinstance(step.what, Upload):
                self._upload(step.what)
            elif isinstance(step.what, Fill):
                self._fill(step.what)
            elif isinstance(step.what, Move):
                self._move(step.what)

    def pieces(self, row: int, files: DataFiles) -> Iterator[memoryview]:
        """Yields the contents of a region in pieces, nothing if they are unknown."""
        if row in self.arrays:
            yield self.arrays[row].data
        elif row in self._before:
            for _, piece in files.pieces(self._before[row]):
                yield piece

    def changed(self, row: int, after: Array | None) -> bool:
        """Returns whether the launch changed a region."""
        if after is None:
            return False
        if row in self.arrays:
            return bool((digests(self.arrays[row]) != after["digest"]).any())
        before = self._before.get(row)
        return before is None or bool((before["digest"] != after["digest"]).any())

    # ---- what came between ----

    def _memory_at(self, address: int, size: int) -> Array:
        """Returns bytes of memory as a writable array."""
        row = self._alive.find(address)
        if row is None:
            raise Error(f"a copy or a set at {address:#x} is outside of all recorded memory")
        if row not in self.arrays:
            array = np.zeros(int(self._birth["size"][row]), "u1")
            if row in self._before:
                contents.read_blocks(self._process, self._before[row], array)
            self.arrays[row] = array
        start = address - int(self._birth["base"][row])
        return self.arrays[row][start : start + size]

    def _upload(self, what: Upload) -> None:
        end = what.offset + what.reach
        data = contents.read(self._process, what.epoch, what.region, what.offset, end)
        for to, _ in _rows(what.rows):
            self._memory_at(what.dst + to, what.size)[:] = data[to : to + what.size]

    def _fill(self, what: Fill) -> None:
        item = np.frombuffer(what.value.to_bytes(what.item, "little"), "u1")
        for row in range(what.rows):
            target = self._memory_at(what.dst + row * what.pitch, what.size)
            target[:] = np.tile(item, what.size // what.item)

    def _move(self, what: Move) -> None:
        for to, source in _rows(what.rows):
            data = self._memory_at(what.src + source, what.size).copy()
            self._memory_at(what.dst + to, what.size)[:] = data


def _rows(rows: Rows | None) -> Iterator[tuple[int, int]]:
    """Yields the offsets of each row of a copy, at the destination and at the source."""
    if rows is None:
        yield 0, 0
        return
    for part in range(rows.slices):
        for row in range(rows.rows):
            yield (
                (part * rows.dst_height + row) * rows.dst_pitch,
                (part * rows.src_height + row) * rows.src_pitch,
            )


def digests(array: Array) -> Array:
    """Returns the digest of each block of an array."""
    blocks = (array[at : at + BLOCK_SIZE] for at in range(0, len(array), BLOCK_SIZE))
    return np.array([xxhash.xxh3_64_intdigest(block.data) for block in blocks], "u8")
