"""Compares a run with a manifest, and says where they part.

What is compared is memory: each region's state in each epoch. The run's side is computed anew
from the contents it stores, so that damage to the run shows as well; where only digests are
left of an epoch, those are compared. The state of a region in an epoch is what the last digest
up to it says, so that two recordings that took full snapshots at different times still agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import orjson

from ttanalyze.errors import TTError
from ttanalyze.localise import Localiser, Tamper
from ttanalyze.model import layout, manifest
from ttanalyze.model.expected import ExpectedProcess, load, parse
from ttanalyze.model.layout import Array
from ttanalyze.model.process import Process
from ttanalyze.model.recompute import Batch, Damage, Recompute
from ttanalyze.model.run import Run

LISTED = 100  # differences that a report describes; it counts them all
Progress = Callable[[int, int], None]


@dataclass
class Difference:
    """One thing that differs. kind says which members are filled in.

    process, region, epoch: something is missing, extra or not the same; message says what.
    contents: a region's memory differs in epochs `epoch` to `until`.
    stored: the same, and the run's own data file is not what was recorded.
    """

    kind: str
    message: str
    process: int
    epoch: int | None = None
    until: int | None = None
    region: int | None = None
    expected: str | None = None  # digests, 16 hexadecimal digits
    actual: str | None = None
    recorded: str | None = None
    origin: dict[str, Any] | None = None  # kind, label, size, base, call, seq, thread
    changed_blocks: list[int] = field(default_factory=list)  # in this epoch, the first 16
    changed_block_count: int = 0
    damaged: list[dict[str, Any]] = field(default_factory=list)  # block, file, offset
    first_byte: int | None = None  # offset in the region of the first byte that differs
    last_byte: int | None = None
    differing_bytes: int | None = None
    window: dict[str, Any] | None = None  # offset, expected, actual (hexadecimal)
    note: str | None = None  # why bytes could not be compared


@dataclass
class VerifyReport:
    """What verify found. same: whether run and manifest agree in all that was compared."""

    run: str
    manifest: str
    against: str | None
    same: bool
    processes: int
    epochs: int
    regions: int
    region_epochs: int  # compared
    digest_only: int  # of these, states that could only be compared by their recorded digest
    differing: int  # region-epochs that differ
    total_differences: int
    stopped: bool  # at the first difference
    blocks_read: int
    bytes_read: int
    seconds: float
    differences: list[Difference]

    def to_json(self) -> str:
        """The report as a JSON object."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()


