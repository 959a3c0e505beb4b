"""Where runs with different contents of new memory differ, beyond bytes that nobody wrote.

A byte that holds what its run was filled with, in every run, was not written, or was copied from
memory that was not. Any other byte that differs between the runs was computed from such bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ttanalyze.core.fill import CONSTANT, OPTION, fill_bytes, seed_of
from ttanalyze.core.zones import ZONE
from ttanalyze.format import contents, event_kinds, layout, open_run
from ttanalyze.format.digest import digests_of_pattern, digests_of_spans
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process

# Of these each byte has its own value in runs with a pattern.
BY_ADDRESS = ("device", "arena", "async", "managed")
FILLED = (*BY_ADDRESS, "vmm")
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
BATCH = 32  # blocks that are looked at at once: they stay in the processor's cache


@dataclass(frozen=True)
class Dependent:
    """Bytes that depend on uninitialised memory.

    Attributes:
        process: The process, in the run with zeros.
        region: The id of the region.
        epoch: The epoch that has the bytes.
        before: The last epoch before whose contents were compared, None if there is none.
        first, count: The first of the bytes, and how many there are.
        computed: Whether they are not merely copies.
    """

    process: Process
    region: int
    epoch: int
    before: int | None
    first: int
    count: int
    computed: bool


@dataclass(frozen=True)
class Same:
    """Processes of several runs that did the same: the epochs that correspond, a row each, and the
    regions, by their ids in the first process. ids: those in each process, by these.
    """

    processes: Sequence[Process]
    epochs: Array
    ids: Sequence[Mapping[int, int]]
    whole: bool

    @property
    def regions(self) -> Collection[int]:
        """The regions that all have."""
        return self.ids[0].keys()

    def fill(self, which: int) -> str:
        """Returns what new memory of a process holds, as --fill says it."""
        return str(self.processes[which].info["options"][OPTION])

    def kind(self, region: int) -> str:
        """Returns the kind of a region."""
        regions = self.processes[0].regions
        row = int(regions.rows(np.array([region]))[0])
        return str(layout.REGION_KINDS[int(regions.birth["kind"][row])])


def aligned(runs: Sequence[Path]) -> list[Same]:
    """Finds what corresponds in runs of one program.

    Args:
        runs: The runs.

    Returns:
        The processes with the same number, up to the first launch that differs.
    """
    opened = [open_run(run) for run in runs]
    count = min(len(run.processes) for run in opened)
    return [_align([run.processes[i] for run in opened]) for i in range(count)]


def _align(processes: Sequence[Process]) -> Same:
    numbers: dict[str | None, int] = {}
    launches = [_launches(process, numbers) for process in processes]
    same = min(map(len, launches))
    for other in launches[1:]:
        a, b = launches[0][:same], other[:same]
        differs = (a["kind"] != b["kind"]) | (a["kernel"] != b["kernel"])
        same = int(np.argmax(differs)) if differs.any() else same
    keyed = [
        _epochs(process, own["seq"], same) for process, own in zip(processes, launches, strict=True)
    ]
    shared = [key for key in keyed[0] if all(key in other for other in keyed[1:])]
    epochs = np.array([[own[key] for own in keyed] for key in shared], "i8")
    born = [_born(process) for process in processes]
    common = [key for key in born[0] if all(key in other for other in born[1:])]
    ids = [{born[0][key]: own[key] for key in common} for own in born]
    whole = all(len(own) == same for own in launches)
    return Same(processes, epochs.reshape(-1, len(processes)), ids, whole)


def _born(process: Process) -> dict[tuple[int, int, int], int]:
    """The ids of captured regions, by their number, size and kind. Zones do not count."""
    birth = process.regions.birth[process.regions.flags & layout.CAPTURED != 0]
    birth = birth[birth["kind"] != ZONE]
    return {
        (number, int(one["size"]), int(one["kind"])): int(one["id"])
        for number, one in enumerate(birth)
    }


def _launches(process: Process, numbers: dict[str | None, int]) -> Array:
    """The seq, the kind and the kernel of each launch. Kernels have a number by their name."""
    columns = process.event_columns("seq", "kind", "result", "flags", "id")
    good = np.isin(columns["kind"], event_kinds.LAUNCH) & (columns["result"] == 0)
    good &= columns["flags"] & CAPTURING == 0
    kinds = columns["kind"][good]
    out = np.zeros(len(kinds), [("seq", "i8"), ("kind", "i8"), ("kernel", "i8")])
    out["seq"], out["kind"] = columns["seq"][good], kinds
    kernels = kinds == event_kinds.KIND["launch"]
    functions, where = np.unique(columns["id"][good][kernels], return_inverse=True)
    names = [numbers.setdefault(process.kernel(one), len(numbers)) for one in functions.tolist()]
    out["kernel"][kernels] = np.array(names, "i8")[where]
    return out


def _epochs(process: Process, seqs: Array, most: int) -> dict[tuple[int, ...], int]:
    """The epochs that were captured, by how many launches they have seen."""
    epochs, seen = process.epochs, np.searchsorted(seqs, process.coverage.some, "right")
    usable = (epochs["flags"] & layout.REFUSED == 0) & (seen <= most)
    out: dict[tuple[int, ...], int] = {}
    for row in np.flatnonzero(usable).tolist():
        key = int(epochs["context"][row]), int(epochs["trigger"][row]), int(seen[row]), 0
        while key in out:
            key = (*key[:3], key[3] + 1)
        out[key] = row
    return out


# ---- digests ----


def differing(same: Same, last: int) -> set[int]:
    """Finds the regions that differ in some epoch of the runs, whether or not they were written.

    Args:
        same: What corresponds in the runs.
        last: The last epoch of the first run to look at.
    """
    rows = itertools.takewhile(lambda one: one[0][0] <= last, _differing(same))
    return {region for _, regions in rows for region in regions}


def _differing(same: Same) -> Iterator[tuple[Array, list[int]]]:
    """The epochs, and the regions that differ in them and changed in them in some run. All epochs:
    those without such regions, too.
    """
    state: list[dict[int, int]] = [{} for _ in same.processes]
    names = [{own: region for region, own in ids.items()} for ids in same.ids]
    last = [-1] * len(same.processes)
    for row in same.epochs:
        changed: set[int] = set()
        for i, (process, epoch) in enumerate(zip(same.processes, row.tolist(), strict=True)):
            records = process.digests(last[i] + 1, epoch + 1)
            pairs = zip(records["region"].tolist(), records["digest"].tolist(), strict=True)
            now = {names[i][region]: digest for region, digest in pairs if region in names[i]}
            changed |= {region for region, digest in now.items() if state[i].get(region) != digest}
            state[i].update(now)
            last[i] = epoch
        yield row, [one for one in sorted(changed) if len({held.get(one) for held in state}) > 1]


# ---- contents ----


@dataclass
class Tally:
    """Bytes of a region of one sort.

    Attributes:
        count: How many there are.
        first: The first one, None if there is none.
    """

    count: int = 0
    first: int | None = None

    def add(self, chosen: Array, blocks: Array) -> None:
        """Adds the chosen bytes of these blocks of the region."""
        count = int(np.count_nonzero(chosen))
        if count:
            block, offset = divmod(int(chosen.argmax()), BLOCK_SIZE)
            self.add_bytes(count, int(blocks[block]) * BLOCK_SIZE + offset)

    def add_bytes(self, count: int, first: int) -> None:
        """Adds so many bytes, of which this is the first."""
        self.count += count
        self.first = first if self.first is None else min(first, self.first)


@dataclass(frozen=True)
class Sorts:
    """The bytes of a region that differ between the runs.

    Attributes:
        unwritten: They hold what new memory holds there.
        copied: They hold what new memory holds elsewhere.
        computed: They hold something else.
    """

    unwritten: Tally
    copied: Tally
    computed: Tally


def dependent(same: Same, left_out: Mapping[int, int]) -> list[Dependent]:
    """Finds bytes that depend on uninitialised memory.

    Args:
        same: What corresponds in the runs.
        left_out: Regions to leave out, by id, each from an epoch of the first run on.

    Returns:
        The first region with computed bytes, and the first with copied bytes, if there are any, in
        epochs with contents.

    Raises:
        FormatError: A file does not follow the format.
        Error: Contents are missing.
    """
    found: dict[bool, Dependent] = {}
    before: int | None = None
    since: set[int] = set()
    seen: dict[int, Array] = {}
    for row, changed in _differing(same):
        since.update(changed)
        if not _has_contents(same, row):
            continue
        epoch, regions = int(row[0]), sorted(since)
        since.clear()
        for region in regions:
            if epoch >= left_out.get(region, layout.NO_EPOCH) or not _alive(same, row, region):
                continue
            there = _Blocks(same, row, region)
            fresh = there.sorts(seen.get(region))
            seen[region] = there.digests
            if fresh.computed.count + fresh.copied.count == 0:
                continue
            every = there.sorts()
            for computed, tally in ((True, every.computed), (False, every.copied)):
                if tally.first is not None and computed not in found:
                    where = region, epoch, before, tally.first, tally.count
                    found[computed] = Dependent(same.processes[0], *where, computed)
        if True in found:
            break
        before = epoch
    return [found[key] for key in (True, False) if key in found]


def sorts(same: Same, epoch: int, region: int) -> Sorts | None:
    """Sorts the bytes of a region that differ between the runs.

    Args:
        same: What corresponds in the runs.
        epoch: An epoch of the first run.
        region: The id of the region.

    Returns:
        None if a run does not have the epoch, or not the region then.
    """
    rows = same.epochs[same.epochs[:, 0] == epoch]
    if not len(rows) or region not in same.regions or not _alive(same, rows[0], region):
        return None
    return _Blocks(same, rows[0], region).sorts()


def _has_contents(same: Same, row: Array) -> bool:
    """Whether the epoch has contents in all runs."""
    pairs = zip(same.processes, row.tolist(), strict=True)
    return not any(process.digests_alone[epoch] for process, epoch in pairs)


def _alive(same: Same, row: Array, region: int) -> bool:
    for process, ids, epoch in zip(same.processes, same.ids, row.tolist(), strict=True):
        at = contents.region_row(process, ids[region])
        if not process.regions.born[at] <= epoch < process.regions.died[at]:
            return False
    return True


class _Blocks:
    """The blocks of a region in the runs. digests: one row for each run."""

    def __init__(self, same: Same, row: Array, region: int) -> None:
        self._same, self._region = same, region
        self._records = [
            contents.block_records(process, epoch, ids[region])
            for process, ids, epoch in zip(same.processes, same.ids, row.tolist(), strict=True)
        ]
        self.digests: Array = np.stack([own["digest"] for own in self._records])

    def sorts(self, before: Array | None = None) -> Sorts:
        """Looks at the blocks that differ, some at a time. before: earlier digests: only blocks
        that changed since then in some run.
        """
        differ = (self.digests != self.digests[0]).any(axis=0)
        if before is not None:
            differ &= (self.digests != before).any(axis=0)
        blocks = np.flatnonzero(differ)
        out = Sorts(Tally(), Tally(), Tally())
        whole = self._unwritten(blocks)
        if whole.any():
            lengths = self._records[0]["length"][blocks[whole]]
            out.unwritten.add_bytes(int(lengths.sum()), int(blocks[whole][0]) * BLOCK_SIZE)
        blocks = blocks[~whole]
        for first in range(0, len(blocks), BATCH):
            own = blocks[first : first + BATCH]
            held = []
            for process, of in zip(self._same.processes, self._records, strict=True):
                held.append(np.empty(int(of["length"][own].sum()), "u1"))
                contents.read_blocks(process, of[own], held[-1])
            self._sort(held, own, out)
        return out

    def _unwritten(self, blocks: Array) -> Array:
        """Which blocks hold in each run what new memory holds there, by their digests: that is most
        of a large pool. No byte is the same in all runs if some have zeros and some 0xFF.
        """
        fills = [self._same.fill(i) for i in range(len(self._records))]
        found = np.full(len(blocks), self._kind in BY_ADDRESS and set(CONSTANT) <= set(fills))
        for i in sorted(range(len(fills)), key=lambda i: fills[i] not in CONSTANT):
            of = blocks[found]
            sizes = self._records[0]["length"][of]
            if fills[i] in CONSTANT:
                found[found] = self.digests[i][of] == _constant_digests(fills[i], sizes)
            else:
                bases = self._base(i) + of.astype("u8") * np.uint64(BLOCK_SIZE)
                expected = digests_of_pattern(seed_of(fills[i]), bases, sizes)
                words = np.ascontiguousarray(self.digests[i][of])
                at = np.arange(len(words), dtype="u8") * np.uint64(8)
                found[found] = digests_of_spans(words, at, at + np.uint64(8)) == expected
        return found

    @property
    def _kind(self) -> str:
        return self._same.kind(self._region)

    def _base(self, which: int) -> int:
        """The address of the region in a run."""
        process = self._same.processes[which]
        at = contents.region_row(process, self._same.ids[which][self._region])
        return int(process.regions.birth["base"][at])

    def _sort(self, held: Sequence[Array], blocks: Array, out: Sorts) -> None:
        """Adds bytes to the tallies; held: the contents of these blocks in each run."""
        differs, kept = np.zeros(len(held[0]), bool), np.ones(len(held[0]), bool)
        in_place = np.full(len(held[0]), self._kind in FILLED)
        for i, data in enumerate(held):
            differs |= data != held[0]
            fill = self._same.fill(i)
            if fill in CONSTANT:
                kept &= data == CONSTANT[fill]
            elif self._kind in BY_ADDRESS:
                in_place &= data == _filled(fill, self._base(i), blocks, len(data))
        out.unwritten.add(differs & kept & in_place, blocks)
        out.copied.add(differs & kept & ~in_place, blocks)
        out.computed.add(differs & ~kept, blocks)


def _filled(fill: str, base: int, blocks: Array, size: int) -> Array:
    """What new memory holds in these blocks, the last of which may be short."""
    runs = np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1)
    pieces = [
        fill_bytes(fill, base + int(run[0]) * BLOCK_SIZE, len(run) * BLOCK_SIZE) for run in runs
    ]
    return np.concatenate(pieces)[:size]


def _constant_digests(fill: str, sizes: Array) -> Array:
    """The digests of blocks of these sizes in new memory."""
    different, which = np.unique(sizes, return_inverse=True)
    data = np.full(BLOCK_SIZE, CONSTANT[fill], "u1")
    return digests_of_spans(data, np.zeros_like(different), different)[which.reshape(-1)]
