"""Finds out what is known of a difference in a region's contents: whose memory, which bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from ttanalyze.errors import Error
from ttanalyze.model import contents, layout
from ttanalyze.model.layout import BLOCK_SIZE, Array
from ttanalyze.model.process import Process, data_name
from ttanalyze.model.recompute import Damage

if TYPE_CHECKING:
    from ttanalyze.verify.check import Difference

LISTED_BLOCKS = 16
WINDOW = 64  # bytes shown around the first one that differs


class Tamper:
    """A byte of a region in one epoch, inverted in what is verified and nowhere else.

    digest: the region's digest with it.
    """

    def __init__(self, process: Process, epoch: int, region: int, offset: int) -> None:
        """Raises Error where there is no such byte."""
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


class Side:
    """A region's contents as of an epoch, unchecked, block by block; tamper: a byte inverted."""

    def __init__(self, process: Process, records: Array, tamper: Tamper | None = None) -> None:
        self.process = process
        self.records = records
        self.tamper = tamper
        self.size = int(records["length"].sum(dtype="u8"))

    def block(self, index: int) -> Array:
        """The bytes of a block; empty behind the region's end."""
        record = self.records[index : index + 1]
        out = np.empty(int(record["length"].sum()), np.uint8)
        contents.read_blocks(self.process, record, out, check=False)
        if self.tamper is not None and self.tamper.offset // BLOCK_SIZE == index:
            out[self.tamper.offset % BLOCK_SIZE] ^= 0xFF
        return out

    def bytes(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), as far as there are any."""
        first, last = start // BLOCK_SIZE, layout.blocks_of(min(stop, self.size))
        parts = b"".join(self.block(i).tobytes() for i in range(first, last))
        return parts[start - first * BLOCK_SIZE : stop - first * BLOCK_SIZE]


class Localiser:
    """Looks into one process, and into the same one of the run that a manifest was made of."""

    def __init__(self, process: Process, other: Process | None) -> None:
        self.process = process
        self.other = other
        self.damage: list[Damage] = []
        self.tamper: Tamper | None = None

    def fill_in(self, difference: Difference) -> None:
        """Adds what can be found out to a difference that has a region."""
        assert difference.region is not None
        row = int(self.process.regions.rows(np.array([difference.region]))[0])
        if row < 0:
            return
        difference.origin = self._origin(row)
        if difference.kind != "contents" or difference.actual is None:
            return
        assert difference.epoch is not None
        try:
            self._contents(difference, difference.epoch, difference.region)
        except Error as e:
            difference.note = str(e)

    def _origin(self, row: int) -> dict[str, Any]:
        regions, process = self.process.regions, self.process
        birth = regions.birth[row]
        seq = int(birth["seq"])
        events = process.events
        at = int(np.searchsorted(events["seq"], seq))
        known = at < len(events) and int(events["seq"][at]) == seq
        return {
            "kind": layout.REGION_KINDS[int(birth["kind"])],
            "label": process.strings.get(int(regions.label[row])),
            "size": int(birth["size"]),
            "base": int(birth["base"]),
            "call": process.call(int(birth["call"])),
            "seq": seq,
            "thread": int(events["thread"][at]) if known else None,
        }

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
                f"region {region}: not what was recorded is stored for epoch {epoch}"
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
            common = min(len(theirs), len(records))
            differs = theirs["digest"][:common] != records["digest"][:common]
            blocks = set(np.flatnonzero(differs).tolist()) | set(damaged.tolist())
            blocks |= set(range(common, max(len(theirs), len(records))))
        elif tamper is not None:
            expected = Side(self.process, records)
            blocks = set()
        else:
            return
        if tamper is not None:
            blocks.add(tamper.offset // BLOCK_SIZE)
        _compare(difference, expected, actual, sorted(blocks))

    def _recorded(self, epoch: int, region: int) -> str | None:
        for number in range(epoch, -1, -1):
            digests = self.process.digests(number, number + 1)
            digests = digests[digests["region"] == region]
            if len(digests):
                return f"{int(digests['digest'][0]):016x}"
        return None

    def _changed(self, epoch: int, region: int) -> Array:
        """The blocks that are not as in the epoch before, ascending."""
        records = self.process.blocks(epoch, epoch + 1)
        records = np.sort(records[records["region"] == region], order="block")
        try:
            before = contents.block_records(self.process, epoch - 1, region, check=False)
        except Error:
            return records["block"]
        changed: Array = records["digest"] != before["digest"][records["block"]]
        return np.asarray(records["block"][changed])

    def _damaged(self, records: Array) -> Array:
        """The blocks whose stored contents were found damaged, ascending."""
        places = {(d.segment, d.offset) for d in self.damage}
        pairs = zip(records["segment"].tolist(), records["offset"].tolist(), strict=True)
        return np.flatnonzero(np.fromiter((pair in places for pair in pairs), bool, len(records)))


def _compare(difference: Difference, expected: Side, actual: Side, blocks: list[int]) -> None:
    """Counts the bytes that differ in these blocks, and shows the first of them."""
    count, first, last = 0, None, None
    for index in blocks:
        theirs, ours = expected.block(index), actual.block(index)
        common = min(len(theirs), len(ours))
        at = np.flatnonzero(theirs[:common] != ours[:common])
        more = max(len(theirs), len(ours)) - common
        if len(at) or more:
            start = index * BLOCK_SIZE
            first = start + int(at[0] if len(at) else common) if first is None else first
            last = start + (common + more - 1 if more else int(at[-1]))
            count += len(at) + more
    difference.differing_bytes = count
    if first is None:
        difference.note = "the bytes are the same: the manifest is not of the run compared with"
        return
    difference.first_byte, difference.last_byte = first, last
    start = max(0, first // 16 * 16 - 16)
    difference.window = {
        "offset": start,
        "expected": expected.bytes(start, start + WINDOW).hex(),
        "actual": actual.bytes(start, start + WINDOW).hex(),
    }
