"""Compares two runs: aligns their calls and epochs, and finds the first differences in memory.

A process is compared with the one that has the same command line, else in order. Within a process
each context is compared by itself. All memory is compared by digests, which needs no contents.
Contents are read for the differences that are described, and where a tolerance is given.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ttanalyze.core.values import Tolerance, Type
from ttanalyze.core.values import parse as parse_type
from ttanalyze.errors import Error
from ttanalyze.format.expected import ExpectedProcess, load, parse
from ttanalyze.format.layout import Array, distinct
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.util.arguments import checked
from ttanalyze.util.parallel import address_of, each
from ttanalyze.util.progress import Progress, tell
from ttanalyze.util.remote import Url, place
from ttanalyze.verbs.diff import match
from ttanalyze.verbs.diff.details import Details, Types
from ttanalyze.verbs.diff.histories import common_states, contents_of
from ttanalyze.verbs.diff.launches import add_launches
from ttanalyze.verbs.diff.match import MatchedCalls, MatchedRegions
from ttanalyze.verbs.diff.pairing import Pairing, match_context
from ttanalyze.verbs.diff.report import DiffReport, Launches, ProcessDiff, RegionAlone, Spread
from ttanalyze.verbs.diff.sides import Calls, Names, Side, of_manifest, of_process, read_calls
from ttanalyze.verbs.diff.states import Common, Stretches, compare_states

LISTED = 100  # regions without a counterpart that a report lists
SPREAD = 16
WORTH = 1 << 22  # digests for which it is worth to compare processes side by side
TRIED = 64  # divergences that are looked at for one that is more than leftovers
Source = Run | Mapping[str, Any] | str | os.PathLike[str]


@checked
def parse_types(value: str) -> Types:
    """Parses types of items, such as "f32,3=bf16,weights=f16".

    Args:
        value: "TYPE" for all other regions, "REGION=TYPE" for one, separated by commas. REGION is
            an id or a label.

    Returns:
        The types by id, label or None (all other regions), as `diff` takes them.

    Raises:
        Error: The text is malformed, or names a region twice or an unknown type.

    Example:
        >>> types = tt.diff.parse_types("f32,weights=bf16")
        >>> {region: type.name for region, type in types.items()}
        {None: 'f32', 'weights': 'bf16'}
    """
    types: dict[str | int | None, Type] = {}
    for part in value.split(","):
        region, _, name = part.rpartition("=")
        number = region.isascii() and region.isdecimal()
        key = (int(region) if number else region) if region else None
        if key in types or (not region and "=" in part):
            raise Error(f"--dtype {value}: expected TYPE or REGION=TYPE, each once")
        types[key] = parse_type(name)
    return types


def diff(
    a: Source,
    b: Source,
    *,
    every: bool = False,
    types: Types | Type | None = None,
    tolerance: Tolerance | None = None,
    progress: Progress = None,
    cluster: str | None = None,
) -> DiffReport:
    """Compares two runs, or manifests of runs.

    Args:
        a: A run, the path of a run or a manifest, or a parsed manifest.
        b: The other side, likewise.
        every: Whether to describe every divergence, not only the first of each process.
        types: The type of the items of all regions, or types by the id in `a` or the label of a
            region (None: all other regions). Needed to compare values.
        tolerance: Items this close do not count as different. It applies to regions with a type.
        progress: Called with the finished and the total number of epochs, then of divergences; of
            several large processes, with those of processes.
        cluster: The address of a dask scheduler whose workers compare the processes. Default: that
            of DASK_SCHEDULER_ADDRESS, else this machine.

    Returns:
        The report. `same` is true if nothing differs.

    Raises:
        Error: There is nothing to compare, a type is for an unknown region, or `tolerance` is given
            without `types`.
        FormatError: A file does not follow the format.

    Example:
        >>> report = tt.diff("run1", "run2", types=tt.values.parse("f32"))
        >>> report.same
        False
        >>> process, divergence = report.first
        >>> divergence.label, divergence.epoch_a, divergence.epoch_b
        ('weights', 1, 1)
        >>> divergence.examples
        [(3, '1.5', '2.5')]
    """
    began = time.monotonic()
    by_region: Types = {None: types} if isinstance(types, Type) else types or {}
    if tolerance is not None and not by_region:
        raise Error("--tolerance needs --dtype")
    work = _Diff(every, by_region, tolerance, progress)
    name_a, sides_a = _sides(a, work.names)
    name_b, sides_b = _sides(b, work.names)
    for source in (a, b):
        if isinstance(source, Run) and source.ranks is not None:  # of a manifest no others, too
            kept = {None, *source.ranks}
            sides_a, sides_b = (
                [side for side in sides if _rank(side) in kept] for sides in (sides_a, sides_b)
            )
    _check_types(by_region, sides_a, work.names)
    pairs = _pairs(sides_a, sides_b)
    work.total = sum(min(len(x.flags), len(y.flags)) for x, y in pairs)
    large = sum(int(x.digest_end[-1]) for x, _ in pairs if len(x.digest_end)) > WORTH
    here = not any(s.process and isinstance(s.process.path, Url) for p in pairs for s in p)
    address = address_of(cluster)
    several = address is not None or (large and len(pairs) > 1 and here)
    work.progress = None if several else progress
    processes = each(work.pair, pairs, several, progress if several else None, address)
    alone = [
        [s.index for s in sides if s.index not in {p[which].index for p in pairs}]
        for which, sides in enumerate((sides_a, sides_b))
    ]
    memory_same = not any(p.divergence_count for p in processes)
    unknown = None if any(alone) else _unknown(pairs, processes)
    report = DiffReport(
        a=name_a,
        b=name_b,
        same=all(p.same for p in processes) and not any(alone) and unknown is None,
        memory_same=memory_same,
        unknown=unknown,
        tolerance=_tolerance_text(tolerance),
        processes=processes,
        alone_a=alone[0],
        alone_b=alone[1],
        seconds=round(time.monotonic() - began, 6),
    )
    if report.same or report.unknown is not None:
        _require_something(report, any(len(x.regions.id) for x in (*sides_a, *sides_b)))
    return report


def _unknown(pairs: list[tuple[Side, Side]], processes: list[ProcessDiff]) -> str | None:
    """Returns the failed recordings, if nothing differs but what they lack."""
    out = []
    for sides, found in zip(pairs, processes, strict=True):
        failed = [
            (name, side.process)
            for name, side in zip("ab", sides, strict=True)
            if side.process is not None and side.process.failure is not None
        ]
        if not found.same and not any(found.only_lacks(name) for name, _ in failed):
            return None
        for name, process in failed:
            out.append(f"process {process.index} of {name.upper()}: {process.failure}")
    return "; ".join(out) or None


def _check_types(types: Types, sides: list[Side], names: Names) -> None:
    """Raises Error if a type is given for a region that does not exist."""
    ids = np.concatenate([np.empty(0, "u4"), *(side.regions.id for side in sides)])
    labels = np.concatenate([np.empty(0, "i8"), *(side.regions.label for side in sides)])
    for key in types:
        there = (ids == key) if isinstance(key, int) else (labels == names.number(key))
        if key is not None and not there.any():
            raise Error(f"a type is given of region {key!r}, which A does not have")


def _require_something(report: DiffReport, memory: bool) -> None:
    """Raises Error if nothing was compared. memory: whether there are regions."""
    epochs = any(p.epochs_a or p.epochs_b for p in report.processes)
    calls = any(p.launches is not None and p.launches.calls for p in report.processes)
    if any(p.region_epochs for p in report.processes) or (calls and not (epochs and memory)):
        return
    why = "neither has epochs or calls"
    if any(p.common for p in report.processes):
        why = "no region has contents in an epoch of both"
    elif epochs:
        why = "no epoch of one is at the same point of the program as one of the other"
    lead = f"{report.a} and {report.b}: nothing to compare: {why}"
    raise Error(lead if report.unknown is None else f"{lead}; {report.unknown}")


def _tolerance_text(tolerance: Tolerance | None) -> str | None:
    if tolerance is None:
        return None
    parts = (tolerance.abs, tolerance.rel, tolerance.ulp)
    return ",".join("" if part is None else str(part) for part in parts).rstrip(",")


def _sides(source: Source, names: Names) -> tuple[str, list[Side]]:
    if isinstance(source, Run):
        return str(source.path), [of_process(p, names) for p in source.processes]
    if isinstance(source, Mapping):
        return "manifest", _of_manifest(parse(source, "manifest"), names)
    path = place(source)
    if path.is_dir():
        run = Run(path)
        return str(run.path), [of_process(p, names) for p in run.processes]
    return os.fspath(source), _of_manifest(load(source), names)


def _of_manifest(expected: list[ExpectedProcess], names: Names) -> list[Side]:
    return [of_manifest(process, names) for process in expected]


def _pairs(a: list[Side], b: list[Side]) -> list[tuple[Side, Side]]:
    """Returns pairs of processes: first those with the same rank, then those with the same command
    line, then the others, each in order. Of several processes, different ranks are no pair.
    """
    pairs: list[tuple[Side, Side]] = []
    left, alone = list(b), len(a) == len(b) == 1

    def alike(one: Side, other: Side, first: str) -> bool:
        ranks = _rank(one), _rank(other)
        if first == "rank" or (None not in ranks and not alone):
            return ranks[0] == ranks[1] is not None
        return first == "any" or _command(one) == _command(other) != ()

    for first in ("rank", "command", "any"):
        taken = {id(x) for x, _ in pairs}
        for one in a:
            if id(one) in taken:
                continue
            other = next((other for other in left if alike(one, other, first)), None)
            if other is not None:
                pairs.append((one, other))
                left.remove(other)
    return sorted(pairs, key=lambda pair: pair[0].index)


def _rank(side: Side) -> int | None:
    if side.process is None:
        return None if side.expected is None else side.expected.rank
    return None if side.process.rank is None else side.process.rank.rank


def _command(side: Side) -> tuple[str, ...]:
    return tuple(side.process.info.get("argv", [])) if side.process is not None else ()


class _Diff:
    def __init__(
        self, every: bool, types: Types, tolerance: Tolerance | None, progress: Progress
    ) -> None:
        self.names = Names()
        self.every = every
        self.types = types
        self.tolerance = tolerance
        self.progress = progress
        self.done = self.total = 0

    def pair(self, sides: tuple[Side, Side]) -> ProcessDiff:
        """Compares two processes."""
        a, b = sides
        out = ProcessDiff(
            a.index,
            b.index,
            epochs_a=len(a.flags),
            epochs_b=len(b.flags),
            left_out_a=int(np.count_nonzero(~a.usable)),
            left_out_b=int(np.count_nonzero(~b.usable)),
            skipped_a=a.skipped,
            skipped_b=b.skipped,
        )
        if a.process is None or b.process is None:
            a, b = _without_contexts(a), _without_contexts(b)
        calls_a, calls_b = read_calls(a, self.names), read_calls(b, self.names)
        if calls_a is not None and calls_b is not None:
            out.launches = Launches()
        else:
            out.notes.append("the calls of one side are unknown: epochs are matched by their order")
        for name, side in (("A", a), ("B", b)):
            if side.process is not None and side.process.status == "running":
                out.notes.append(f"{name} was killed or still runs")
            elif side.process is not None and side.process.failure is not None:
                out.notes.append(f"{name}: {side.process.failure}")
        lanes = 0
        for context in contexts(a, b, calls_a, calls_b):
            found = match_context(a, b, context, calls_a, calls_b)
            if found.calls is not None:
                assert out.launches is not None
                assert a.process is not None and b.process is not None
                add_launches(out.launches, found.calls, a.process, b.process)
                lanes = max(lanes, found.calls.lanes)
            self._context(out, a, b, context, found)
        if lanes > 1:
            out.notes.append("several threads submit work: streams, or threads, are aligned alone")
        out.divergences.sort(key=lambda d: (d.epoch_a, d.region_a))
        if not self.every:
            out.divergences.sort(key=lambda d: d.leftover)
            del out.divergences[1:]
        out.spread.sort(key=lambda s: (s.epoch_a, s.region_a))
        del out.spread[SPREAD:]
        for side in (a, b):
            if side.process is not None:
                side.process.release()
        return out

    def _context(self, out: ProcessDiff, a: Side, b: Side, context: int, found: Pairing) -> None:
        """Adds the comparison of one context."""
        self._add_regions(out, found.regions, ~found.equal)
        regions, (epochs_a, epochs_b) = found.same_size, found.epochs
        for count in filter(None, found.unsure):
            left = text.count(count, "epoch")
            out.notes.append(f"{left} left out: other threads submitted work as they were cut")
        self._add_alone(out, (a, b), context, found.usable, found.epochs)
        common = common_states(a, b, epochs_a, epochs_b, regions)
        states, details = self._states(common, regions, found.calls)
        again = self._by_contents(common, regions, states)
        if again is not None:
            out.notes.append("regions that were allocated in another order are paired by contents")
            regions, common = again, common_states(a, b, epochs_a, epochs_b, again)
            states, details = self._states(common, regions, found.calls)
        self.done += len(epochs_a)
        out.common += len(epochs_a)
        out.regions += len(common.born)
        out.region_epochs += states.compared
        out.differing += states.differing
        out.tolerated += states.tolerated
        out.unknown += states.unknown
        out.unread += states.unread
        out.divergence_count += states.total
        out.stopped |= states.positions < len(epochs_a)
        for i in range(len(states.pair)):
            if not self.every and (i == TRIED or (i and not out.divergences[-1].leftover)):
                break
            out.divergences.append(details.divergence(states, i))
            if self.every and self.progress:
                self.progress(i + 1, len(states.pair))
        self._add_spread(out, states, details)

    def _states(
        self, common: Common, regions: MatchedRegions, calls: MatchedCalls | None
    ) -> tuple[Stretches, Details]:
        details = Details(common, regions, calls, self.names, self.types, self.tolerance)
        judge = details.within_tolerance if self.tolerance is not None else None
        stop = judge is not None and not self.every
        return compare_states(common, judge, stop, self._advance), details

    def _by_contents(
        self, common: Common, regions: MatchedRegions, states: Stretches
    ) -> MatchedRegions | None:
        """Returns the regions with some that differ matched to others with the same contents, None
        if there are none.
        """
        if self.tolerance is not None and len(states.pair):
            states = compare_states(common)
        differ = distinct(states.pair)
        if len(differ) < 2:
            return None
        histories = (
            contents_of(common.a, common.epochs_a, common.regions_a[differ]),
            contents_of(common.b, common.epochs_b, common.regions_b[differ]),
        )
        return match.by_contents(regions, differ, histories)

    def _add_alone(
        self,
        out: ProcessDiff,
        sides: tuple[Side, Side],
        context: int,
        epochs: tuple[Array, Array],
        common: tuple[Array, Array],
    ) -> None:
        """Adds the epochs of a context without a counterpart."""
        since = [int(them[-1]) + 1 if len(them) else 0 for them in common]
        alone = [len(epochs[i]) - len(common[i]) for i in (0, 1)]
        out.epochs_alone_a += alone[0]
        out.epochs_alone_b += alone[1]
        for i, other in ((0, 1), (1, 0)):
            # Those that are left out may have been their counterparts.
            side = sides[other]
            left_out = np.flatnonzero(~side.usable & (side.context == context))
            behind = np.count_nonzero(epochs[i] >= since[i])
            lacks = not side.ended and behind > np.count_nonzero(left_out >= since[other])
            unsure = out.launches is None and alone[i] > len(left_out)
            out.epochs_lack |= bool(lacks or unsure)

    def _advance(self, done: int, total: int) -> None:
        tell(self.progress, min(self.done + done, self.total), self.total)

    def _add_regions(self, out: ProcessDiff, regions: MatchedRegions, other: Array) -> None:
        """Adds regions without a counterpart, and pairs of `other` sizes."""
        rows: list[tuple[str, int | None, int | None]] = []
        rows += [("a", row, None) for row in regions.alone(0).tolist()]
        rows += [("b", None, row) for row in regions.alone(1).tolist()]
        pairs = zip(regions.rows_a[other].tolist(), regions.rows_b[other].tolist(), strict=True)
        rows += [("both", one, two) for one, two in pairs]
        out.regions_alone_count += len(rows)
        out.regions_alone_a += len(regions.alone(0))
        out.regions_alone_b += len(regions.alone(1))
        for side, row_a, row_b in rows[: LISTED - len(out.regions_alone)]:
            of, row = (regions.a, row_a) if row_a is not None else (regions.b, row_b)
            assert row is not None
            out.regions_alone.append(
                RegionAlone(
                    side=side,
                    region_a=None if row_a is None else int(regions.a.id[row_a]),
                    region_b=None if row_b is None else int(regions.b.id[row_b]),
                    kind=self.names.text(int(of.kind[row])) or "",
                    label=self.names.text(int(of.label[row])),
                    size_a=None if row_a is None else int(regions.a.size[row_a]),
                    size_b=None if row_b is None else int(regions.b.size[row_b]),
                )
            )

    def _add_spread(self, out: ProcessDiff, states: Stretches, details: Details) -> None:
        """Adds the first epoch in which each pair differs."""
        pairs, first, counts = np.unique(states.pair, return_index=True, return_counts=True)
        out.regions_differing += len(pairs)
        order = np.argsort(first, kind="stable")[:SPREAD]
        common, regions = details.common, details.regions
        for pair, i, count in zip(pairs[order], first[order], counts[order], strict=True):
            row, position = int(regions.rows_a[pair]), int(states.first[i])
            out.spread.append(
                Spread(
                    region_a=int(common.regions_a[pair]),
                    region_b=int(common.regions_b[pair]),
                    label=self.names.text(int(regions.a.label[row])),
                    size=int(regions.a.size[row]),
                    epoch_a=int(common.epochs_a[position]),
                    epoch_b=int(common.epochs_b[position]),
                    stretches=int(count),
                )
            )


def _without_contexts(side: Side) -> Side:
    """Returns a process in the form that a manifest has."""
    regions = replace(side.regions, context=np.zeros_like(side.regions.context))
    return replace(side, context=np.zeros_like(side.context), regions=regions)


def contexts(a: Side, b: Side, *calls: Calls | None) -> list[int]:
    """Returns the contexts that epochs, regions or calls of either side have."""
    them = [of.context for side in (a, b) for of in (side, side.regions)]
    them += [of.context for of in calls if of is not None]
    return np.unique(np.concatenate([distinct(one) for one in them])).tolist()
