"""A region's contents as of an epoch, put together from the blocks that changed.

The newest record of each block up to the epoch holds its contents. Records are looked for
backwards from the epoch, and the search ends once every block is found: at the last full
epoch at the latest. Memory is bounded by the answer and one epoch's records.
"""

from __future__ import annotations

import numpy as np
import xxhash

from ttanalyze.errors import Error, FormatError
from ttanalyze.model import layout
from ttanalyze.model.layout import BLOCK_SIZE, Array
from ttanalyze.model.process import Process


def find_region(process: Process, epoch: int, region: int) -> int:
    """The row of a region in process.regions. Raises Error where the epoch can't hold it."""
    last = len(process.epochs) - 1
    if not 0 <= epoch <= last:
        have = f"epochs 0 to {last}" if last >= 0 else "no epochs"
        raise Error(f"no epoch {epoch}: process {process.index} has {have}")
    regions = process.regions
    row = int(regions.rows(np.array([region]))[0]) if 0 <= region < layout.NO_ID else -1
    if row < 0:
        raise Error(f"no region {region} in process {process.index}")
    born, died = int(regions.born[row]), int(regions.died[row])
    if not regions.flags[row] & layout.CAPTURED:
        raise Error(f"region {region} is not captured: only its life was recorded")
    if not born <= epoch < died:
        until = "the end" if died == layout.NO_EPOCH else f"epoch {died - 1}"
        life = f"it lives from epoch {born} to {until}"
        raise Error(f"region {region} is not there in epoch {epoch}: {life}")
    if process.epochs[epoch]["flags"] & layout.REFUSED:
        raise Error(f"epoch {epoch} was refused: nothing was captured then")
    if (
        process.epochs[epoch]["flags"] & layout.DROPPED
        and not process.epochs[epoch]["digests_count"]
    ):
        raise Error(f"epoch {epoch} was overwritten in the ring: nothing is left of it")
    return row


def block_records(process: Process, epoch: int, region: int, check: bool = True) -> Array:
    """The tt_block record of every block of a region as of an epoch, by block.

    Raises Error where the contents were never recorded or are lost, and FormatError where
    the region's digest is not that of its blocks, unless check is False.
    """
    row = find_region(process, epoch, region)
    wanted = int(process.regions.blocks[row])
    found = np.empty(0, layout.BLOCK)
    digest = None
    for number in range(epoch, int(process.regions.born[row]) - 1, -1):
        flags = int(process.epochs[number]["flags"])
        digests = process.digests(number, number + 1)
        digests = digests[digests["region"] == region]
        if len(digests):
            digest = int(digests["digest"][0]) if digest is None else digest
            if flags & layout.DROPPED:
                break
            records = process.blocks(number, number + 1)
            records = records[records["region"] == region]
            records = records[~np.isin(records["block"], found["block"])]
            found = np.concatenate([found, records])
        if digest is not None and len(found) == wanted:
            found = found[np.argsort(found["block"])]
            if check:
                _check_digest(process, number, region, digest, found)
            return found
    if digest is None:
        raise Error(f"region {region} was not captured up to epoch {epoch}")
    raise Error(
        f"the contents of region {region} in epoch {epoch} are lost: "
        f"{wanted - len(found)} of its {wanted} blocks were overwritten before they were stored"
    )


def _check_digest(process: Process, epoch: int, region: int, digest: int, blocks: Array) -> None:
    if xxhash.xxh3_64_intdigest(np.ascontiguousarray(blocks["digest"]).data) != digest:
        path = process.path / "digests.bin"
        where = f"region {region}, epoch {epoch}"
        raise FormatError(path, where, "the region's digest is not that of its blocks")


def read_blocks(process: Process, records: Array, out: Array, check: bool = True) -> None:
    """Fills out (uint8) with the contents of blocks, one behind the other.

    Raises FormatError where contents do not have their digest, unless check is False.
    """
    lengths = records["length"].astype("i8")
    ends = np.cumsum(lengths)
    starts = ends - lengths
    jumps = records["offset"][1:] != records["offset"][:-1] + records["length"][:-1].astype("u8")
    jumps |= records["segment"][1:] != records["segment"][:-1]
    runs = np.concatenate([[0], np.flatnonzero(jumps) + 1, [len(records)]])
    view = out.data
    for first, last in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
        if first < last:
            with process.data(int(records["segment"][first])) as file:
                file.into(int(records["offset"][first]), view[starts[first] : ends[last - 1]])
    if check:
        digests = records["digest"].tolist()
        for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            if xxhash.xxh3_64_intdigest(view[start:end]) != digests[i]:
                path = process.segments[int(records["segment"][i])].path
                what = f"block {int(records['block'][i])} of region {int(records['region'][i])}"
                reason = f"{what} does not match its digest"
                raise FormatError(path, int(records["offset"][i]), reason)


def read(
    process: Process, epoch: int, region: int, start: int = 0, stop: int | None = None
) -> Array:
    """Bytes [start, stop) of a region as of an epoch, as uint8. Every block read is checked.

    Raises Error where the region or the epoch does not exist or its contents are lost, and
    FormatError where they are damaged.
    """
    records = block_records(process, epoch, region)
    size = int(records["length"].sum(dtype="u8"))
    stop = size if stop is None else stop
    if not 0 <= start <= stop <= size:
        raise Error(f"bytes {start} to {stop} do not lie in region {region}: it has {size}")
    first, last = start // BLOCK_SIZE, layout.blocks_of(stop)
    records = records[first:last]
    out = np.empty(int(records["length"].sum(dtype="u8")), np.uint8)
    read_blocks(process, records, out)
    return out[start - first * BLOCK_SIZE : stop - first * BLOCK_SIZE]
