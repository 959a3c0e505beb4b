"""Compares what all-reduces left in memory: the same bytes on all ranks.

The driver does not see which memory a collective writes. So a check needs an epoch right after it:
the blocks that changed are output, NCCL's own memory, or what other calls wrote since the epoch
before. Blocks that changed on all ranks and then were equal must be equal after each later
all-reduce of the same size. Where other calls wrote too, they must have been equal several times,
because reused memory may be equal by chance. An output is as large as the all-reduce, so most
blocks within this distance must have changed with it. A few blocks may be NCCL's own memory.
Regions of the ranks correspond as those of two runs do in `diff`. An all-reduce whose output cannot
be known is counted with the reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ttanalyze.format import layout
from ttanalyze.format.event_kinds import WRITES
from ttanalyze.format.layout import BLOCK_SIZE, Array, distinct
from ttanalyze.format.process import Process
from ttanalyze.format.unread import keys_of
from ttanalyze.verbs.diff.pairing import match_memory
from ttanalyze.verbs.diff.sides import Names, of_process, read_calls

AGREED = 5  # equal contents that make memory an output if other calls wrote in the same epoch
SHARE = 3, 4  # of the blocks of an output that change with it
UNSURE = layout.LOOSE | layout.REFUSED | layout.DROPPED  # flags of epochs
Key = tuple[str, int]  # communicator, number

# What is said of all-reduces whose output was not compared, or not in all memory.
NO_EPOCH = "not compared: an epoch right after the all-reduce on each rank is missing"
TORN = "not compared: an epoch is loose, refused or dropped"
UNKNOWN = "not compared: no memory was known yet to be output, or none of it changed"
HIDDEN = "compared only in memory that all ranks have; as much other memory changed too"


@dataclass(frozen=True)
class _Seen:
    """An epoch right after an all-reduce.

    size: of the all-reduce in bytes. alone: whether nothing else wrote since the epoch before.
    sure: whether the epoch says what memory was.
    """

    epoch: int
    size: int
    alone: bool
    sure: bool


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

    def compare(self, calls: pd.DataFrame) -> tuple[int, list[WrongOutput], Counter[str]]:
        """Returns how many all-reduces were compared, those that differ, in order, and of how
        many others what is to be said.
        """
        left: Counter[str] = Counter()
        if len(self.processes) < 2:
            return 0, [], left
        reduced = calls[calls["operation"] == "AllReduce"]
        seen = [self._of(process, reduced) for process in self.processes]
        common = set(seen[0]).intersection(*seen[1:])
        asked = zip(
            reduced["key"].astype(str), reduced["number"].fillna(0).astype(int), strict=True
        )
        left[NO_EPOCH] = len(set(asked) - common)
        torn = {key for key in common if not all(one[key].sure for one in seen)}
        left[TORN], common = len(torn), common - torn
        last = [max((one[key].epoch for key in common), default=-1) for one in seen]
        numbers = _numbers(self.processes)
        blocks = [_Blocks(*of) for of in zip(self.processes, last, numbers, strict=True)]
        checked, wrong = 0, []
        # How often a place was equal, -1 if it differed; by communicator and size.
        agreed: dict[tuple[str, int], dict[int, int]] = {}
        for key in sorted(common, key=lambda key: (seen[0][key].epoch, key)):
            ours = [one[key] for one in seen]
            needed = 1 if all(one.alone for one in ours) else AGREED
            known = agreed.setdefault((key[0], ours[0].size), {})
            changed = [of.changed(one.epoch) for of, one in zip(blocks, ours, strict=True)]
            everywhere = _of_size(set(changed[0]).intersection(*changed[1:]), ours[0].size)
            outputs = {p for some in changed for p in some if known.get(p, 0) >= needed}
            places = np.array(sorted(everywhere | outputs), "u8")
            held = [of.held(places, one.epoch) for of, one in zip(blocks, ours, strict=True)]
            if outputs or (needed == 1 and everywhere):
                checked += 1
                both = zip(blocks, ours, strict=True)
                left[HIDDEN] += any(of.may_hide(one.epoch, one.size) for of, one in both)
            else:
                left[UNKNOWN] += 1
            for place, digests in zip(places.tolist(), np.stack(held, 1).tolist(), strict=True):
                before = known.get(place, 0)
                if len(set(digests)) > 1:
                    if before >= needed:
                        wrong.append(self._wrong(key, place, digests, ours[0].epoch))
                    known[place] = -1
                elif before >= 0 and place in everywhere:
                    known[place] = before + 1
        return checked, wrong, +left

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
        sure = process.epochs["flags"] & UNSURE == 0
        gap = process.epochs["flags"] & layout.GAP != 0
        columns = (mine[name].fillna(0).tolist() for name in ("key", "number", "bytes"))
        for key, number, size, launch, epoch in zip(
            *columns, launches.tolist(), epochs.tolist(), strict=True
        ):
            if not 0 < epoch < len(cuts):
                continue
            at = [*cuts[epoch - 1 : epoch + 1].tolist(), launch]
            before, end, own = np.searchsorted(writes, at, "right").tolist()
            if end == own:  # nothing wrote after its kernel
                alone = end - before == 1 and bool(sure[epoch - 1] and not gap[epoch])
                out[str(key), int(number)] = _Seen(epoch, int(size), alone, bool(sure[epoch]))
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


def _of_size(places: set[int], size: int) -> set[int]:
    """Returns the places that may be output of an all-reduce of this size."""
    length = max(1, -(-size // BLOCK_SIZE))
    every = np.array(sorted(places), "u8")
    region, block = every >> np.uint64(32), (every & np.uint64(0xFFFFFFFF)).astype("i8")
    first = keys_of(region, np.maximum(block - length, 0))
    near = np.searchsorted(every, keys_of(region, block + length), "right")
    near -= np.searchsorted(every, first)
    return set(every[near * SHARE[1] >= length * SHARE[0]].tolist())


def _numbers(processes: list[Process]) -> list[Array]:
    """Returns for each process the first one's region for each of its regions, -1 for none."""
    names = Names()
    sides = [of_process(process, names) for process in processes]
    calls = [read_calls(side, names) for side in sides]
    out = [processes[0].regions.id.astype("i8")]
    for process, side, of in zip(processes[1:], sides[1:], calls[1:], strict=True):
        out.append(np.full(len(process.regions.id), -1))
        for context in distinct(sides[0].regions.context).tolist():
            regions = match_memory(sides[0], side, context, calls[0], of)[1]
            a, b = regions.rows_a, regions.rows_b
            same = regions.a.size[a] == regions.b.size[b]
            mine = np.searchsorted(process.regions.id, regions.b.id[b[same]])
            out[-1][mine] = regions.a.id[a[same]]
    return out


