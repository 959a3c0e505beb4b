"""Finds the first epoch in which a condition holds.

It reads only contents that changed, and each once. The first change is found from digests alone.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from ttanalyze.core import fill
from ttanalyze.core.tensors import tensor_at, type_of
from ttanalyze.errors import Error, FormatError
from ttanalyze.format import contents, layout
from ttanalyze.format.history import MOST_BYTES, batches, byte_history, region_history
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.format.recompute import Contents, is_cut
from ttanalyze.format.selection import label_of
from ttanalyze.util.arguments import checked
from ttanalyze.util.parallel import address_of
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.blame.condition import Condition
from ttanalyze.verbs.blame.plausible import PAGE, holds, pages_apart
from ttanalyze.verbs.blame.sighting import Hit, Sighting, Watched
from ttanalyze.verbs.blame.suspects import suspects
from ttanalyze.verbs.blame.target import Target
from ttanalyze.verbs.blame.tested import clean_digests, meet

AT_ONCE = 1024  # blocks read before what was found is looked at
FIRST = 8  # items of a region that are told
HELD_BEFORE = [layout.REGION_KINDS.index(name) for name in ("global", "ipc", "zone")]


@checked
def watch(
    process: Process,
    condition: Condition,
    target: Target | None = None,
    epochs: tuple[int, int] | None = None,
    progress: Progress = None,
    everywhere: bool = False,
    strict: bool = False,
    cluster: str | None = None,
    wider: set[tuple[int, int]] | None = None,
) -> Watched:
    """Finds the first epoch in which an item fulfils a condition.

    Without a target all captured regions are searched. Then items of float types count only in
    tensors with this type, and in blocks that look like the type now or did before. NaN and
    infinity count only if the item was a number before, or if the region is younger than the first
    epoch of its context, or if --fill set it to zero.

    Args:
        process: The process.
        condition: The condition.
        target: The target. Default: all captured regions.
        epochs: The first and the last epoch. Default: all.
        progress: Called with the finished and the total number of epochs.
        everywhere: Whether items count everywhere in all regions.
        strict: Whether f16 and bf16 in memory without a name count only if the memory is recognised
            as such by its contents.
        cluster: The address of a dask scheduler whose workers read contents, also those behind the
            first epoch that is found. Default: that of DASK_SCHEDULER_ADDRESS, else this machine.
        wider: Digests of blocks, and of what they were before, without f16 and bf16. Several
            searches of a process can share the set, which each adds to.

    Raises:
        Error: None of the epochs has contents of the target.
        FormatError: A file does not follow the format.

    Example:
        >>> run = tt.open("run1")
        >>> condition = tt.blame.Condition.parse("> 1", tt.values.parse("f32"))
        >>> tt.blame.watch(run.processes[0], condition).sighting.epoch
        1
    """
    end = len(process.epochs) - 1
    first, last = (0, end) if epochs is None else (epochs[0], min(epochs[1], end))
    _check_epochs(process, None if target is None else target.region, first, last)
    picky = target is None and not everywhere and condition.operator != "changed"
    picky &= condition.type.kind in ("float", "complex")
    search = _Watch(process, condition, first, last, picky, progress, strict, wider)
    if target is not None and not target.whole:
        found = search.parts(target)
    elif condition.operator == "changed":
        found = search.change(None if target is None else target.region)
    else:
        region, address = None if target is None else target.region, address_of(cluster)
        if is_cut([process], address):
            span = first, last
            search.leave_out(clean_digests(process, condition, region, span, address, progress))
        found = search.items(region)
    skipped = sorted(search.unlike), sorted(search.early)
    if found is None:
        return Watched(None, search.unseen, *skipped)
    epoch, hits, begun = found
    since = None if begun else _before(process, epoch)
    for hit in hits[:FIRST]:
        if target is not None and not target.whole:
            part = target.start, target.stop
        elif hit.first and hit.items == len(hit.first):
            size = condition.type.itemsize
            part = hit.first[0] * size, (hit.first[-1] + 1) * size
        else:
            part = 0, int(process.regions.size[contents.captured_row(process, hit.region)])
        before = None if begun else _before(process, epoch, hit.region)
        hit.suspects = suspects(process, hit.region, part, before, epoch, made=condition)
        if hit.first:
            begin = 0 if target is None or target.whole else target.start
            at = begin + hit.first[0] * condition.type.itemsize
            hit.tensor = tensor_at(process, hit.region, at, epoch=epoch)
    sighting = Sighting(epoch, since, hits[:FIRST], len(hits), search.unseen)
    return Watched(sighting, search.unseen, *skipped)


def _before(process: Process, epoch: int, region: int | None = None) -> int | None:
    """The last earlier epoch whose contents were looked at."""
    found = process.coverage.before(epoch, region)
    while found is not None and process.digests_alone[found]:
        found = process.coverage.before(found, region)
    return found


def _check_epochs(process: Process, region: int | None, first: int, last: int) -> None:
    """Raises Error if none of the epochs has contents of the region, or of any region."""
    begin, stop = first, last + 1
    if region is not None:
        begin, stop = _life(process, region, first, last)
        if begin >= stop and first <= last:
            raise Error(f"region {region} does not exist in epochs {first} to {last}")
    if begin < stop and contents.next_captured(process, begin, stop) is None:
        raise Error(f"epochs {first} to {last} have no contents")


def _life(process: Process, region: int, first: int, last: int) -> tuple[int, int]:
    """Returns the range of these epochs, begin and stop, in which a region lives."""
    row = contents.captured_row(process, region)
    born, died = int(process.regions.born[row]), int(process.regions.died[row])
    return max(first, born), min(last + 1, died)


_Before = tuple[Array, Array]  # records, and of each record of a batch the place of the one before
Found = tuple[int, list[Hit], bool] | None  # epoch, where, whether it was so from the first one on


class _Watch:
    def __init__(
        self,
        process: Process,
        condition: Condition,
        first: int,
        last: int,
        picky: bool,
        progress: Progress,
        strict: bool,
        wider: set[tuple[int, int]] | None,
    ) -> None:
        self.process = process
        self.condition = condition
        self.type = condition.type
        self.first = first
        self.last = last
        self.unseen = 0
        self._progress = progress
        self._clean = Contents()  # the digests of contents that don't meet the condition
        self.unlike: set[int] = set()
        self.early: set[int] = set()
        self._picky = picky
        self._strict = strict
        self._wider = set() if wider is None else wider
        self._halves = picky and strict and condition.type.itemsize == 2
        self._appears = picky and condition.operator in ("nan", "inf")
        self._latest = np.empty(0, layout.BLOCK)  # of each block the last record, where picky
        self._firsts: dict[int, int] = {}  # by context its first epoch that holds anything

    def leave_out(self, digests: Array) -> None:
        """Leaves out contents that are known not to meet the condition: ascending digests."""
        if len(digests):
            self._clean.add(digests, digests)

    def _hit(self, region: int, items: int | None, first: list[int], data: bytes) -> Hit:
        return Hit(region, label_of(self.process, region), items, first, data)

    def _advance(self, epoch: int) -> None:
        tell(self._progress, max(0, epoch - self.first), max(1, self.last + 1 - self.first))

    # ---- a part of a region ----

    def parts(self, target: Target) -> Found:
        """Searches items anywhere in a region, piece by piece."""
        first: Found = None
        for start in range(target.start, target.stop, MOST_BYTES):
            piece = replace(target, start=start, stop=min(start + MOST_BYTES, target.stop))
            found = self.part(piece, (start - target.start) // self.type.itemsize)
            if found is None or (first is not None and found[0] > first[0]):
                continue
            if first is None or found[0] < first[0]:
                first = found
            else:
                joined = {hit.region: hit for hit in first[1]}
                _add(joined, found[1][0])
        return first

    def part(self, target: Target, before: int) -> Found:
        """Searches a few items, by the history of their bytes. before: the number of items of the
        target before them.
        """
        last: bytes | None = None
        begin, stop = _life(self.process, target.region, self.first, self.last)
        versions = byte_history(self.process, target.region, target.start, target.stop, stop - 1)
        for i, version in enumerate(versions):
            until = versions[i + 1].first if i + 1 < len(versions) else stop
            epoch = contents.next_captured(self.process, max(version.first, begin), until)
            if version.data is None:
                self.unseen += epoch is not None
                continue
            raw = np.frombuffer(version.data, "u1")
            whole = len(raw) - len(raw) % self.type.itemsize
            if self.condition.operator != "changed":
                met = self.condition.test(raw[:whole])
                counts = epoch is not None and bool(met.any())
            else:
                old = raw if last is None else np.frombuffer(last, "u1")
                met = _unequal(raw, old, self.type.itemsize)
                counts = version.first >= self.first and bool((raw != old).any())
            last = version.data
            if counts and epoch is not None:
                begun = version.first < self.first
                return epoch, [self._met(target.region, met, raw, before)], begun
        return None

    def _met(self, region: int, met: Array, raw: Array, base: int = 0) -> Hit:
        at = np.flatnonzero(met)
        size = self.type.itemsize
        data = b"".join(raw[i * size : (i + 1) * size].tobytes() for i in at[:FIRST].tolist())
        return self._hit(region, len(at), (at[:FIRST] + base).tolist(), data)

    # ---- the contents of regions ----

    def items(self, region: int | None) -> Found:
        """Searches whole regions. Each changed block is read once."""
        begin, end, born = self.first, self.last + 1, 0
        if region is not None:
            begin, end = _life(self.process, region, self.first, self.last)
            born = int(self.process.regions.born[contents.captured_row(self.process, region)])
        if begin > born and not self._appears:  # what was there before
            begin = contents.next_captured(self.process, begin, end) or end
            records, lost = contents.snapshot_left(self.process, begin, region)
            self.unseen += lost
            hits = self._scan(np.full(len(records), begin, "u4"), records)
            if hits is not None:
                return *hits, True
            begin += 1
        if self._picky:
            for first, stop in batches(self.process, "blocks", 0, begin):
                self._link(self._stored(first, stop, None)[1])
        for first, stop in batches(self.process, "blocks", begin, end):
            numbers, records, without = self._stored(first, stop, region)
            self.unseen += without
            self._count_lost(first, stop, region)
            hits = self._scan(numbers, records, self._link(records) if self._picky else None)
            if hits is not None:
                return *hits, False
            self._advance(stop)
        return None

    def _stored(self, first: int, stop: int, region: int | None) -> tuple[Array, Array, int]:
        """Returns the blocks of epochs that were recorded with contents, the epoch of each before
        them, and the number of blocks of the other epochs.
        """
        records = self.process.blocks(first, stop)
        numbers = self.process.epoch_of("blocks", first, stop)
        if region is not None:
            of = np.flatnonzero(records["region"] == region)
            records, numbers = records[of], numbers[of]
        stored = ~self.process.digests_alone[numbers]
        return numbers[stored], records[stored], int(np.count_nonzero(~stored))

    def _link(self, records: Array) -> _Before:
        """Returns the previous record of each record's block, and remembers the last of each."""
        every = np.concatenate([self._latest, records])
        order = np.lexsort((every["block"], every["region"]))
        region, block = every["region"][order], every["block"][order]
        same = (region[1:] == region[:-1]) & (block[1:] == block[:-1])
        before = np.full(len(every), -1, "i8")
        before[order[1:][same]] = order[:-1][same]
        before = before[len(self._latest) :]
        self._latest = every[order[np.append(~same, True)[: len(order)]]]
        return every, before

    def _count_lost(self, first: int, stop: int, region: int | None) -> None:
        if (self.process.epochs["flags"][first:stop] & layout.DROPPED).any():
            digests = self.process.digests(first, stop)
            epochs = self.process.epoch_of("digests", first, stop)
            lost = self.process.epochs["flags"][epochs] & layout.DROPPED != 0
            if region is not None:
                lost &= digests["region"] == region
            self.unseen += int(digests["changed"][lost].sum())

    def _scan(
        self, numbers: Array, records: Array, before: _Before | None = None
    ) -> tuple[int, list[Hit]] | None:
        """Searches records in the order of epochs.

        numbers: the epoch of each. before: the previous record of each, if it matters.
        """
        there = np.isin(records["segment"], list(self.process.segments))
        self.unseen += int(np.count_nonzero(~there))
        new = np.flatnonzero(there)
        new = new[~self._clean.find(records["digest"][new])[1]]
        with contents.DataFiles(self.process) as files:
            for at in range(0, len(new), AT_ONCE):
                some = records[new[at : at + AT_ONCE]]
                digests, first, which = np.unique(
                    some["digest"], return_index=True, return_inverse=True
                )
                unknown = np.flatnonzero(~self._clean.find(digests)[1])
                met = np.zeros(len(digests), bool)
                met[unknown] = meet(self.condition, files, some[first[unknown]])
                clean = unknown[~met[unknown]]
                if len(clean):
                    self._clean.add(digests[clean], digests[clean])
                if met.any():
                    of = numbers[new[at : at + AT_ONCE]][met[which]]
                    for epoch in np.unique(of).tolist():
                        some = new[numbers[new] == epoch]
                        hits = self._hits(files, records, some, epoch, before)
                        if hits:
                            return epoch, hits
                self._advance(int(numbers[new[at]]))
        return None

    def _hits(
        self,
        files: contents.DataFiles,
        records: Array,
        at: Array,
        epoch: int,
        before: _Before | None,
    ) -> list[Hit]:
        """Returns the items that count in the blocks `at` of one epoch."""
        out: dict[int, Hit] = {}
        at = at[~self._clean.find(records["digest"][at])[1]]
        for i in at[np.lexsort((records["block"][at], records["region"][at]))].tolist():
            record, older = records[i], None
            if before is not None and before[1][i] >= 0:
                older = before[0][before[1][i]]
            if self._halves and not self._labelled and self._pair(record, older) in self._wider:
                self.unlike.add(int(record["region"]))
                continue
            raw = self._read(files, record)
            met = self.condition.test(raw)
            if self._picky and met.any():
                met = self._counted(files, epoch, record, raw, met, older)
            if met.any():
                base = int(record["block"]) * BLOCK_SIZE // self.type.itemsize
                _add(out, self._met(int(record["region"]), met, raw, base))
        return list(out.values())

    def _read(self, files: contents.DataFiles, record: Any) -> Array:
        """Returns the whole items of a block."""
        raw = np.empty(int(record["length"]), np.uint8)
        files.read(record.reshape(1), raw.data)
        return raw[: len(raw) - len(raw) % self.type.itemsize]

    # ---- what counts where nobody said what memory is ----

    def _counted(
        self, files: contents.DataFiles, epoch: int, record: Any, raw: Array, met: Array, older: Any
    ) -> Array:
        """Returns which of the items that fulfil the condition count. older: the previous record of
        the block.
        """
        region = int(record["region"])
        old = self._read(files, older) if self._is_stored(older) else None
        of_type, of_other = self._named(region, int(record["block"]), epoch, len(met))
        unnamed = ~(of_type | of_other)
        counts = of_type.copy()
        if (met & unnamed).any():
            apart = pages_apart(raw, old) if self.type.itemsize > 1 else np.zeros(0, bool)
            if len(raw) % PAGE == 0 and apart.all() and (pair := self._pair(record, older)):
                self._wider.add(pair)
            counts |= holds(self.type, raw, old, unnamed, met & unnamed, apart, self._strict)
        if (met & ~counts).any():
            self.unlike.add(region)
        met = met & counts
        if self._appears and met.any():
            if old is not None:
                new = ~self.condition.test(old)
            else:
                new = np.full(len(met), older is None and self._was_number(region, epoch))
            if (met & ~new).any():
                self.early.add(region)
            met &= new
        return met

    def _is_stored(self, older: Any) -> bool:
        return older is not None and int(older["segment"]) in self.process.segments

    def _pair(self, record: Any, older: Any) -> tuple[int, int] | None:
        """The digests of what decides which type a block has, None if some is lost."""
        if older is None or self._is_stored(older):
            return int(record["digest"]), 0 if older is None else int(older["digest"])
        return None

    @functools.cached_property
    def _labelled(self) -> bool:
        """Whether tensors have names."""
        return bool(len(self.process.labels))

    def _named(self, region: int, block: int, epoch: int, items: int) -> tuple[Array, Array]:
        """Returns which items of a block lie in tensors of the watched type, and of another
        type.
        """
        of_type, of_other = np.zeros(items, bool), np.zeros(items, bool)
        labels, size = self.process.labels, self.type.itemsize
        for row in labels.parts(region, epoch=epoch) if len(labels) else ():
            first = -(-(int(row["offset"]) - block * BLOCK_SIZE) // size)
            stop = (int(row["offset"] + row["bytes"]) - block * BLOCK_SIZE) // size
            if stop > 0 and first < items:
                kind = type_of(labels.part(region, row))
                if kind is not None:
                    named = of_type if kind == self.type else of_other
                    named[max(first, 0) : stop] = True
        return of_type, of_other

    def _was_number(self, region: int, epoch: int) -> bool:
        """Returns whether a region without earlier contents held numbers: it was born after the
        first epoch of its context, or with zeros.
        """
        context = int(self.process.epochs["context"][epoch])
        if context not in self._firsts:
            epochs = self.process.epochs
            of = (epochs["context"] == context) & (epochs["flags"] & layout.REFUSED == 0)
            self._firsts[context] = int(np.flatnonzero(of)[0])
        regions, row = self.process.regions, contents.captured_row(self.process, region)
        zeros = self.process.info.get("options", {}).get(fill.OPTION) == "zero"
        if zeros and int(regions.birth["kind"][row]) not in HELD_BEFORE:
            return True
        return int(regions.born[row]) > self._firsts[context]

    # ---- changes ----

    def change(self, region: int | None) -> Found:
        """Finds the epoch in which a region first changed, from digests."""
        regions = self.process.regions
        known, seen = np.zeros(len(regions), "u8"), np.zeros(len(regions), bool)
        for first, stop in batches(self.process, "digests", 0, self.last + 1):
            records = self.process.digests(first, stop)
            numbers = self.process.epoch_of("digests", first, stop)
            if region is not None:
                of = np.flatnonzero(records["region"] == region)
                records, numbers = records[of], numbers[of]
            rows = regions.rows(records["region"])
            order = np.argsort(rows, kind="stable")
            row, digest = rows[order], records["digest"][order]
            again = np.append(False, row[1:] == row[:-1])[: len(row)]
            before = np.where(again, np.append(digest[:1], digest[:-1]), known[row])
            differs = (again | seen[row]) & (digest != before) & (numbers[order] >= self.first)
            if differs.any():
                epoch = int(numbers[order][differs].min())
                ids = np.sort(regions.id[row[differs & (numbers[order] == epoch)]])
                return epoch, [self._changed(epoch, int(i)) for i in ids[:FIRST]], False
            known[row], seen[row] = digest, True
            self._advance(stop)
        return None

    def _changed(self, epoch: int, region: int) -> Hit:
        """Returns which items changed."""
        process = self.process
        records = process.blocks(epoch, epoch + 1)
        records = np.sort(records[records["region"] == region], order="block")
        try:
            since = int(region_history(process, region, epoch - 1)["epoch"][-1])
            old = contents.block_records(process, since, region)
            if not len(records):
                raise Error("its contents are lost")
            with contents.DataFiles(process) as files:
                return self._compare(files, region, old[records["block"]], records)
        except FormatError:
            raise
        except Error:
            return self._hit(region, None, [], b"")

    def _compare(self, files: contents.DataFiles, region: int, old: Array, new: Array) -> Hit:
        out: dict[int, Hit] = {region: self._hit(region, 0, [], b"")}
        for i in np.flatnonzero(old["digest"] != new["digest"]).tolist():
            both = [np.empty(int(new["length"][i]), np.uint8) for _ in range(2)]
            for record, raw in zip((old[i], new[i]), both, strict=True):
                files.read(record.reshape(1), raw.data)
            met = _unequal(both[0], both[1], self.type.itemsize)
            base = int(new["block"][i]) * BLOCK_SIZE // self.type.itemsize
            _add(out, self._met(region, met, both[1], base))
        return out[region]


def _unequal(ours: Array, theirs: Array, itemsize: int) -> Array:
    """Returns which items differ in any byte."""
    whole = len(ours) - len(ours) % itemsize
    return np.asarray((ours[:whole] != theirs[:whole]).reshape(-1, itemsize).any(axis=1))


def _add(hits: dict[int, Hit], more: Hit) -> None:
    """Adds the items of another block of a region."""
    hit = hits.setdefault(more.region, more)
    if hit is not more:
        room = FIRST - len(hit.first)
        hit.items = (hit.items or 0) + (more.items or 0)
        size = len(more.data) // max(1, len(more.first))
        hit.first += more.first[:room]
        hit.data += more.data[: room * size]
