"""Reads the contents of regions in an epoch, from the blocks that changed.

The newest record of a block up to the epoch has its contents. The search goes back from the epoch
and ends at the last full epoch at the latest. Memory is bounded by the result and the records of
one epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xxhash

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout
from ttanalyze.format.data import DataReader
from ttanalyze.format.labels import Part
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process

BATCH_RECORDS = 1 << 17  # looked at at once, but where one epoch has more
READ_BLOCKS = 16  # read at once: what stays in a processor's cache to be checked and used
SHARE_BLOCKS = 1024  # of what several threads go through, each one's part
THREADS = 2
OPEN_FILES = 16
LISTED = "`ttanalyze query --table regions` lists them"
NO_LIMIT = np.uint64((1 << 64) - 1)


def check_epoch(process: Process, epoch: int) -> None:
    """Raises Error if the epoch does not exist or has no contents."""
    last = len(process.epochs) - 1
    if not 0 <= epoch <= last:
        have = f"epochs 0 to {last}" if last >= 0 else "no epochs"
        raise Error(f"no epoch {epoch}: process {process.index} has {have}")
    if process.epochs[epoch]["flags"] & layout.REFUSED:
        raise Error(f"epoch {epoch} was refused: it has no contents")
    if (
        process.epochs[epoch]["flags"] & layout.DROPPED
        and not process.epochs[epoch]["digests_count"]
    ):
        raise Error(f"epoch {epoch} was overwritten in the ring: its contents are lost")


def next_captured(process: Process, epoch: int, stop: int) -> int | None:
    """Returns the first of epochs `epoch` to `stop` - 1 with contents, None if there is none."""
    some = process.epochs[epoch:stop]
    empty = (some["flags"] & layout.DROPPED != 0) & (some["digests_count"] == 0)
    there = np.flatnonzero((some["flags"] & layout.REFUSED == 0) & ~empty)
    return epoch + int(there[0]) if len(there) else None


def region_row(process: Process, region: int) -> int:
    """Returns the row of a region in process.regions. Raises Error if it does not exist."""
    known = 0 <= region < layout.NO_ID
    row = int(process.regions.rows(np.array([region]))[0]) if known else -1
    if row < 0:
        raise Error(f"no region {region} in process {process.index}: {LISTED}")
    return row


def captured_row(process: Process, region: int) -> int:
    """Returns the row of a captured region in process.regions. Raises Error if it does not
    exist.
    """
    row = region_row(process, region)
    if not process.regions.flags[row] & layout.CAPTURED:
        raise Error(f"region {region} is not captured: only its life was recorded")
    return row


def find_region(process: Process, epoch: int, region: int) -> int:
    """Returns the row of a region in process.regions. Raises Error if the epoch cannot have it."""
    check_epoch(process, epoch)
    row = captured_row(process, region)
    born, died = int(process.regions.born[row]), int(process.regions.died[row])
    if not born <= epoch < died:
        until = "the end" if died == layout.NO_EPOCH else f"epoch {died - 1}"
        life = f"it lives from epoch {born} to {until}"
        raise Error(f"region {region} does not exist in epoch {epoch}: {life}")
    return row


def block_records(
    process: Process,
    epoch: int,
    region: int,
    check: bool = True,
    first: int = 0,
    last: int | None = None,
) -> Array:
    """Returns the tt_block record of each block of a region in an epoch, or of blocks first to last
    - 1.

    Raises Error if the contents are gone or never were recorded. Raises FormatError if the digest
    of the region is not that of its blocks, unless check is False.
    """
    search = _Search(process, epoch, [region], first, last)
    search.run()
    if search.stale(0) and not search.whole(0):  # the region's digest may tell that they are right
        return block_records(process, epoch, region)[first:last]
    return search.result(0, check)


def snapshot_all(process: Process, epoch: int) -> tuple[dict[int, Array], list[int]]:
    """Returns the block_records of all captured regions that live in an epoch, by id, and the ids
    of those that no epoch has captured yet.
    """
    search = _search_all(process, epoch)
    known = list(zip(search.regions, search.known.tolist(), strict=True))
    found = {r: search.result(i, check=True) for i, (r, seen) in enumerate(known) if seen}
    return found, [r for r, seen in known if not seen]


def snapshot_left(process: Process, epoch: int, region: int | None = None) -> tuple[Array, int]:
    """Returns the block records of a region, or of all live regions, in an epoch, and the number of
    blocks whose contents are gone.
    """
    search = _search_all(process, epoch, region)
    parts, lost = [np.empty(0, layout.BLOCK)], 0
    for i in np.flatnonzero(search.known).tolist():
        try:
            parts.append(search.result(i, check=True))
        except FormatError:
            raise
        except Error:
            lost += int(process.regions.blocks[captured_row(process, search.regions[i])])
    return np.concatenate(parts), lost


def require_stored(process: Process, epoch: int, region: int, records: Array) -> None:
    """Raises Error if blocks of a region have digests only. records: its block_records."""
    missing = int(np.count_nonzero(records["segment"] == layout.NO_SEGMENT))
    if missing:
        raise Error(
            f"the contents of region {region} in epoch {epoch} were not stored: {missing} of "
            f"{len(records)} blocks have digests only ({process.why_digests})"
        )


def _search_all(process: Process, epoch: int, region: int | None = None) -> _Search:
    check_epoch(process, epoch)
    regions = process.regions
    alive = (regions.born <= epoch) & (epoch < regions.died)
    alive &= True if region is None else regions.id == region
    ids: list[int] = regions.id[alive & (regions.flags & layout.CAPTURED != 0)].tolist()
    search = _Search(process, epoch, ids)
    search.run()
    return search


def _records_in(process: Process, begin: int, end: int) -> int:
    bounds = (process.span_bounds(kind, begin, end) for kind in ("digests", "blocks"))
    return sum(last - first for first, last in bounds)


class _Search:
    """A search for the newest records of blocks up to an epoch, back in time."""

    def __init__(
        self,
        process: Process,
        epoch: int,
        regions: list[int],
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """first, last: the blocks of each region to look for."""
        self.process = process
        self.epoch = epoch
        self.regions = regions
        rows = [find_region(process, epoch, region) for region in regions]
        self._begin = int(process.regions.born[rows].min()) if rows else epoch + 1
        self._order = np.argsort(np.array(regions, "u4"), kind="stable")
        self._ids = np.array(regions, "u4")[self._order]
        self._first = first
        whole = process.regions.blocks[rows]
        self._lasts = np.minimum(whole, NO_LIMIT if last is None else np.uint64(last))
        counts = self._lasts - np.minimum(self._lasts, np.uint64(first))
        self._whole = counts == whole
        # A region can't have been captured with more blocks than there are records: of that one
        # none is looked for, so that no file can ask for more memory than it takes itself.
        self._room = max(_records_in(process, self._begin, epoch + 1), BATCH_RECORDS)
        self._lasts[counts > self._room] = 0
        self._short = counts > self._room
        counts[self._short] = 0
        self._ends = np.cumsum(counts.astype("i8"))
        self._starts = self._ends - counts.astype("i8")
        self._records = np.zeros(int(counts.sum()), layout.BLOCK)
        self._epochs = np.full(len(self._records), -1, "i8")  # of the records; -1: none yet
        self._digests = np.zeros(len(rows), "u8")
        self.known = np.zeros(len(rows), bool)
        self._dropped = np.full(len(rows), -1, "i8")  # the last epoch whose contents are lost

    def run(self) -> None:
        """Goes back in growing batches of epochs until all blocks are found."""
        begin, batch = self.epoch + 1, 1
        while begin > self._begin and not (self.known.all() and (self._epochs >= 0).all()):
            end, begin = begin, max(self._begin, begin - batch)
            while begin < end - 1 and _records_in(self.process, begin, end) > BATCH_RECORDS:
                begin = (begin + end) // 2
            self._look(begin, end)
            batch *= 2

    def _look(self, begin: int, end: int) -> None:
        """Takes records of epochs begin to end - 1 for blocks that later epochs do not have.

        If a slot gets several values, numpy keeps the last, which is the newest.
        """
        digests = self.process.digests(begin, end)
        at, which = self._ours(digests)
        epochs = self.process.epoch_of("digests", begin, end)[at].astype("i8")
        dropped = self.process.epochs["flags"][epochs] & layout.DROPPED != 0
        np.maximum.at(self._dropped, which[dropped], epochs[dropped])
        new = ~self.known[which]
        self._digests[which[new]] = digests["digest"][at[new]]
        self.known[which] = True
        blocks = self.process.blocks(begin, end)
        at, which = self._ours(blocks)
        inside = (blocks["block"][at] >= self._first) & (blocks["block"][at] < self._lasts[which])
        at, which = at[inside], which[inside]
        slot = self._starts[which] + blocks["block"][at] - self._first
        new = self._epochs[slot] < 0
        at, slot = at[new], slot[new]
        layout.whole(self._records)[slot] = layout.whole(blocks)[at]
        self._epochs[slot] = self.process.epoch_of("blocks", begin, end)[at]

    def _ours(self, records: Array) -> tuple[Array, Array]:
        """Returns which records belong to our regions, and the index of the region of each."""
        found = np.minimum(np.searchsorted(self._ids, records["region"]), len(self._ids) - 1)
        at = np.flatnonzero(self._ids[found] == records["region"])
        return at, self._order[found[at]]

    def whole(self, i: int) -> bool:
        """Returns whether all blocks of a region were looked for."""
        return bool(self._whole[i])

    def stale(self, i: int) -> int:
        """Returns the number of blocks of a region that were not found or may have changed
        since.
        """
        epochs = self._epochs[self._starts[i] : self._ends[i]]
        return int(np.count_nonzero(epochs < max(0, int(self._dropped[i]))))

    def result(self, i: int, check: bool) -> Array:
        """Returns the records of one region. Raises Error and FormatError as block_records does."""
        region, of = self.regions[i], slice(self._starts[i], self._ends[i])
        if not self.known[i]:
            raise Error(f"region {region} was not captured up to epoch {self.epoch}")
        if self._short[i]:
            what = f"at most {self._room} of its blocks were stored"
            raise Error(f"the contents of region {region} in epoch {self.epoch} are lost: {what}")
        records = self._records[of]
        stale = self.stale(i)
        if stale or (check and self._whole[i]):
            digests = np.ascontiguousarray(records["digest"])
            good = xxhash.xxh3_64_intdigest(digests.data) == int(self._digests[i])
            good &= bool(self._whole[i])
            if stale and not good:
                why = self.process.digests_only
                raise Error(
                    f"the contents of region {region} in epoch {self.epoch} are lost: {stale} of "
                    f"its {len(records)} blocks were not stored" + (f" ({why})" if why else "")
                )
            if not good:
                path = self.process.path / "digests.bin"
                where = f"region {region}, epoch {self.epoch}"
                raise FormatError(path, where, "the region's digest is not that of its blocks")
        return records


class DataFiles:
    """The data files of a process, kept open for a `with` block."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._open: dict[int, DataReader] = {}

    def __enter__(self) -> DataFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._open.values():
            reader.close()
        self._open.clear()

    def get(self, segment: int) -> DataReader:
        """Returns a data file by its number. Raises Error if it was removed."""
        if segment not in self._open:
            if len(self._open) == OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            self._open[segment] = self._process.data(segment)
        return self._open[segment]

    def read(self, records: Array, out: memoryview, check: bool = True) -> None:
        """Fills out with the contents of consecutive blocks.

        Raises FormatError if contents do not have their digest, unless check is False.
        """
        digests = records["digest"].tolist() if check else []
        for segment, offset, begin, end, first, stop in _runs(records):
            part = out[begin:end]
            self.get(segment).fill(offset, part)
            if check:
                found = _digests(part)
                if found != digests[first:stop]:
                    self._refuse(records[first:stop], found)

    def pieces(self, records: Array) -> Iterator[tuple[int, memoryview]]:
        """Yields the contents of consecutive blocks with their positions. Each piece is valid until
        the next.

        Raises FormatError if contents do not have their digest.
        """
        buffer = np.empty(READ_BLOCKS * BLOCK_SIZE, np.uint8).data
        digests = records["digest"].tolist()
        for segment, offset, begin, end, first, stop in _runs(records):
            piece = buffer[: end - begin]
            self.get(segment).fill(offset, piece)
            found = _digests(piece)
            if found != digests[first:stop]:
                self._refuse(records[first:stop], found)
            yield begin, piece

    def compare(self, records: Array, data: Array) -> None:
        """Raises FormatError if the contents of blocks, BLOCK_SIZE apart in data (uint8), do not
        have their digests.
        """
        digest, lengths = xxhash.xxh3_64_intdigest, records["length"].tolist()
        starts = range(0, len(lengths) * BLOCK_SIZE, BLOCK_SIZE)
        pairs = zip(starts, lengths, strict=True)
        found = [digest(data[start : start + length].data) for start, length in pairs]
        if found != records["digest"].tolist():
            self._refuse(records, found)

    def _refuse(self, records: Array, found: list[int]) -> None:
        bad = records[records["digest"] != np.array(found, "u8")][0]
        what = f"block {int(bad['block'])} of region {int(bad['region'])}"
        path = self._process.segments[int(bad["segment"])].path
        raise FormatError(path, int(bad["offset"]), f"{what} does not match its digest")


