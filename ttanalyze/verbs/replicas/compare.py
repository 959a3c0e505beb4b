"""Finds memory that was equal on all ranks and then is not.

Each rank is compared with the first one, by the digests of blocks, in the epochs that all have in
common. Of the blocks that were equal on all ranks and then are not, judge.py says which are
replicas.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import contents
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.util.parallel import address_of, each
from ttanalyze.util.progress import Progress
from ttanalyze.util.remote import Url
from ttanalyze.verbs.diff.compare import contexts
from ttanalyze.verbs.diff.details import Details
from ttanalyze.verbs.diff.histories import common_states
from ttanalyze.verbs.diff.match import MatchedRegions
from ttanalyze.verbs.diff.pairing import Pairing, match_context
from ttanalyze.verbs.diff.sides import Names, Side, of_process, read_calls
from ttanalyze.verbs.diff.states import BATCH, MOST, Common, Stretches, compare_states
from ttanalyze.verbs.replicas.blocks import Blocks, Layout
from ttanalyze.verbs.replicas.judge import Change, Judge, Place
from ttanalyze.verbs.replicas.report import Replica, ReplicasReport

LISTED = 16  # places that are described
WORTH = 1 << 22  # digests for which processes of their own are worth it
_Block = tuple[int, int, list[str]]  # number, contents before, names of what differs


def replicas(
    run: Run,
    ranks: Sequence[int] | None = None,
    *,
    every: bool = False,
    progress: Progress = None,
    cluster: str | None = None,
) -> ReplicasReport:
    """Compares the memory that the ranks of a run should hold alike.

    It needs digests only (`--contents none`). With contents it names the element, too.

    Args:
        run: The run.
        ranks: The ranks to compare. Default: all.
        every: Whether to describe all places that differ, not only those of the first epoch.
        progress: Called with the finished and the total number of compared ranks.
        cluster: The address of a dask scheduler whose workers compare the ranks. Default: that of
            DASK_SCHEDULER_ADDRESS, else this machine.

    Returns:
        The report.

    Raises:
        Error: There are fewer than two ranks, they have no epoch in common, or nothing was equal.
        FormatError: A file does not follow the format.

    Example:
        >>> report = tt.replicas(tt.open("ddp"))
        >>> found = report.found[0]
        >>> found.epoch, found.odd, found.names
        (7, [1], ['layer.weight'])
    """
    began = time.monotonic()
    report = ReplicasReport(str(run.path))
    chosen = _chosen(run, ranks, report)
    names = Names()
    sides = [of_process(process, names) for process in chosen]
    calls = [read_calls(side, names) for side in sides]
    every_context = contexts(sides[0], sides[0], calls[0])
    for number, context in enumerate(every_context):
        matched = [
            match_context(sides[0], side, context, calls[0], of)
            for side, of in zip(sides[1:], calls[1:], strict=True)
        ]
        one = _Context(report, sides, matched, names)
        one.compare(_part(progress, number, len(every_context)), address_of(cluster))
    if not report.epochs:
        raise Error(f"{run.path}: nothing to compare: the ranks have no epoch in common")
    if not report.equal_bytes:
        raise Error(f"{run.path}: nothing to compare: no memory was equal on all ranks")
    report.found.sort(key=lambda found: (found.epoch, found.divergence.region_a))
    if not every and report.found:
        report.found = [f for f in report.found if f.epoch == report.found[0].epoch]
    report.same = not report.count
    report.seconds = round(time.monotonic() - began, 6)
    return report


def _part(progress: Progress, number: int, total: int) -> Progress:
    if progress is None:
        return None
    return lambda done, of: progress(number * of + done, total * of)


def _chosen(run: Run, ranks: Sequence[int] | None, report: ReplicasReport) -> list[Process]:
    """Returns the processes to compare, and tells the report of them."""
    found = {p.rank.rank: p for p in run.processes if p.rank is not None and len(p.epochs)}
    world = max((p.rank.world_size for p in run.processes if p.rank is not None), default=0)
    if not found:
        report.ranked = False
        report.notes.append("no launcher gave ranks: processes count as ranks")
        found = {p.index: p for p in run.processes if len(p.epochs)}
    for rank in ranks or ():
        if rank not in found:
            have = text.ranges(sorted(found))
            raise Error(f"{run.path}: no rank {rank} with epochs (there are: {have})")
    report.ranks = sorted(found if ranks is None else set(ranks))
    report.missing = sorted(set(range(world)) - found.keys()) if ranks is None else []
    if len(report.ranks) < 2:
        have = f"rank {report.ranks[0]} alone" if report.ranks else "no rank with epochs"
        raise Error(f"{run.path}: it takes two ranks to compare, and there is {have}")
    return [found[rank] for rank in report.ranks]


class _Context:
    """The comparison of one context of the first rank with the same context of the others."""

    def __init__(
        self, report: ReplicasReport, sides: list[Side], matched: list[Pairing], names: Names
    ) -> None:
        self.report = report
        self.sides = sides
        self.matched = matched
        self.names = names
        everywhere = [set(m.epochs[0].tolist()) for m in matched]
        self.epochs = np.array(sorted(set.intersection(*everywhere)), "i8")
        self.others = [m.epochs[1][np.isin(m.epochs[0], self.epochs)] for m in matched]
        rows = set.intersection(*(set(m.same_size.rows_a.tolist()) for m in matched))
        self.rows = np.array(sorted(rows), "i8")
        self.regions = matched[0].regions.a.where(self.rows)
        self.layout = Layout.of(self.regions.size)
        self.judge = Judge(self.epochs, functools.cache(self._places))

    def compare(self, progress: Progress, cluster: str | None) -> None:
        report = self.report
        report.epochs += len(self.epochs)
        report.bytes += int(self.regions.size.sum(dtype="u8"))
        self._note_epochs()
        if not len(self.epochs) or not self.layout.count:
            return
        self.pairs = [self._common(i) for i in range(len(self.matched))]
        several = sum(int(side.digest_end[-1]) for side in self.sides) > WORTH
        several &= not isinstance(self._process(0).path, Url)
        task = functools.partial(_stretches, self.layout)
        self.stretches = each(task, self.pairs, several, progress, cluster)
        if any(found.total > MOST for found in self.stretches):
            report.notes.append(f"more than {MOST:,} differences of two ranks: not all were judged")
        self._find()

    def _note_epochs(self) -> None:
        """Adds which ranks have fewer epochs than others, and how many have no counterpart."""
        report = self.report
        have = [len(self.matched[0].usable[0]), *(len(m.usable[1]) for m in self.matched)]
        for count in sorted(set(have) - {max(have)}):
            short = [rank for rank, own in zip(report.ranks, have, strict=True) if own == count]
            few = f"{'have' if short[1:] else 'has'} {text.count(count, 'epoch')}"
            report.notes.append(
                f"{text.ranks(short)} {few}, others up to {max(have):,}: the rest is left out; "
                "`ttanalyze info` says how each recording ended"
            )
        left = min(have) - len(self.epochs)
        if left:
            report.notes.append(f"{text.count(left, 'epoch')} without a counterpart on all ranks")

    def _regions(self, i: int) -> MatchedRegions:
        """Returns the pairs of the first rank and rank i + 1 of regions that all ranks have."""
        of = self.matched[i].same_size
        kept = np.isin(of.rows_a, self.rows)
        return replace(of, rows_a=of.rows_a[kept], rows_b=of.rows_b[kept])

    def _process(self, i: int) -> Process:
        process = self.sides[i].process
        assert process is not None, "ranks are recorded processes"
        return process

    def _common(self, i: int) -> Common:
        """Returns the regions and the epochs of the first rank and rank i + 1."""
        sides = self.sides[0], self.sides[i + 1]
        return common_states(*sides, self.epochs, self.others[i], self._regions(i))

    def _history(self, differs: Array) -> tuple[Array, Array, Array, Array]:
        """Returns which blocks of the first rank ever held more than a constant; block, position
        and digest of what it held in those that differ, by block and position.
        """
        side = Blocks.of(self.sides[0], self.regions.id, self.layout)
        ever = np.zeros(self.layout.count, bool)
        parts = [(np.empty(0, "i8"), np.empty(0, "u4"), np.empty(0, "u8"))]
        first, last = 0, int(self.epochs[-1]) + 1
        while first < last and (differs | ~ever).any():
            before = int(side.digest_end[first - 1]) if first else 0
            fits = int(np.searchsorted(side.digest_end, before + BATCH, "right"))
            end = min(max(first + 1, fits), last)
            found = side.digests(first, end, np.flatnonzero(differs | ~ever))
            ever[found[0][~np.isin(found[2], self.layout.constant_digests)]] = True
            kept = differs[found[0]]
            parts.append((found[0][kept], found[1][kept], found[2][kept]))
            first = end
        block, epoch, digest = (np.concatenate(column) for column in zip(*parts, strict=True))
        position = np.searchsorted(self.epochs, epoch)
        order = np.lexsort((epoch, position, block))
        block, position, digest = block[order], position[order], digest[order]
        newest = np.append((block[1:] != block[:-1]) | (position[1:] != position[:-1]), True)
        newest = newest[: len(block)]
        return ever, block[newest], position[newest], digest[newest]

    def _find(self) -> None:
        """Judges the differences, and adds those of replicas to the report."""
        differing = _joined(self.stretches)
        differs = np.zeros(self.layout.count, bool)
        differs[list(differing)] = True
        ever, block, position, digest = self._history(differs)
        telling = ~np.isin(digest, self.layout.constant_digests)
        bounds = np.searchsorted(block, np.arange(self.layout.count + 1))
        # Without a difference, memory counts if it ever held more than a constant.
        equal = np.flatnonzero(ever & ~differs).tolist()
        places: dict[tuple[int, int], list[_Block]] = {}
        last_position = len(self.epochs) - 1
        for number, parts in differing.items():
            of = slice(int(bounds[number]), int(bounds[number + 1]))
            at, what = position[of], np.where(telling[of], digest[of], np.uint64(0))
            start, was = 0, False
            for first, last, since in parts:
                held = _held(at, what, start, first - 1) if first > start else 0
                was |= held > 0
                for_good = start == 0 and last == last_position
                start = last + 1
                if held and since:
                    told = _held(at, what, first - 1, first - 1) > 0
                    row, names = self._judged(number, first, held, told, for_good)
                    if names is not None:
                        places.setdefault((first, row), []).append((number, held, names))
                        break  # what follows may be a consequence
            was |= _held(at, what, start, last_position) > 0
            equal += [number] if was else []
        self.report.equal_bytes += self.layout.bytes_of(np.array(equal, "i8"))
        self.report.count += len(places)
        for (first, row), blocks in sorted(places.items())[:LISTED]:
            self.report.found.append(self._replica(first, row, blocks))

    def _judged(
        self, number: int, first: int, held: int, told: bool, for_good: bool
    ) -> tuple[int, list[str] | None]:
        """Returns the row of the region of a block, and what differs in it: see Judge."""
        row, block = (int(one[0]) for one in self.layout.place(np.array([number])))
        size = min(int(self.regions.size[row]) - block * BLOCK_SIZE, BLOCK_SIZE)
        return row, self.judge.names(row, Change(block, size, first, held, told, for_good))

    def _places(self, row: int, position: int) -> list[Place]:
        """Returns where each rank has a region in an epoch."""
        out = [(self._process(0), int(self.epochs[position]), int(self.regions.id[row]))]
        for i, others in enumerate(self.others):
            rows = self.pairs[i].regions_b
            out.append((self._process(i + 1), int(others[position]), int(rows[row])))
        return out

    # ---- what is reported ----

    def _replica(self, first: int, row: int, found_blocks: list[_Block]) -> Replica:
        numbers = [number for number, _, _ in found_blocks]
        blocks = [number - int(self.layout.base[row]) for number in numbers]
        groups = self._groups(first, row, blocks[0])
        most = groups[0] if 2 * len(groups[0]) > len(self.sides) else []
        report = self.report
        ours = next(group for group in groups if report.ranks[0] in group)
        other = next(rank for rank in report.ranks if rank not in ours)
        i = report.ranks.index(other) - 1
        of = self.pairs[i], self._regions(i), self.matched[i].calls
        details = Details(*of, self.names, {}, None, {row: frozenset(blocks)})
        found = details.divergence(self._one(i, first, row, numbers), 0)
        return Replica(
            epoch=int(self.epochs[first]),
            step=self._step(found.after),
            groups=groups,
            odd=[rank for rank in report.ranks if rank not in most] if most else [],
            names=sorted({name for *_, names in found_blocks for name in names}),
            blocks=blocks,
            contents=max(held for _, held, _ in found_blocks),
            ranks=(report.ranks[0], other),
            divergence=found,
        )

    def _one(self, i: int, first: int, row: int, numbers: list[int]) -> Stretches:
        """Returns the difference of a region from a position on, as one stretch."""
        of = self.stretches[i]
        ours = np.isin(of.pair, numbers) & (of.first == first)
        at = np.flatnonzero(ours)
        last = int(of.last[at].max()) if len(at) else first
        digests = [getattr(of, f"digest_{side}")[at[:1]] for side in "ab"]
        return replace(
            of,
            pair=np.array([row]),
            first=np.array([first]),
            last=np.array([last]),
            since=np.array([True]),
            digest_a=digests[0] if len(at) else np.zeros(1, "u8"),
            digest_b=digests[1] if len(at) else np.zeros(1, "u8"),
        )

    def _groups(self, first: int, row: int, block: int) -> list[list[int]]:
        """Returns the ranks that hold the same in a block, the largest group first."""
        held: dict[int, list[int]] = {}
        for rank, place in zip(self.report.ranks, self._places(row, first), strict=True):
            record = contents.block_records(*place, True, block, block + 1)
            held.setdefault(int(record["digest"][0]), []).append(rank)
        return sorted(held.values(), key=lambda group: (-len(group), group))

    def _step(self, after: dict[str, object] | None) -> str | None:
        """Returns the NVTX range of the last launch before the epoch."""
        process = self.sides[0].process
        if after is None or process is None:
            return None
        seq = int(str(after["seq"]))
        return process.annotations.range_of(process.events_between(seq - 1, seq)[0])


def _stretches(layout: Layout, common: Common) -> Stretches:
    """Compares the blocks of two ranks. common: their regions."""
    count, numbers = layout.blocks, np.arange(layout.count)
    found = compare_states(
        replace(
            common,
            a=Blocks.of(common.a, common.regions_a, layout),
            b=Blocks.of(common.b, common.regions_b, layout),
            regions_a=numbers,
            regions_b=numbers,
            born=np.repeat(common.born, count),
            died=np.repeat(common.died, count),
        )
    )
    assert common.b.process is not None, "ranks are recorded processes"
    common.b.process.release()
    return found


def _held(at: Array, digest: Array, first: int, last: int) -> int:
    """Returns how many different contents a block had at some positions, without constants.

    at, digest: the positions at which it changed, ascending, and its digests, 0 for a constant.
    """
    if first > last:
        return 0
    begin = max(0, int(np.searchsorted(at, first, "right")) - 1)
    end = int(np.searchsorted(at, last, "right"))
    return len(set(digest[begin:end].tolist()) - {0})


def _joined(every: Sequence[Stretches]) -> dict[int, list[tuple[int, int, bool]]]:
    """Returns for each block the positions, first to last, at which any rank differs, and whether
    all were equal before.
    """
    parts = [
        np.stack([of.pair, of.first.astype("i8"), of.last.astype("i8"), of.since.astype("i8")], 1)
        for of in every
    ]
    rows = np.concatenate(parts)
    out: dict[int, list[tuple[int, int, bool]]] = {}
    for block, first, last, since in rows[np.lexsort((rows[:, 1], rows[:, 0]))].tolist():
        known = out.setdefault(block, [])
        if known and first <= known[-1][1] + 1:
            begin, end, equal = known[-1]
            known[-1] = begin, max(end, last), equal and (first > begin or bool(since))
        else:
            known.append((first, last, bool(since)))
    return out
