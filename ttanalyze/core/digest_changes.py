"""How often the contents of regions changed, from their digests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ttanalyze.format.history import batches
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run

PIECE = 1 << 18  # records


def region_changes(run: Run, regions: pd.DataFrame) -> Array:
    """Returns in how many epochs each region has another digest than before."""
    counts = [np.empty(0, "i8"), *(_of_process(p) for p in run.processes)]
    return np.concatenate(counts)


def _of_process(process: Process) -> Array:
    regions = process.regions
    known, seen = np.zeros(len(regions), "u8"), np.zeros(len(regions), bool)
    count = np.zeros(len(regions), "i8")
    for first, last in batches(process, "digests", 0, len(process.epochs), PIECE):
        records = process.digests(first, last)
        rows = regions.rows(records["region"])
        order = np.argsort(rows, kind="stable")
        rows, digests = rows[order], records["digest"][order]
        begins = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
        ends = np.append(begins[1:], True)[: len(rows)]
        before = np.append(np.uint64(0), digests[:-1])[: len(rows)]
        before[begins] = known[rows[begins]]
        np.add.at(count, rows, (digests != before) & (~begins | seen[rows]))
        known[rows[ends]], seen[rows] = digests[ends], True
    return count
