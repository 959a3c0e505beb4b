"""Which calls and which memory each epoch has seen.

Epochs are identified by number, since one call may have several. Epochs inside a graph launch are
cut while it runs: they have seen a part of its work, and only the regions of one kernel. Other
epochs may have seen only the regions that calls named.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.layout import Array

BEFORE, GRAPH, INSIDE = (
    layout.TRIGGERS.index(trigger) for trigger in ("kernel-before", "graph", "graph-node")
)


class Recorded(Protocol):
    """The members of a process that this module uses."""

    epochs: Array

    def digests(self, first: int, last: int) -> Array: ...


class EpochCoverage:
    """The coverage of the epochs of one process.

    whole: the seq of the last call whose work is completely in the epoch. some: the seq of the last
    call with any work in it. partial: whether the epoch read only some regions.
    """

    def __init__(self, process: Recorded) -> None:
        self._process = process
        epochs = process.epochs
        seqs, trigger = epochs["seq"].astype("i8"), epochs["trigger"]
        inside = trigger == INSIDE
        self.partial: Array = layout.reads_some(epochs["flags"]) | inside
        ahead = (trigger == BEFORE) | self._ahead(epochs, inside)
        cut = epochs["cut"].astype("i8")
        self.some: Array = np.where(cut > 0, cut, seqs - ahead)
        self.whole: Array = np.where(inside, seqs - 1, self.some)

    @staticmethod
    def _ahead(epochs: Array, inside: Array) -> Array:
        """Returns which of the epochs inside graphs were cut before their launch."""
        first: dict[tuple[int, int], int] = {}
        for row in np.flatnonzero(inside).tolist():
            first.setdefault((int(epochs["context"][row]), int(epochs["seq"][row])), row)
        out = np.zeros(len(epochs), bool)
        for row in np.flatnonzero(epochs["trigger"] == GRAPH).tolist() if first else ():
            call = int(epochs["context"][row]), int(epochs["seq"][row])
            out[row] = row < first.get(call, 0)
        return out

    def before(self, epoch: int, region: int | None = None) -> int | None:
        """Returns the last earlier epoch of the same context that has seen the region, None if
        there is none.
        """
        return self.until(epoch - 1, int(self._process.epochs["context"][epoch]), region)

    def until(self, epoch: int, context: int, region: int | None = None) -> int | None:
        """Returns the last epoch of a context up to this one that has seen the region, None if
        there is none.
        """
        end, size = epoch + 1, 16
        while end > 0:
            begin = max(0, end - size)
            epochs = self._process.epochs[begin:end]
            usable = (epochs["flags"] & layout.REFUSED == 0) & (epochs["context"] == context)
            for row in np.flatnonzero(usable)[::-1].tolist():
                if region is None or not self.partial[begin + row]:
                    return int(begin + row)
                if (self._process.digests(begin + row, begin + row + 1)["region"] == region).any():
                    return int(begin + row)
            end, size = begin, 4 * size
        return None
