"""Computes the digests of stored contents in parts, on a cluster or in processes of this machine.
Work is cut by process and by regions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.recompute import Batch, Recompute
from ttanalyze.util.cluster import PARTS
from ttanalyze.util.parallel import each, workers
from ttanalyze.util.progress import Progress

LEAST = 1 << 26  # bytes of regions that are worth a part of their own


@dataclass
class Recomputed:
    """What parts have found of a process. It stands for `Recompute`, but has one batch, with the
    rows of an epoch in another order.
    """

    found: list[Batch] = field(default_factory=list)
    blocks_read: int = 0
    bytes_read: int = 0

    def batches(self, progress: Callable[[int], None] | None = None) -> Iterator[Batch]:
        """Yields one batch of all epochs."""
        rows = {
            name: np.concatenate([getattr(batch, name) for batch in self.found])
            for name in ("epoch", "region", "digest", "recorded", "stored")
        }
        yield Batch(
            begin=min(batch.begin for batch in self.found),
            end=max(batch.end for batch in self.found),
            damage=sorted(
                (one for batch in self.found for one in batch.damage),
                key=lambda one: (one.epoch, one.region, one.block),
            ),
            **rows,
        )


@dataclass(frozen=True)
class _Part:
    """Some regions of a process in some epochs; regions: None for all."""

    process: Process
    first: int
    last: int
    regions: Array | None


def recompute(
    ranges: Sequence[tuple[Process, int, int]],
    wanted: dict[int, Array] | None,
    address: str | None,
    progress: Progress,
) -> dict[int, Recomputed]:
    """Computes the digests of processes, each from its first to its last epoch.

    Args:
        ranges: The processes with their first and last epochs.
        wanted: The ids of the regions by the number of the process, None for all.
        address: The address of the dask scheduler, None for this machine.
        progress: Called with the finished and the total number of parts.

    Returns:
        What was found, by the number of the process.
    """
    most = PARTS * workers(address)
    several = max(1, most // max(1, len(ranges)))
    parts = [
        _Part(process, first, last, regions)
        for process, first, last in ranges
        if first <= last
        for regions in _cut(process, None if wanted is None else wanted[process.index], several)
    ]
    out: dict[int, Recomputed] = {}
    for part, found in zip(parts, each(_work, parts, True, progress, address), strict=True):
        of = out.setdefault(part.process.index, Recomputed())
        of.found += found.found
        of.blocks_read += found.blocks_read
        of.bytes_read += found.bytes_read
    return out


def _cut(process: Process, wanted: Array | None, several: int) -> list[Array | None]:
    """Returns the ids of the regions of each part, so that parts have about the same size."""
    table = process.regions
    chosen = table.flags & layout.CAPTURED != 0
    if wanted is not None:
        chosen &= np.isin(table.id, wanted)
    ids, ends = table.id[chosen], np.cumsum(table.size[chosen].astype("f8"))
    count = min(several, int(ends[-1]) // LEAST + 1 if len(ends) else 1)
    if count < 2:
        return [wanted]
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count, "right")
    return [part for part in np.split(ids, np.unique(cuts)) if len(part)]


def _work(part: _Part) -> Recomputed:
    work = Recompute(part.process, part.first, part.last, part.regions)
    found = list(work.batches())
    return Recomputed(found, work.blocks_read, work.bytes_read)
