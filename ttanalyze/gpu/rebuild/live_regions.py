"""The regions that exist at a call."""

from __future__ import annotations

import bisect

import numpy as np

from ttanalyze.format.process import Process


class LiveRegions:
    """The regions of a process at a call. Calls are requested in order."""

    def __init__(self, process: Process, seq: int) -> None:
        regions = process.regions
        self._base, self._size = regions.birth["base"], regions.size
        self._changes = regions.changes
        self._at = int(np.searchsorted(self._changes["seq"], seq))
        gone = (regions.death_seq > 0) & (regions.death_seq < seq)
        rows = np.flatnonzero((regions.birth["seq"] < seq) & ~gone)
        self._rows = sorted(zip(self._base[rows].tolist(), rows.tolist(), strict=True))

    def advance(self, seq: int) -> list[int]:
        """Goes on to a call and returns the rows of regions that were born since."""
        born = []
        while self._at < len(self._changes) and self._changes["seq"][self._at] < seq:
            row, birth = int(self._changes["row"][self._at]), self._changes["birth"][self._at]
            self._at += 1
            key = int(self._base[row]), row
            if birth:
                bisect.insort(self._rows, key)
                born.append(row)
            else:
                at = bisect.bisect_left(self._rows, key)
                if at < len(self._rows) and self._rows[at] == key:
                    del self._rows[at]
        return born

    @property
    def rows(self) -> list[int]:
        """Returns the rows of the regions by address."""
        return [row for _, row in self._rows]

    def find(self, address: int) -> int | None:
        """Returns the row of the region that contains an address."""
        at = bisect.bisect_right(self._rows, (address, 1 << 62)) - 1
        if at < 0:
            return None
        base, row = self._rows[at]
        return row if address < base + int(self._size[row]) else None
