"""Compares what all-reduces left in memory: the same bytes on all ranks.

The driver does not see which memory a collective writes. So a check needs an epoch right after it:
the blocks that changed are output, NCCL's own memory, or what other calls wrote since the epoch
before. Blocks that changed on all ranks and then were equal must be equal after each later
all-reduce of the same size. Where other calls wrote too, they must have been equal several times,
because reused memory may be equal by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ttanalyze.format.event_kinds import WRITES
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.unread import keys_of

AGREED = 5  # equal contents that make memory an output if other calls wrote in the same epoch
Key = tuple[str, int]  # communicator, number


@dataclass(frozen=True)
class _Seen:
    """An epoch right after an all-reduce.

    size: of the all-reduce in bytes. alone: whether nothing else wrote since the epoch before.
    """

    epoch: int
    size: int
    alone: bool


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
        common = set(seen[0]).intersection(*seen[1:])
        last = [max((one[key].epoch for key in common), default=-1) for one in seen]
        blocks = [_Blocks(*of) for of in zip(self.processes, last, strict=True)]
        checked, wrong = 0, []
        # How often a place was equal, -1 if it differed; by communicator and size.
        agreed: dict[tuple[str, int], dict[int, int]] = {}
        for key in sorted(common, key=lambda key: (seen[0][key].epoch, key)):
            ours = [one[key] for one in seen]
            needed = 1 if all(one.alone for one in ours) else AGREED
            known = agreed.setdefault((key[0], ours[0].size), {})
            changed = [of.changed(one.epoch) for of, one in zip(blocks, ours, strict=True)]
            everywhere = set(changed[0]).intersection(*changed[1:])
            outputs = {p for some in changed for p in some if known.get(p, 0) >= needed}
            places = np.array(sorted(everywhere | outputs), "u8")
            held = [of.held(places, one.epoch) for of, one in zip(blocks, ours, strict=True)]
            alone = needed == 1 and bool(everywhere)
            checked += alone or any(times >= needed for times in known.values())
            for place, digests in zip(places.tolist(), np.stack(held, 1).tolist(), strict=True):
                before = known.get(place, 0)
                if len(set(digests)) > 1:
                    if before >= needed:
                        wrong.append(self._wrong(key, place, digests, ours[0].epoch))
                    known[place] = -1
                elif before >= 0 and place in everywhere:
                    known[place] = before + 1
        return checked, wrong

    def _of(self, process: Process, reduced: pd.DataFrame) -> dict[Key, _Seen]:
        """Returns the epochs right after all-reduces."""
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
                out[str(key), int(number)] = _Seen(epoch, int(size), end - before == 1)
        return out

    @staticmethod
    def _writes(process: Process) -> Array:
        """Returns the seq of each call that may write memory, ascending."""
        found = [
            events["seq"][np.isin(events["kind"], WRITES)] for events in process.event_pieces()
        ]
        return np.sort(np.concatenate([np.empty(0, "u8"), *found]))

    def _wrong(self, key: Key, place: int, digests: list[int], epoch: int) -> WrongOutput:
        region, block = divmod(place, 1 << 32)
        held: dict[int, list[int]] = {}
        for process, digest in zip(self.processes, digests, strict=True):
            held.setdefault(digest, []).append(self.ranks[process.index])
        groups = sorted((sorted(group) for group in held.values()), key=lambda g: (-len(g), g))
        labels = self.processes[0].labels
        parts = labels.parts(region, epoch=epoch)
        names = sorted({labels.part(region, part).name for part in parts})
        return WrongOutput(key[0] or None, key[1], region, block, names, groups, epoch)


class _Blocks:
    """The digests of a process's blocks, up to an epoch. A place is region << 32 | block."""

    def __init__(self, process: Process, last: int) -> None:
        records, epoch = process.blocks(0, last + 1), process.epoch_of("blocks", 0, last + 1)
        places = keys_of(records["region"], records["block"])
        self._first = np.searchsorted(epoch, np.arange(last + 2))
        self._changed = places
        self._places, index = np.unique(places, return_inverse=True)
        keys = keys_of(index.ravel(), epoch)
        order = np.argsort(keys, kind="stable")
        self._keys, self._digests = keys[order], records["digest"][order]

    def changed(self, epoch: int) -> list[int]:
        """Returns the places that changed in an epoch."""
        found: list[int] = self._changed[self._first[epoch] : self._first[epoch + 1]].tolist()
        return found

    def held(self, places: Array, epoch: int) -> Array:
        """Returns the digests in an epoch of places that changed until then."""
        keys = keys_of(np.searchsorted(self._places, places), np.full(len(places), epoch))
        return self._digests[np.searchsorted(self._keys, keys, "right") - 1]
