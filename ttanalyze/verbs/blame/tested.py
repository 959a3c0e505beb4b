"""Which stored contents have items that fulfil a condition, found by several processes.

Work is cut by place in the data files. What has no such item need not be read again by the search,
which is the same without this.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from ttanalyze.errors import FormatError
from ttanalyze.format import contents
from ttanalyze.format.history import batches
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.recompute import restart
from ttanalyze.util.cluster import PARTS
from ttanalyze.util.parallel import each, workers
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.blame.condition import Condition

LEAST = 1 << 26  # bytes of contents that are worth a part of their own


def meet(condition: Condition, files: contents.DataFiles, records: Array) -> Array:
    """Returns which blocks have an item that fulfils a condition."""
    itemsize = condition.type.itemsize
    order = np.lexsort((records["offset"], records["segment"]))
    ends = np.cumsum(records["length"][order], dtype="i8")
    out = np.zeros(len(records), bool)
    for position, piece in files.pieces(records[order]):
        raw = np.frombuffer(piece, "u1")
        at = np.flatnonzero(condition.test(raw[: len(raw) - len(raw) % itemsize]))
        where = np.searchsorted(ends, position + at * itemsize, "right")
        out[order[where]] = True
    return out


@dataclass(frozen=True)
class _Search:
    process: Process
    condition: Condition
    first: int
    last: int
    region: int | None

    def stored(self) -> Array:
        """Returns a record of each stored content in these epochs, by its place in the files."""
        parts = []
        for begin, end in batches(self.process, "blocks", self.first, self.last + 1):
            records = self.process.blocks(begin, end)
            kept = np.isin(records["segment"], list(self.process.segments))
            if self.region is not None:
                kept &= records["region"] == self.region
            records = records[kept]
            parts.append(records[np.unique(records["digest"], return_index=True)[1]])
        if not parts:
            return self.process.blocks(0, 0)
        records = np.concatenate(parts)
        records = records[np.unique(records["digest"], return_index=True)[1]]
        return records[np.lexsort((records["offset"], records["segment"]))]


def clean_digests(
    process: Process,
    condition: Condition,
    region: int | None,
    epochs: tuple[int, int],
    address: str | None,
    progress: Progress,
) -> Array:
    """Returns the digests, ascending, of stored contents without an item that fulfils a condition.

    Args:
        process: The process.
        condition: The condition.
        region: The id of the only wanted region, None for all.
        epochs: The first and the last epoch.
        address: The address of the dask scheduler, None for this machine.
        progress: Called with the finished and the total number of parts.
    """
    search = _Search(process, condition, restart(process, epochs[0]), epochs[1], region)
    lengths = search.stored()["length"]
    most = PARTS * workers(address)
    count = max(1, min(most, int(lengths.sum(dtype="i8")) // LEAST + 1))
    ends = np.cumsum(lengths, dtype="i8")
    cuts = np.searchsorted(ends, int(lengths.sum(dtype="i8")) * np.arange(1, count) / count)
    spans = list(pairwise([0, *cuts.tolist(), len(lengths)]))
    found = each(partial(_clean, search), spans, True, progress, address)
    return np.unique(np.concatenate(found))


def _clean(search: _Search, span: tuple[int, int]) -> Array:
    records = search.stored()[span[0] : span[1]]
    try:
        with contents.DataFiles(search.process) as files:
            return records["digest"][~meet(search.condition, files, records)].copy()
    except FormatError:  # the search says so if it comes that far
        return records["digest"][:0]
