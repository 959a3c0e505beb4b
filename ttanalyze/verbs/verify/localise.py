"""Describes a difference in the contents of a region: its allocation, blocks and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xxhash

from ttanalyze.core.bytewise import Contents, compare_bytes, origin, unequal_blocks
from ttanalyze.core.tensors import tensor_at
from ttanalyze.errors import Error
from ttanalyze.format import contents
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.format.recompute import Damage
from ttanalyze.format.spans import data_name

if TYPE_CHECKING:
    from ttanalyze.verbs.verify.report import Difference

LISTED_BLOCKS = 16


class Tamper:
    """A byte of a region in one epoch that the comparison sees inverted. The run stays unchanged.

    Args:
        process: The process.
        epoch: The number of the epoch.
        region: The id of the region.
        offset: The offset of the byte in the region.

    Attributes:
        epoch: The number of the epoch.
        region: The id of the region.
        offset: The offset of the byte in the region.
        digest: The digest of the region with the inverted byte.

    Raises:
        Error: The region has no such byte in this epoch.
    """

    def __init__(self, process: Process, epoch: int, region: int, offset: int) -> None:
        records = contents.block_records(process, epoch, region)
        size = int(records["length"].sum(dtype="u8"))
        if not 0 <= offset < size:
            raise Error(f"tamper: no byte {offset} in region {region}: it has {size}")
        self.epoch = epoch
        self.region = region
        self.offset = offset
        side = Side(process, records, self)
        digests = np.ascontiguousarray(records["digest"])
        block = offset // BLOCK_SIZE
        digests[block] = xxhash.xxh3_64_intdigest(side.block(block).data)
        self.digest: int = xxhash.xxh3_64_intdigest(digests.data)


class Side(Contents):
    """The stored contents of a region in an epoch, valid or not. tamper: a byte to invert."""

    def __init__(self, process: Process, records: Array, tamper: Tamper | None = None) -> None:
        super().__init__(process, records, check=False)
        self.tamper = tamper

    def block(self, index: int) -> Array:
        out = super().block(index)
        if self.tamper is not None and self.tamper.offset // BLOCK_SIZE == index:
            out[self.tamper.offset % BLOCK_SIZE] ^= 0xFF
        return out


class Localiser:
    """Adds details to differences of one process. other: the same process of the run of the
    manifest.
    """

    def __init__(self, process: Process, other: Process | None) -> None:
        self.process = process
        self.other = other
        self.damage: list[Damage] = []
        self.tamper: Tamper | None = None

    def fill_in(self, difference: Difference) -> None:
        """Adds details to a difference that has a region."""
        assert difference.region is not None
        row = int(self.process.regions.rows(np.array([difference.region]))[0])
        if row < 0:
            return
        difference.origin = origin(self.process, row)
        if difference.kind != "contents" or difference.actual is None:
            return
        assert difference.epoch is not None
        try:
            self._contents(difference, difference.epoch, difference.region)
        except Error as e:
            difference.note = str(e)

    def _contents(self, difference: Difference, epoch: int, region: int) -> None:
        changed = self._changed(epoch, region)
        difference.changed_blocks = changed[:LISTED_BLOCKS].tolist()
        difference.changed_block_count = len(changed)
        difference.recorded = self._recorded(epoch, region)
        records = contents.block_records(self.process, epoch, region, check=False)
        damaged = self._damaged(records)
        tamper = self.tamper
        if tamper is not None and (tamper.epoch, tamper.region) != (epoch, region):
            tamper = None
        if len(damaged) or (tamper is None and difference.recorded != difference.actual):
            difference.kind = "stored"
            difference.message = (
                f"region {region}: the stored contents of epoch {epoch} are not the recorded ones"
            )
        difference.damaged = [
            {
                "block": int(record["block"]),
                "file": f"p{self.process.index}/{data_name(int(record['segment']))}",
                "offset": int(record["offset"]),
            }
            for record in records[damaged[:LISTED_BLOCKS]]
        ]
        actual = Side(self.process, records, tamper)
        if self.other is not None:
            theirs = contents.block_records(self.other, epoch, region)
            expected = Side(self.other, theirs)
            blocks = set(unequal_blocks(theirs, records)) | set(damaged.tolist())
        elif tamper is not None:
            expected = Side(self.process, records)
            blocks = set()
        else:
            return
        if tamper is not None:
            blocks.add(tamper.offset // BLOCK_SIZE)
        difference.differing_blocks = sorted(blocks)[:LISTED_BLOCKS]
        difference.differing_block_count = len(blocks)
        _compare(difference, expected, actual, sorted(blocks))
        self._name(difference, epoch, region)

    def _name(self, difference: Difference, epoch: int, region: int) -> None:
        """Adds the tensor of the first byte, from this run or else the other."""
        if difference.first_byte is None:
            return
        for process in (self.process, self.other):
            tensor = tensor_at(process, region, difference.first_byte, epoch=epoch)
            if tensor is not None:
                difference.tensor, difference.tensor_type = tensor.name, tensor.type
                difference.tensor_offset, difference.tensor_element = tensor.offset, tensor.element
                return

    def _recorded(self, epoch: int, region: int) -> str | None:
        for number in range(epoch, -1, -1):
            digests = self.process.digests(number, number + 1)
            digests = digests[digests["region"] == region]
            if len(digests):
                return f"{int(digests['digest'][0]):016x}"
        return None

    def _changed(self, epoch: int, region: int) -> Array:
        """Returns the blocks that the epoch changed, ascending."""
        records = self.process.blocks(epoch, epoch + 1)
        records = np.sort(records[records["region"] == region], order="block")
        try:
            before = contents.block_records(self.process, epoch - 1, region, check=False)
        except Error:
            return records["block"]
        changed: Array = records["digest"] != before["digest"][records["block"]]
        return np.asarray(records["block"][changed])

    def _damaged(self, records: Array) -> Array:
        """Returns the blocks with damaged stored contents, ascending."""
        places = {(d.segment, d.offset) for d in self.damage}
        pairs = zip(records["segment"].tolist(), records["offset"].tolist(), strict=True)
        return np.flatnonzero(np.fromiter((pair in places for pair in pairs), bool, len(records)))


def _compare(difference: Difference, expected: Side, actual: Side, blocks: list[int]) -> None:
    """Counts the bytes that differ in these blocks, and shows the first."""
    found = compare_bytes(expected, actual, blocks)
    difference.differing_bytes = found.count if found else 0
    if found is None:
        difference.note = "the bytes are the same: the manifest is not of the run compared with"
        return
    difference.first_byte, difference.last_byte = found.first, found.last
    difference.window = found.window