def _runs(records: Array) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yields records to read together: segment, offset, begin and end in the contents, first, stop.

    A run has at most READ_BLOCKS records. Only its last block may be short.
    """
    ends = np.append(0, np.cumsum(records["length"], dtype="i8"))
    follows = records["offset"][1:] == records["offset"][:-1] + np.uint64(BLOCK_SIZE)
    follows &= records["length"][:-1] == BLOCK_SIZE
    follows &= records["segment"][1:] == records["segment"][:-1]
    run = np.append(0, np.cumsum(~follows, dtype="i8"))[: len(records)]
    within = np.arange(len(records)) - np.searchsorted(run, run)
    first = np.flatnonzero(within % READ_BLOCKS == 0)
    stop = np.append(first, len(records))[1:]
    of = records[first]
    columns = (of["segment"], of["offset"], ends[first], ends[stop], first, stop)
    return zip(*(column.tolist() for column in columns), strict=True)


def _digests(contents: memoryview) -> list[int]:
    """Returns the digest of each block."""
    digest = xxhash.xxh3_64_intdigest
    return [digest(contents[i : i + BLOCK_SIZE]) for i in range(0, len(contents), BLOCK_SIZE)]


def read_blocks(process: Process, records: Array, out: Array, check: bool = True) -> None:
    """Reads blocks into an array (uint8), as DataFiles.read does."""
    with DataFiles(process) as files:
        files.read(records, out.data, check)


def visit(process: Process, records: Array, use: Callable[[int, memoryview], None]) -> None:
    """Calls use(position, piece) for all pieces of the contents of blocks, in any order and from
    several threads.

    A piece is used by the thread that read it, while it is in that processor's cache. Raises what
    `use` raises, and FormatError if contents do not have their digest.
    """

    def work(first: int) -> None:
        with DataFiles(process) as files:
            for position, piece in files.pieces(records[first : first + SHARE_BLOCKS]):
                if stopped:
                    return
                use(starts[first] + position, piece)

    stopped: list[bool] = []
    shares = range(0, len(records), SHARE_BLOCKS)
    starts = dict(zip(shares, _starts_of(records, shares), strict=True))
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            for done in [pool.submit(work, first) for first in shares]:
                done.result()
        finally:
            stopped.append(True)


def _starts_of(records: Array, at: range) -> list[int]:
    ends = np.append(0, np.cumsum(records["length"], dtype="i8"))
    return ends[list(at)].tolist()


def read_parts(
    process: Process, epoch: int, parts: Sequence[Part], start: int = 0, stop: int | None = None
) -> Array:
    """Returns bytes [start, stop) of a tensor of which these are the parts, in order. Raises Error
    as read.
    """
    size = parts[-1].start + parts[-1].bytes
    stop = size if stop is None else stop
    if not 0 <= start <= stop <= size:
        raise Error(f"bytes {start} to {stop} are not in {parts[0].name!r} of {size}")
    out = [np.empty(0, "u1")]
    for part in parts:
        first, last = max(start - part.start, 0), min(stop - part.start, part.bytes)
        if first < last:
            out.append(read(process, epoch, part.region, part.offset + first, part.offset + last))
    return np.concatenate(out)


def read(
    process: Process, epoch: int, region: int, start: int = 0, stop: int | None = None
) -> Array:
    """Returns bytes [start, stop) of a region in an epoch as uint8. Each block is checked.

    Raises Error if the region or the epoch does not exist or the contents are gone, and FormatError
    if they are damaged.
    """
    size = int(process.regions.size[find_region(process, epoch, region)])
    stop = size if stop is None else stop
    if not 0 <= start <= stop <= size:
        raise Error(f"bytes {start} to {stop} are not in region {region}: it has {size}")
    first, last = start // BLOCK_SIZE, layout.blocks_of(stop)
    records = block_records(process, epoch, region, first=first, last=max(first, last))
    require_stored(process, epoch, region, records)
    out = np.empty(int(records["length"].sum(dtype="u8")), np.uint8)
    read_blocks(process, records, out)
    return out[start - first * BLOCK_SIZE : stop - first * BLOCK_SIZE]
