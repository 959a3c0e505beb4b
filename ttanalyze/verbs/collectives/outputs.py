"""Compares what all-reduces left in memory: the same bytes on all ranks.

The driver does not see which memory a collective writes. So a check needs an epoch that saw nothing
but NCCL's work: all blocks that changed in it are output, or NCCL's own memory. Blocks that were
equal on all ranks after one all-reduce must be equal after each later one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ttanalyze.format.event_kinds import WRITES
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process


@dataclass(frozen=True)
class WrongOutput:
    """An all-reduce whose output differs.

    Attributes:
        communicator: Its communicator, None if NCCL does not say it.
        number: Its number in the communicator, from 0.
        region: The region, by the first rank's ids.
        block: The block of the region, of 64 KiB.
        names: The names of tensors in this region.
        groups: The ranks that hold the same, the largest group first.
        epoch: The epoch of the first rank that saw it.
    """

    communicator: str | None
    number: int
    region: int
    block: int
    names: list[str]
    groups: list[list[int]]
    epoch: int


class Outputs:
    """Compares outputs. ranks: the rank of each process by its number."""

    def __init__(self, processes: list[Process], ranks: dict[int, int]) -> None:
        self.processes = processes
        self.ranks = ranks

    def compare(self, calls: pd.DataFrame) -> tuple[int, list[WrongOutput]]:
        """Returns how many all-reduces were compared, and those that differ, in order."""
        if len(self.processes) < 2:
            return 0, []
        reduced = calls[calls["operation"] == "AllReduce"]
        seen = [self._of(process, reduced) for process in self.processes]
        common = sorted(set(seen[0]).intersection(*seen[1:]))
        checked, wrong = 0, []
        equal: set[tuple[int, int]] = set()
        for key in common:
            epochs = [one[key][0] for one in seen]
            blocks = [one[key][1] for one in seen]
            places = set(blocks[0]).intersection(*blocks[1:])
            checked += bool(places)
            for place in sorted(places):
                digests = [one[place] for one in blocks]
                if len(set(digests)) == 1:
                    equal.add(place)
                elif place in equal:
                    wrong.append(self._wrong(key, place, digests, epochs[0]))
                    equal.discard(place)
        return checked, wrong

    def _of(
        self, process: Process, reduced: pd.DataFrame
    ) -> dict[tuple[str, int], tuple[int, dict[tuple[int, int], int]]]:
        """Returns for all-reduces that were alone before an epoch: the epoch, and the digests of
        the blocks that changed.
        """
        mine = reduced[(reduced["process"] == process.index) & reduced["launch"].notna()]
        if not len(process.epochs) or not len(mine):
            return {}
        launches = mine["launch"].to_numpy("u8")
        cuts = process.epochs["seq"]
        epochs = np.searchsorted(cuts, launches)
        writes = self._writes(process)
        out = {}
        keys = zip(mine["key"], mine["number"].tolist(), epochs.tolist(), strict=True)
        for key, number, epoch in keys:
            if not 0 < epoch < len(cuts):
                continue
            between = np.searchsorted(writes, cuts[epoch - 1 : epoch + 1], "right")
            if between[1] - between[0] == 1:  # its kernel alone
                records = process.blocks(epoch, epoch + 1)
                places = zip(records["region"].tolist(), records["block"].tolist(), strict=True)
                digests = dict(zip(places, records["digest"].tolist(), strict=True))
                out[str(key), int(number)] = epoch, digests
        return out

    @staticmethod
    def _writes(process: Process) -> Array:
        """Returns the seq of each call that may write memory, ascending."""
        found = [
            events["seq"][np.isin(events["kind"], WRITES)] for events in process.event_pieces()
        ]
        return np.sort(np.concatenate([np.empty(0, "u8"), *found]))

    def _wrong(
        self, key: tuple[str, int], place: tuple[int, int], digests: list[int], epoch: int
    ) -> WrongOutput:
        held: dict[int, list[int]] = {}
        for process, digest in zip(self.processes, digests, strict=True):
            held.setdefault(digest, []).append(self.ranks[process.index])
        groups = sorted((sorted(group) for group in held.values()), key=lambda g: (-len(g), g))
        labels = self.processes[0].labels
        parts = labels.parts(place[0], epoch=epoch)
        names = sorted({labels.part(place[0], part).name for part in parts})
        return WrongOutput(key[0] or None, key[1], *place, names, groups, epoch)
