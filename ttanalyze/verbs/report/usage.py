"""The allocated memory over time by kind. The maximum is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.format.regions import Regions

OTHERS = ("host", "host-registered", "zone")  # no memory of the program on a device


@dataclass(frozen=True)
class Usage:
    """Allocated bytes of each kind over time. times (ascending) and the bytes have the same length.

    peak: the maximum over devices. peak_time, peak_seq: when it was first reached, and the call.
    """

    times: Array
    kinds: dict[str, Array]
    peak: int
    peak_time: float
    peak_seq: int


def usage(regions: Regions, clock: Callable[[Array], Array], limit: int) -> Usage:
    """Returns the usage. clock: converts seqs to times. limit: about how many times to keep; of
    neighbours the minimum and the maximum are kept.
    """
    count = len(regions)
    dead = np.flatnonzero(regions.died != layout.NO_EPOCH)
    rows = np.concatenate([np.arange(count), dead])
    seqs = np.concatenate([regions.birth["seq"], regions.death_seq[dead]])
    order = np.argsort(seqs, kind="stable")
    rows, times = rows[order], clock(seqs[order])
    sizes = regions.size.astype("f8")[rows]
    sizes[order >= count] *= -1
    numbers = regions.birth["kind"][rows]
    used = layout.distinct(numbers).tolist()
    steps = {layout.REGION_KINDS[k]: np.cumsum(np.where(numbers == k, sizes, 0)) for k in used}
    total = sum((v for k, v in steps.items() if k not in OTHERS), np.zeros(len(times)))
    if not len(times):
        return Usage(times, steps, 0, 0.0, 0)
    peak = int(total.argmax())
    keep = np.arange(len(times)) if len(times) <= limit else _extremes(total, limit)
    kinds = {kind: values[keep] for kind, values in steps.items()}
    return Usage(times[keep], kinds, int(total[peak]), float(times[peak]), int(seqs[order][peak]))


def _extremes(total: Array, limit: int) -> Array:
    """Returns the minimum and the maximum of each group of neighbours, and the last."""
    starts = np.arange(0, len(total), -(-3 * len(total) // limit))
    ends = np.append(starts[1:], len(total)) - 1
    group = np.repeat(np.arange(len(starts)), ends - starts + 1)
    by_total = np.lexsort((total, group))
    return np.unique(np.concatenate([by_total[starts], by_total[ends], ends]))