def verify(
    run: Run,
    manifest: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    epochs: tuple[int, int] | None = None,
    regions: Sequence[int] | None = None,
    keep_going: bool = False,
    against: Run | None = None,
    tamper: tuple[int, int, int] | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Compares epochs [first, last] of regions with a manifest, all of them by default.

    manifest: a file, an object, or None for against's, else the run's own manifest.json, else
    its recorded digests. Stops at the first difference unless keep_going. against: the run that
    the manifest was made of, for the bytes it had. tamper: (epoch, region, offset) of a byte to
    see inverted. progress: called with epochs done and epochs in all.

    Raises FormatError where a file is not what it should be, TTError where what was asked for
    does not exist.
    """
    began = time.monotonic()
    wanted, name = _expected(run, manifest, against)
    check = _Check(run, against, epochs, regions, keep_going, tamper, progress)
    check.processes(wanted)
    shown = check.differences[:LISTED] if keep_going else check.differences[:1]
    return VerifyReport(
        run=str(run.path),
        manifest=name,
        against=str(against.path) if against else None,
        same=not check.differences,
        processes=check.process_count,
        epochs=check.epoch_count,
        regions=check.region_count,
        region_epochs=check.region_epochs,
        digest_only=check.digest_only,
        differing=check.differing,
        total_differences=len(check.differences),
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
    if against is not None:
        return parse(against.manifest(), against.path), f"recorded digests of {against.path}"
    own = run.path / "manifest.json"
    if own.exists():
        return load(own), str(own)
    return parse(run.manifest(), run.path), "recorded digests of the run itself"


@dataclass(frozen=True)
class _Points:
    """Digests where a region's state was recorded, keyed by region << 32 | epoch, ascending."""

    key: Array
    digest: Array
    stored: Array

    def at(self, keys: Array) -> tuple[Array, Array]:
        """For each key the row of the region's last point up to it, and whether there is one."""
        if not len(self.key):
            return np.zeros(len(keys), "i8"), np.zeros(len(keys), bool)
        row = np.searchsorted(self.key, keys, "right") - 1
        there: Array = (row >= 0) & (self.key[row] >> np.uint64(32) == keys >> np.uint64(32))
        return row, there


def _key(region: Array, epoch: Array) -> Array:
    return np.asarray((region.astype("u8") << np.uint64(32)) | epoch.astype("u8"))


def _points(region: Array, epoch: Array, digest: Array, stored: Array) -> _Points:
    key = _key(region, epoch)
    return _in_order(key, digest, stored)


def _in_order(key: Array, digest: Array, stored: Array) -> _Points:
    order = np.argsort(key, kind="stable")
    return _Points(key[order], digest[order], stored[order])


class _Check:
    """The state of one verification."""

    def __init__(
        self,
        run: Run,
        against: Run | None,
        epochs: tuple[int, int] | None,
        regions: Sequence[int] | None,
        keep_going: bool,
        tamper: tuple[int, int, int] | None,
        progress: Progress | None,
    ) -> None:
        self.run = run
        self.against = against
        self.epochs = epochs
        self.wanted = None if regions is None else np.unique(np.array(list(regions), "u4"))
        self.keep_going = keep_going
        self.tamper = tamper
        self.progress = progress
        self.differences: list[Difference] = []
        self.localisers: dict[int, Localiser] = {}
        self.process_count = self.epoch_count = self.region_count = 0
        self.region_epochs = self.digest_only = self.differing = 0
        self.blocks_read = self.bytes_read = 0
        self.epochs_done = 0
        self._check_selection()

    def _check_selection(self) -> None:
        last = max((len(p.epochs) for p in self.run.processes), default=0) - 1
        if self.epochs is not None and (self.epochs[0] > last or self.epochs[0] > self.epochs[1]):
            first, end = self.epochs
            raise TTError(f"no epochs {first} to {end}: the run has 0 to {last}")
        for region in [] if self.wanted is None else self.wanted.tolist():
            if not any((p.regions.rows(np.array([region])) >= 0).all() for p in self.run.processes):
                raise TTError(f"no region {region} in {self.run.path}")
        if self.tamper is not None:
            self._check_tamper(*self.tamper)

    def _check_tamper(self, epoch: int, region: int, offset: int) -> None:
        if not self.run.processes:
            raise TTError(f"{self.run.path}: no process was recorded")
        process = self.run.processes[0]
        first, last = self._range(process)
        if not first <= epoch <= last:
            raise TTError(f"tamper: epoch {epoch} is not among those compared, {first} to {last}")
        if self.wanted is not None and region not in self.wanted:
            raise TTError(f"tamper: region {region} is not among those compared")
        Tamper(process, epoch, region, offset)

    def _range(self, process: Process) -> tuple[int, int]:
        last = len(process.epochs) - 1
        return (0, last) if self.epochs is None else (self.epochs[0], min(self.epochs[1], last))

    # ---- processes ----

    def processes(self, wanted: list[ExpectedProcess]) -> None:
        ours = {p.index: p for p in self.run.processes}
        theirs = {p.index: p for p in wanted}
        for index in sorted(ours.keys() | theirs.keys()):
            if self.differences and not self.keep_going:
                return
            if index not in ours:
                self._add("process", f"process {index} is not in the run", index)
            elif index not in theirs:
                self._add("process", f"process {index} is not in the manifest", index)
            else:
                self.process_count += 1
                self._process(ours[index], theirs[index])
                ours[index].release()

    def _add(self, kind: str, message: str, process: int, **members: Any) -> None:
        self.differences.append(Difference(kind, message, process, **members))

    def _process(self, process: Process, wanted: ExpectedProcess) -> None:
        first, last = self._range(process)
        found: list[Difference] = []
        common = min(last, len(wanted.triggers) - 1)
        self.localisers[process.index] = Localiser(process, self._other(process.index))
        self._compare_epochs(process, wanted, first, last, found)
        lives = self._compare_regions(process, wanted, first, common, found)
        if common >= first:
            self.epoch_count += common - first + 1
            self._compare_contents(process, wanted, first, common, lives, found)
        found.sort(key=lambda d: (d.epoch if d.epoch is not None else -1, d.region or 0))
        self.differences += found

    def _other(self, index: int) -> Process | None:
        if self.against is None:
            return None
        return next((p for p in self.against.processes if p.index == index), None)

    # ---- epochs and regions ----

    def _compare_epochs(
        self,
        process: Process,
        wanted: ExpectedProcess,
        first: int,
        last: int,
        found: list[Difference],
    ) -> None:
        ours, theirs = len(process.epochs), len(wanted.triggers)
        complete = self.epochs is None or self.epochs[1] >= min(ours, theirs)
        if ours != theirs and complete:
            where, missing = ("run", theirs) if ours < theirs else ("manifest", ours)
            begin = min(ours, theirs)
            which = f"epoch {begin}" if missing == begin + 1 else f"epochs {begin} to {missing - 1}"
            verb = "is" if missing == begin + 1 else "are"
            message = f"{which} {verb} not in the {where}"
            found.append(Difference("epoch", message, process.index, begin, missing - 1))
        stop = min(last + 1, theirs)
        epochs = process.epochs[first:stop]
        names = [layout.TRIGGERS[trigger] for trigger in epochs["trigger"].tolist()]
        labels = [process.strings.get(label) for label in epochs["label"].tolist()]
        refused = (epochs["flags"] & layout.REFUSED != 0).tolist()
        members: list[tuple[str, list[Any], list[Any]]] = [
            ("trigger", names, wanted.triggers[first:stop]),
            ("label", labels, wanted.labels[first:stop]),
            ("refused", refused, ["refused" in flags for flags in wanted.flags[first:stop]]),
        ]
        for what, in_run, in_manifest in members:
            if in_run == in_manifest:
                continue
            for i, (a, b) in enumerate(zip(in_manifest, in_run, strict=True)):
                if a != b:
                    message = f"epoch {first + i}: {_both(what, a, b)}"
                    number = first + i
                    found.append(Difference("epoch", message, process.index, number, number))

    def _compare_regions(
        self,
        process: Process,
        wanted: ExpectedProcess,
        first: int,
        common: int,
        found: list[Difference],
    ) -> dict[int, tuple[int, int]]:
        """Gives the epochs [born, died) that regions of both sides have in common, by region."""
        ours = {r["id"]: r for r in manifest.regions(process)}
        theirs = wanted.regions
        lives = {}
        for region in sorted(ours.keys() | theirs.keys()):
            if self.wanted is not None and region not in self.wanted:
                continue
            born = min(side[region]["born"] for side in (ours, theirs) if region in side)
            if born > common or any(
                side[region]["died"] is not None and side[region]["died"] <= first
                for side in (ours, theirs)
                if region in side
            ):
                continue
            members: dict[str, Any] = {"epoch": born, "region": region}
            if region not in ours or region not in theirs:
                where = "run" if region not in ours else "manifest"
                message = f"region {region} is not in the {where}"
                found.append(Difference("region", message, process.index, **members))
                continue
            for what in ("kind", "size", "label", "born", "died"):
                a, b = theirs[region][what], ours[region][what]
                if a != b and not (what == "died" and _later(a, common) and _later(b, common)):
                    message = f"region {region}: {_both(what, a, b)}"
                    found.append(Difference("region", message, process.index, **members))
            begin = max(ours[region]["born"], theirs[region]["born"])
            ends = [side[region]["died"] for side in (ours, theirs)]
            lives[region] = begin, min((e for e in ends if e is not None), default=layout.NO_EPOCH)
        self.region_count += len(lives)
        return lives

    # ---- contents ----

    def _compare_contents(
        self,
        process: Process,
        wanted: ExpectedProcess,
        first: int,
        last: int,
        lives: dict[int, tuple[int, int]],
        found: list[Difference],
    ) -> None:
        expected = _points(
            wanted.region, wanted.epoch, wanted.digest, np.zeros(len(wanted.region), bool)
        )
        work = Recompute(process, first, last, self.wanted)
        batches: list[Batch] = []
        damage: list[Damage] = []
        rows = compared = 0
        mismatches: list[Difference] = []
        done = self.epochs_done
        for batch in work.batches(lambda n: self._progress(done + n)):
            batches.append(batch)
            damage += batch.damage
            rows += len(batch.region)
            finished = batch.end > last
            # Whenever what there is has doubled: all these cost no more than twice the last one.
            if batch.end > first and (finished or (not self.keep_going and rows >= 2 * compared)):
                compared = rows
                upto = min(batch.end - 1, last)
                mismatches = self._mismatches(
                    process, wanted, expected, batches, first, upto, lives, finished
                )
                if mismatches and not self.keep_going:
                    break
        self.epochs_done += last - first + 1
        self.blocks_read += work.blocks_read
        self.bytes_read += work.bytes_read
        self.localisers[process.index].damage = damage
        self.differing += sum((d.until or 0) - (d.epoch or 0) + 1 for d in mismatches)
        found += mismatches

    def _progress(self, done: int) -> None:
        if self.progress:
            total = sum(max(0, b - a + 1) for a, b in map(self._range, self.run.processes))
            self.progress(min(done, total), total)

    def _mismatches(
        self,
        process: Process,
        wanted: ExpectedProcess,
        expected: _Points,
        batches: list[Batch],
        first: int,
        last: int,
        lives: dict[int, tuple[int, int]],
        finished: bool,
    ) -> list[Difference]:
        """The stretches of epochs from first to last over which a region's state differs."""
        actual = _points(
            np.concatenate([b.region for b in batches]),
            np.concatenate([b.epoch for b in batches]),
            np.concatenate([b.digest for b in batches]),
            np.concatenate([b.stored for b in batches]),
        )
        if self.tamper is not None and process is self.run.processes[0]:
            actual = self._tampered(process, actual)
        ids = np.array(sorted(lives), "u8")
        begin = np.array([max(lives[i][0], first) for i in ids.tolist()], "u8")
        end = np.minimum(np.array([lives[i][1] for i in ids.tolist()], "u8"), np.uint64(last + 1))
        opening = _key(ids, begin) if first else np.empty(0, "u8")
        keys = np.unique(np.concatenate([expected.key, actual.key, opening]))
        region, epoch = keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)
        row = np.minimum(np.searchsorted(ids, region), max(len(ids) - 1, 0))
        compare = np.isin(region, ids)
        if len(ids):
            compare &= (epoch >= begin[row]) & (epoch < end[row])
        keys, row, epoch = keys[compare], row[compare], epoch[compare]
        skip = self._refused(process, wanted, last)[epoch.astype("i8")]
        keys, row, epoch = keys[~skip], row[~skip], epoch[~skip]
        theirs, expects = expected.at(keys)
        ours, has = actual.at(keys)
        differs = expects != has
        both = expects & has
        differs[both] = expected.digest[theirs[both]] != actual.digest[ours[both]]
        follows = np.append(row[1:] == row[:-1], [False])
        until = end[row] if len(ids) else epoch
        until[:-1] = np.where(follows[:-1], epoch[1:], until[:-1])
        if finished or differs.any():
            span = (until - epoch).astype("i8")
            self.region_epochs += int(span[has | expects].sum())
            self.digest_only += int(span[has & ~_at(actual.stored, ours, has)].sum())
        return [
            self._mismatch(
                process,
                int(ids[row[i]]),
                int(epoch[i]),
                int(until[i]) - 1,
                int(expected.digest[theirs[i]]) if expects[i] else None,
                int(actual.digest[ours[i]]) if has[i] else None,
            )
            for i in np.flatnonzero(differs).tolist()
        ]

    def _refused(self, process: Process, wanted: ExpectedProcess, last: int) -> Array:
        """Epochs of which one side knows nothing."""
        out = process.epochs["flags"][: last + 1] & layout.REFUSED != 0
        theirs = np.array(["refused" in flags for flags in wanted.flags[: last + 1]], bool)
        return np.asarray(out | theirs)

    def _tampered(self, process: Process, actual: _Points) -> _Points:
        """The points with one byte of one epoch inverted, and put right again after it."""
        assert self.tamper is not None
        epoch, region, offset = self.tamper
        tamper = Tamper(process, epoch, region, offset)
        self.localisers[process.index].tamper = tamper
        keys = _key(np.array([region, region]), np.array([epoch, epoch + 1]))
        row, there = actual.at(keys[1:])
        digests = np.array([tamper.digest, actual.digest[row[0]] if there[0] else 0], "u8")
        replaced = np.isin(actual.key, keys[:1])
        add = np.array([True, bool(there[0]) and not np.isin(keys[1], actual.key)])
        key = np.concatenate([actual.key[~replaced], keys[add]])
        digest = np.concatenate([actual.digest[~replaced], digests[add]])
        stored = np.concatenate([actual.stored[~replaced], np.ones(2, bool)[add]])
        return _in_order(key, digest, stored)

    def _mismatch(
        self,
        process: Process,
        region: int,
        epoch: int,
        until: int,
        expected: int | None,
        actual: int | None,
    ) -> Difference:
        if actual is None:
            message = f"region {region} has no contents in epoch {epoch} of the run"
        elif expected is None:
            message = f"region {region} has no contents in epoch {epoch} of the manifest"
        else:
            message = f"region {region} differs in epoch {epoch}"
        return Difference(
            "contents",
            message,
            process.index,
            epoch,
            until,
            region,
            None if expected is None else f"{expected:016x}",
            None if actual is None else f"{actual:016x}",
        )

    # ---- details ----

    def described(self, difference: Difference) -> Difference:
        """Fills in where the difference comes from, as far as it can be known."""
        if difference.region is not None and difference.process in self.localisers:
            self.localisers[difference.process].fill_in(difference)
        return difference


def _at(values: Array, rows: Array, there: Array) -> Array:
    """values[rows] where there, else False."""
    out = np.zeros(len(rows), bool)
    out[there] = values[rows[there]]
    return out


def _later(died: int | None, last: int) -> bool:
    """Whether a death lies behind the last epoch that both sides have."""
    return died is None or died > last


def _both(what: str, in_manifest: Any, in_run: Any) -> str:
    return f"{what} {_shown(in_manifest)} in the manifest, {_shown(in_run)} in the run"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else f"{value!r}"
