"""What each epoch has seen of the program's calls, and of its memory.

Epochs go by their numbers: several may be of one call. Those inside a graph's launch are cut while
it runs, and have seen a part of what it did; and only the regions that one kernel was given. Others
may have seen only the regions that calls named.
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
    """A process, as far as it matters here."""

    epochs: Array

    def digests(self, first: int, last: int) -> Array: ...


class EpochCoverage:
    """Of the epochs of one process. whole: the seq of the last call all of whose work is in an
    epoch; some: of the last one of whose work anything is. partial: whether it read some regions
    only.
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
        """Which were cut before the launch that they are of, for those inside it."""
        first: dict[tuple[int, int], int] = {}
        for row in np.flatnonzero(inside).tolist():
            first.setdefault((int(epochs["context"][row]), int(epochs["seq"][row])), row)
        out = np.zeros(len(epochs), bool)
        for row in np.flatnonzero(epochs["trigger"] == GRAPH).tolist() if first else ():
            place = int(epochs["context"][row]), int(epochs["seq"][row])
            out[row] = row < first.get(place, 0)
        return out

    def before(self, epoch: int, region: int | None = None) -> int | None:
        """The last epoch before this one, of its context, that was captured and has seen the
        region; None where there is none.
        """
        return self.until(epoch - 1, int(self._process.epochs["context"][epoch]), region)

    def until(self, epoch: int, context: int, region: int | None = None) -> int | None:
        """The same of a context, up to and with an epoch."""
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