class _Blocks:
    """The digests of a process's blocks, up to an epoch. A place is region << 32 | block, with the
    number of the first rank's region. Full epochs also list blocks that did not change.
    """

    def __init__(self, process: Process, last: int, numbers: Array) -> None:
        records, epoch = process.blocks(0, last + 1), process.epoch_of("blocks", 0, last + 1)
        region = numbers[np.searchsorted(process.regions.id, records["region"])]
        self._hidden = np.bincount(epoch[region < 0].astype("i8"), minlength=last + 1)
        records, epoch, region = (of[region >= 0] for of in (records, epoch, region))
        places = keys_of(region, records["block"])
        self._places, index = np.unique(places, return_inverse=True)
        keys = keys_of(index.ravel(), epoch)
        order = np.argsort(keys, kind="stable")
        self._keys, self._digests = keys[order], records["digest"][order]
        again = np.zeros(len(order), bool)
        of, digests = index.ravel()[order], self._digests
        again[order[1:]] = (of[1:] == of[:-1]) & (digests[1:] == digests[:-1])
        self._changed = places[~again]
        self._first = np.searchsorted(epoch[~again], np.arange(last + 2))

    def may_hide(self, epoch: int, size: int) -> bool:
        """Returns whether memory without a counterpart changed so much that it may be output."""
        length = max(1, -(-size // BLOCK_SIZE))
        return int(self._hidden[epoch]) * SHARE[1] >= length * SHARE[0]

    def changed(self, epoch: int) -> list[int]:
        """Returns the places that changed in an epoch."""
        found: list[int] = self._changed[self._first[epoch] : self._first[epoch + 1]].tolist()
        return found

    def held(self, places: Array, epoch: int) -> Array:
        """Returns the digests in an epoch of places that changed until then."""
        keys = keys_of(np.searchsorted(self._places, places), np.full(len(places), epoch))
        return self._digests[np.searchsorted(self._keys, keys, "right") - 1]
