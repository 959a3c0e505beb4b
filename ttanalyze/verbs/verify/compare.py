"""Compares a run with a manifest and lists the differences.

The comparison covers the state of each region in each epoch. The digests of the run are computed
again from the stored contents, so a damaged file is found too. If only digests are left of an
epoch, these are compared. The state of a region in an epoch is its last digest up to this epoch, so
two recordings with full snapshots at different times still agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ttanalyze.core.digests import Comparison, DigestHistory, Lives, compare
from ttanalyze.errors import Error
from ttanalyze.format import layout, manifest
from ttanalyze.format.expected import ExpectedProcess, load, parse
from ttanalyze.format.layout import Array, distinct
from ttanalyze.format.process import Process
from ttanalyze.format.recompute import Batch, Recompute, is_cut
from ttanalyze.format.run import Run
from ttanalyze.format.selection import all_named
from ttanalyze.format.unread import Unread, find_unread, keys_of
from ttanalyze.util.parallel import address_of
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.verify.localise import Localiser, Tamper
from ttanalyze.verbs.verify.recompute import Recomputed, recompute
from ttanalyze.verbs.verify.report import Difference, VerifyReport

LISTED = 100  # differences that a report describes; it counts them all


def verify(
    run: Run,
    manifest: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    epochs: tuple[int, int] | None = None,
    regions: Sequence[int | str] | None = None,
    keep_going: bool = False,
    against: Run | None = None,
    tamper: tuple[int, int, int] | None = None,
    progress: Progress = None,
    cluster: str | None = None,
) -> VerifyReport:
    """Compares regions of a run with a manifest, epoch by epoch.

    Computes the digests of the run again from its stored contents, so damaged files are found.
    Stops at the first difference unless `keep_going` is true.

    Args:
        run: The run to check.
        manifest: The path of a manifest, or a parsed one. Default: the manifest.json of `against`,
            else that of `run`. If neither has one, the digests recorded there.
        epochs: The first and the last epoch. Default: all.
        regions: The regions, by id or label; a tensor's name stands for all regions where it lay.
            Default: all.
        keep_going: Whether to go on after the first difference.
        against: The run of the manifest. If given, the report has the bytes that differ.
        tamper: An epoch, a region and a byte offset. The comparison inverts this byte of the first
            process, to show that a difference is found.
        progress: Called with the finished and the total number of epochs.
        cluster: The address of a dask scheduler whose workers read the contents. Default: that of
            DASK_SCHEDULER_ADDRESS, else this machine. The workers read all, also behind a
            difference.

    Returns:
        The report. `same` is true if run and manifest agree.

    Raises:
        FormatError: A file does not follow the format.
        Error: A requested epoch or region does not exist, or there is nothing to compare.

    Example:
        >>> report = tt.verify(tt.open("run1"), tt.open("run2").manifest())
        >>> report.same
        False
        >>> report.differences[0].epoch, report.differences[0].region
        (1, 0)
    """
    began = time.monotonic()
    for process in run.processes:
        process.check_files()
    wanted, name = _expected(run, manifest, against)
    check = _Check(run, against, epochs, regions, keep_going, tamper, progress)
    address = address_of(cluster)
    if is_cut(run.processes, address):
        check.recomputed = recompute(check.ranges(), check.wanted, address, progress)
        check.progress = None
    check.processes(wanted)
    shown = check.differences if keep_going else check.differences[:1]
    if not check.differences and not check.region_epochs:
        raise Error(f"{run.path}: nothing to compare: {check.nothing()}")
    failed = "; ".join(line for one in (run, against) if one for line in one.failures)
    unknown = failed if failed and not check.differences else None
    return VerifyReport(
        run=str(run.path),
        manifest=name,
        against=str(against.path) if against else None,
        same=not check.differences and unknown is None,
        unknown=unknown,
        processes=check.process_count,
        epochs=check.epoch_count,
        regions=check.region_count,
        region_epochs=check.region_epochs,
        digest_only=check.digest_only,
        differing=check.differing,
        unread=check.unread,
        skipped=check.skipped,
        total_differences=check.total_differences,
        stopped=bool(check.differences) and not keep_going,
        blocks_read=check.blocks_read,
        bytes_read=check.bytes_read,
        seconds=round(time.monotonic() - began, 6),
        differences=[check.described(d) for d in shown],
    )


def _expected(
    run: Run, given: Mapping[str, Any] | str | os.PathLike[str] | None, against: Run | None
) -> tuple[list[ExpectedProcess], str]:
    if isinstance(given, Mapping):
        return parse(given, "manifest"), "given"
    if given is not None:
        return load(given), os.fspath(given)
    source = run if against is None else against
    recorded = source.path / "manifest.json"
    if recorded.exists():
        return load(recorded), str(recorded)
    return parse(source.manifest(), source.path), f"the digests recorded in {source.path}"


class _Found:
    """The differences of one process: their number, and the first of each sort."""

    def __init__(self) -> None:
        self.total = 0
        self.listed: list[Difference] = []

    def add(self, difference: Difference) -> None:
        """Adds a difference; they come in order. All are counted, some are kept."""
        self.total += 1
        if self.total <= LISTED:
            self.listed.append(difference)

    def take(self, other: _Found) -> None:
        """Adds differences of another sort."""
        self.total += other.total
        self.listed = sorted(self.listed + other.listed, key=_sort_key)


def _sort_key(difference: Difference) -> tuple[int, int]:
    epoch, region = difference.epoch, difference.region
    return (-1 if epoch is None else epoch, -1 if region is None else region)


class _Check:
    """The state of one verification."""

    def __init__(
        self,
        run: Run,
        against: Run | None,
        epochs: tuple[int, int] | None,
        regions: Sequence[int | str] | None,
        keep_going: bool,
        tamper: tuple[int, int, int] | None,
        progress: Progress,
    ) -> None:
        self.run = run
        self.against = against
        self.epochs = epochs
        self.wanted = None if regions is None else self._chosen(regions)
        self.keep_going = keep_going
        self.tamper = tamper
        self.progress = progress
        self.differences: list[Difference] = []
        self.total_differences = 0
        self.localisers: dict[int, Localiser] = {}
        self.process_count = self.epoch_count = self.region_count = 0
        self.region_epochs = self.digest_only = self.differing = self.unread = self.skipped = 0
        self.blocks_read = self.bytes_read = 0
        self.epochs_done = 0
        self.recomputed: dict[int, Recomputed] = {}  # by process, if it was cut
        self._check_selection()

    def _check_selection(self) -> None:
        last = max((len(p.epochs) for p in self.run.processes), default=0) - 1
        if self.epochs is not None and (self.epochs[0] > last or self.epochs[0] > self.epochs[1]):
            first, end = self.epochs
            raise Error(f"no epochs {first} to {end}: the run has 0 to {last}")
        if self.tamper is not None:
            self._check_tamper(*self.tamper)

    def _chosen(self, regions: Sequence[int | str]) -> dict[int, Array]:
        """Returns the ids of the chosen regions, by the number of the process."""
        found: dict[int, list[Array]] = {p.index: [np.empty(0, "u4")] for p in self.run.processes}
        for name in dict.fromkeys(regions):
            ids = [all_named(process, str(name)) for process in self.run.processes]
            if not any(map(len, ids)):
                what = f"region {name}" if isinstance(name, int) else f"region or tensor {name!r}"
                raise Error(f"no {what} in {self.run.path}")
            for process, some in zip(self.run.processes, ids, strict=True):
                found[process.index].append(some)
        return {index: np.unique(np.concatenate(some)) for index, some in found.items()}

    def _check_tamper(self, epoch: int, region: int, offset: int) -> None:
        if not self.run.processes:
            raise Error(f"{self.run.path}: no process was recorded")
        process = self.run.processes[0]
        first, last = self._range(process)
        if not first <= epoch <= last:
            raise Error(f"tamper: epoch {epoch} is not among those compared, {first} to {last}")
        if self.wanted is not None and region not in self.wanted[process.index]:
            raise Error(f"tamper: region {region} is not among those compared")
        Tamper(process, epoch, region, offset)

    def nothing(self) -> str:
        """Returns why nothing was compared."""
        if not any(len(process.epochs) for process in self.run.processes):
            return "; ".join(self.run.failures) or "the run has no epochs"
        if not self.epoch_count:
            return "; ".join(["all epochs were refused or overwritten", *self.run.failures])
        if self.unread:
            return "these epochs read none of the regions"
        return "no captured region lives in these epochs"

    def _range(self, process: Process) -> tuple[int, int]:
        last = len(process.epochs) - 1
        return (0, last) if self.epochs is None else (self.epochs[0], min(self.epochs[1], last))

    def ranges(self) -> list[tuple[Process, int, int]]:
        """Returns each process with its first and its last epoch."""
        return [(process, *self._range(process)) for process in self.run.processes]

    # ---- processes ----

    def processes(self, wanted: list[ExpectedProcess]) -> None:
        """Compares each process with the one of its rank, or of its number if ranks are unknown."""
        ranks = [None if p.rank is None else p.rank.rank for p in self.run.processes]
        ranked = None not in ranks and all(p.rank is not None for p in wanted)
        numbers = [p.index for p in self.run.processes]
        ours = dict(zip(_keys(ranks, numbers, ranked), self.run.processes, strict=True))
        keys = _keys([p.rank for p in wanted], [p.index for p in wanted], ranked)
        theirs = dict(zip(keys, wanted, strict=True))
        if self.run.ranks is not None:  # the others were left out on purpose
            kept = self.run.ranks if ranked else numbers
            theirs = {key: p for key, p in theirs.items() if key[0] in kept}
        for key in sorted(ours.keys() | theirs.keys()):
            if self.differences and not self.keep_going:
                return
            found = _Found()
            if key not in ours or key not in theirs:
                where = "run" if key not in ours else "manifest"
                index = (ours[key] if key in ours else theirs[key]).index
                of = f"rank {key[0]} (process {index})" if ranked else f"process {index}"
                found.add(Difference("process", f"{of} is not in the {where}", index))
            else:
                self.process_count += 1
                found = self._process(ours[key], theirs[key])
                ours[key].release()
            self.total_differences += found.total
            self.differences += found.listed[: LISTED - len(self.differences)]

    def _process(self, process: Process, wanted: ExpectedProcess) -> _Found:
        first, last = self._range(process)
        common = min(last, len(wanted.triggers) - 1)
        self.localisers[process.index] = Localiser(process, self._other(wanted.index))
        found = self._compare_epochs(process, wanted, first, last)
        regions, lives = self._compare_regions(process, wanted, first, common)
        found.take(regions)
        if common >= first:
            found.take(self._compare_contents(process, wanted, first, common, lives))
        return found

    def _other(self, index: int) -> Process | None:
        if self.against is None:
            return None
        return next((p for p in self.against.processes if p.index == index), None)

    # ---- epochs and regions ----

    def _compare_epochs(
        self, process: Process, wanted: ExpectedProcess, first: int, last: int
    ) -> _Found:
        found = _Found()
        ours, theirs = len(process.epochs), len(wanted.triggers)
        begin, end = min(ours, theirs), max(ours, theirs) - 1
        stop = min(last + 1, theirs)
        epochs = process.epochs[first:stop]
        names = [layout.TRIGGERS[trigger] for trigger in epochs["trigger"].tolist()]
        labels = [process.strings.get(label) for label in epochs["label"].tolist()]
        refused = (epochs["flags"] & layout.REFUSED != 0).tolist()
        # Which epochs --max-overhead skips depends on the time that they would have taken.
        skipped = [
            "skipped" in flags or bool(ours_too)
            for flags, ours_too in zip(wanted.flags[first:stop], epochs["skipped"], strict=False)
        ]
        expected = ["refused" in flags for flags in wanted.flags[first:stop]]
        expected = [a if s else b for a, b, s in zip(refused, expected, skipped, strict=False)]
        self.skipped += sum(skipped)
        members: list[tuple[str, list[Any], list[Any]]] = [
            ("trigger", wanted.triggers[first:stop], names),
            ("label", wanted.labels[first:stop], labels),
            ("refused", expected, refused),
        ]
        for what, in_manifest, in_run in members:
            if in_manifest == in_run:
                continue
            for number, a, b in zip(range(first, stop), in_manifest, in_run, strict=True):
                if a != b:
                    message = f"epoch {number}: {_both(what, a, b)}"
                    found.add(Difference("epoch", message, process.index, number, number))
        if begin <= end and (self.epochs is None or self.epochs[1] >= begin):
            which = f"epoch {begin} is" if begin == end else f"epochs {begin} to {end} are"
            message = f"{which} not in the {'run' if ours < theirs else 'manifest'}"
            found.add(Difference("epoch", message, process.index, begin, end))
        return found

    def _compare_regions(
        self, process: Process, wanted: ExpectedProcess, first: int, last: int
    ) -> tuple[_Found, Lives]:
        """Returns the differences, and the epochs [born, died) in which both sides have each
        region.
        """
        found = _Found()
        sides = wanted.regions, manifest.regions(process)
        for i, where in enumerate(("run", "manifest")):
            table = sides[i]
            alone = self._are_wanted(process, table.id) & ~np.isin(table.id, sides[1 - i].id)
            alone &= (table.born <= last) & (table.died > first)
            only = _Found()
            for row in np.flatnonzero(alone).tolist():
                region = int(table.id[row])
                message = f"region {region} is not in the {where}"
                location: dict[str, Any] = {"epoch": int(table.born[row]), "region": region}
                only.add(Difference("region", message, process.index, **location))
            found.take(only)
        ids = sides[0].id[np.isin(sides[0].id, sides[1].id)]
        theirs, ours = (table.rows(ids) for table in sides)
        begin, end = np.minimum(theirs.born, ours.born), np.minimum(theirs.died, ours.died)
        both = self._are_wanted(process, ids) & (begin <= last) & (end > first)
        differs = {
            what: getattr(theirs, what) != getattr(ours, what)
            for what in ("kind", "size", "label", "born", "died")
        }
        differs["died"] &= end <= last
        common = _Found()
        for row in np.flatnonzero(both & np.logical_or.reduce([*differs.values()])).tolist():
            for what in [what for what, where in differs.items() if where[row]]:
                a, b = (getattr(table, what)[row] for table in (theirs, ours))
                if what == "died":
                    a, b = (None if epoch == layout.NO_EPOCH else epoch for epoch in (a, b))
                message = f"region {ids[row]}: {_both(what, a, b)}"
                location = {"epoch": int(begin[row]), "region": int(ids[row])}
                common.add(Difference("region", message, process.index, **location))
        found.take(common)
        self.region_count += int(np.count_nonzero(both))
        return found, Lives(ids[both], np.maximum(theirs.born, ours.born)[both], end[both])

    def _are_wanted(self, process: Process, ids: Array) -> Array:
        if self.wanted is None:
            return np.ones(len(ids), bool)
        return np.isin(ids, self.wanted[process.index])

    # ---- contents ----

    def _compare_contents(
        self, process: Process, wanted: ExpectedProcess, first: int, last: int, lives: Lives
    ) -> _Found:
        expected = DigestHistory.from_unordered(
            keys_of(wanted.region, wanted.epoch), wanted.digest, np.zeros(len(wanted.region), bool)
        )
        skip = _says_nothing(process, wanted)[: last + 1]
        self.epoch_count += int(np.count_nonzero(~skip[first:]))
        unread = process.unread.joined(_unread(process, wanted))
        only = None if self.wanted is None else self.wanted[process.index]
        work = self.recomputed.get(process.index) or Recompute(process, first, last, only)
        batches: list[Batch] = []
        done, rows, compared = self.epochs_done, 0, 0
        result, agrees = None, isinstance(work, Recompute)  # else the rows have another order
        for batch in work.batches(lambda n: self._progress(done + n)):
            batches.append(batch)
            rows += len(batch.region)
            agrees = agrees and _agrees(batch, wanted)
            # Whenever what there is has doubled: all these cost no more than twice the last one.
            early = not self.keep_going and batch.end > first and rows >= 2 * compared
            compared = rows if early else compared
            if (early and not agrees) or batch.end > last:
                alike = agrees and rows == len(expected.key)
                actual = self._actual(process, batches, expected if alike else None)
                end = min(batch.end, last + 1)
                result = compare(expected, actual, lives, first, end, skip, unread)
                if len(result.region) and not self.keep_going:
                    break
        assert result is not None, "the last batch ends after the last epoch"
        self.epochs_done += last - first + 1
        self.blocks_read += work.blocks_read
        self.bytes_read += work.bytes_read
        self.localisers[process.index].damage = [d for b in batches for d in b.damage]
        self.region_epochs += result.region_epochs
        self.digest_only += result.digest_only
        self.differing += result.differing
        self.unread += result.unread
        # Where the pass was stopped, a stretch that reaches its end may go on.
        known = batches[-1].end - 1 if batches[-1].end <= last else last + 1
        return _mismatches(process, result, known)

    def _actual(
        self, process: Process, batches: list[Batch], alike: DigestHistory | None
    ) -> DigestHistory:
        """Returns the history of the run so far, with the tampered byte. alike: has its digests."""
        stored = np.concatenate([b.stored for b in batches])
        if alike is not None and stored.all():
            actual = DigestHistory(alike.key, alike.digest, stored)
        else:
            actual = DigestHistory.from_unordered(
                np.concatenate([keys_of(b.region, b.epoch) for b in batches]),
                np.concatenate([b.digest for b in batches]),
                stored,
            )
        if self.tamper is None or process is not self.run.processes[0]:
            return actual
        epoch, region, offset = self.tamper
        tamper = Tamper(process, epoch, region, offset)
        self.localisers[process.index].tamper = tamper
        return actual.with_digest(region, epoch, tamper.digest)

    def _progress(self, done: int) -> None:
        if self.progress:
            total = sum(max(0, b - a + 1) for a, b in map(self._range, self.run.processes))
            self.progress(min(done, total), total)

    # ---- details ----

    def described(self, difference: Difference) -> Difference:
        """Fills in the details of a difference."""
        if difference.region is not None and difference.process in self.localisers:
            self.localisers[difference.process].fill_in(difference)
        return difference


def _keys(ranks: Sequence[int | None], numbers: list[int], ranked: bool) -> list[tuple[int, int]]:
    """Returns a key of each process: its rank and its place in it, or its number."""
    if not ranked:
        return [(number, 0) for number in numbers]
    seen: dict[int | None, int] = {}
    out = []
    for rank in ranks:
        seen[rank] = seen.get(rank, -1) + 1
        out.append((rank or 0, seen[rank]))
    return out


def _agrees(batch: Batch, wanted: ExpectedProcess) -> bool:
    """Returns whether the epochs of a batch have the expected digests, in the same order."""
    of = slice(*np.searchsorted(wanted.epoch, [batch.begin, batch.end]).tolist())
    return (
        np.array_equal(batch.digest, wanted.digest[of])
        and np.array_equal(batch.region, wanted.region[of])
        and np.array_equal(batch.epoch, wanted.epoch[of])
    )


def _says_nothing(process: Process, wanted: ExpectedProcess) -> Array:
    """Returns which epochs have nothing to compare on either side: refused ones, and dropped ones
    without digests.
    """
    ours, told = process.epochs, set(distinct(wanted.epoch).tolist())
    lost = (ours["flags"] & layout.DROPPED != 0) & (ours["digests_count"] == 0)
    theirs = [
        "refused" in flags or ("dropped" in flags and number not in told)
        for number, flags in enumerate(wanted.flags)
    ]
    both = min(len(ours), len(theirs))
    return ((ours["flags"] & layout.REFUSED != 0) | lost)[:both] | theirs[:both]


def _unread(process: Process, wanted: ExpectedProcess) -> Unread:
    """Returns the regions that the manifest's epochs left out, by the contexts of the run's
    epochs.
    """
    count = min(len(wanted.flags), len(process.epochs))
    known = process.regions.rows(wanted.regions.id)
    ids = wanted.regions.id[known >= 0]
    table, context = wanted.regions.rows(ids), process.regions.birth["context"][known[known >= 0]]
    of = (ids, table.born, table.died, context)
    flags, context = wanted.flag_bits[:count], process.epochs["context"][:count]
    return find_unread(flags, context, of, lambda: (wanted.region, wanted.epoch))


def _mismatches(process: Process, result: Comparison, known: int) -> _Found:
    """Returns the stretches that differ. Ends from epoch `known` on are unknown."""
    found = _Found()
    found.total = len(result.region)
    for i in range(min(found.total, LISTED)):
        region, epoch = int(result.region[i]), int(result.epoch[i])
        message = f"region {region} differs in epoch {epoch}"
        for there, where in ((result.has_first, "manifest"), (result.has_second, "run")):
            if not there[i]:
                message = f"region {region} has no contents in epoch {epoch} of the {where}"
        found.listed.append(
            Difference(
                "contents",
                message,
                process.index,
                epoch,
                int(result.until[i]) if result.until[i] < known else None,
                region,
                f"{int(result.first[i]):016x}" if result.has_first[i] else None,
                f"{int(result.second[i]):016x}" if result.has_second[i] else None,
            )
        )
    return found


def _both(what: str, in_manifest: Any, in_run: Any) -> str:
    return f"{what} {_shown(in_manifest)} in the manifest, {_shown(in_run)} in the run"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value!r}" if isinstance(value, str) else f"{value}"
