"""Compares what all-reduces left in memory: the same bytes on all ranks.

The driver does not see which memory a collective writes. So a check needs an epoch right after it:
the blocks that changed are output, NCCL's own memory, or what other calls wrote since the epoch
before. Blocks that were equal on all ranks after an all-reduce must be equal after each later one
of the same size. Where other calls wrote too, they must have been equal several times, because
reused memory may be equal by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ttanalyze.format.event_kinds import WRITES
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

AGREED = 5  # equal contents that make memory an output if other calls wrote in the same epoch
Place = tuple[int, int]  # region, block


@dataclass(frozen=True)
class _Seen:
    """What an epoch right after an all-reduce saw: the digests of the blocks that changed.

    size: of the all-reduce in bytes. alone: whether nothing else wrote since the epoch before.
    """

    epoch: int
    size: int
    alone: bool
    digests: dict[Place, int]


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
        agreed: dict[tuple[str, int, Place], int] = {}  # how often, -1 for memory that differed
        for key in common:
            ours = [one[key] for one in seen]
            blocks = [one.digests for one in ours]
            needed = 1 if all(one.alone for one in ours) else AGREED
            places = sorted(set(blocks[0]).intersection(*blocks[1:]))
            known = bool(places) and needed == 1
            for place in places:
                digests = [one[place] for one in blocks]
                of = key[0], ours[0].size, place
                before = agreed.get(of, 0)
                known |= before >= needed
                if len(set(digests)) == 1 and before >= 0:
                    agreed[of] = before + 1
                elif len(set(digests)) > 1:
                    if before >= needed:
                        wrong.append(self._wrong(key, place, digests, ours[0].epoch))
                    agreed[of] = -1
            checked += known
        return checked, wrong

    def _of(self, process: Process, reduced: pd.DataFrame) -> dict[tuple[str, int], _Seen]:
        """Returns what the epochs right after all-reduces saw, by communicator and number."""
        mine = reduced[(reduced["process"] == process.index) & reduced["launch"].notna()]
        if not len(process.epochs) or not len(mine):
            return {}
        launches = mine["launch"].to_numpy("u8")
        cuts = process.epochs["seq"]
        epochs = np.searchsorted(cuts, launches)
        writes = self._writes(process)
        out = {}
        columns = (mine[name].fillna(0).tolist() for name in ("key", "number", "bytes"))
        for key, number, size, launch, epoch in zip(
            *columns, launches.tolist(), epochs.tolist(), strict=True
        ):
            if not 0 < epoch < len(cuts):
                continue
            at = [*cuts[epoch - 1 : epoch + 1].tolist(), launch]
            before, end, own = np.searchsorted(writes, at, "right").tolist()
            if end == own:  # nothing wrote after its kernel
                records = process.blocks(epoch, epoch + 1)
                places = zip(records["region"].tolist(), records["block"].tolist(), strict=True)
                digests = dict(zip(places, records["digest"].tolist(), strict=True))
                seen = _Seen(epoch, int(size), end - before == 1, digests)
                out[str(key), int(number)] = seen
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
