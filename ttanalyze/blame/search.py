"""The first epoch in which a condition holds.

Only what changed is looked at: contents that were found not to meet the condition are not read
again, and no contents at all to find the first change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ttanalyze.blame.changes import described
from ttanalyze.blame.condition import Condition
from ttanalyze.blame.suspects import Suspects, suspects
from ttanalyze.blame.target import Target
from ttanalyze.errors import Error, FormatError
from ttanalyze.model import contents, layout
from ttanalyze.model.history import MOST_BYTES, batches, byte_history, region_history
from ttanalyze.model.layout import BLOCK_SIZE, Array
from ttanalyze.model.process import Process
from ttanalyze.model.recompute import Contents
from ttanalyze.selection import label_of
from ttanalyze.tensors import Place, tensor_at
from ttanalyze.values import Type

AT_ONCE = 1024  # blocks read before what was found is looked at
FIRST = 8  # items of a region that are told
Progress = Callable[[int, int], None] | None


@dataclass
class Hit:
    """A region where the condition holds. items: how many of its items meet it, None where that
    can't be told; first: the indices of the first ones, counted from where the target begins;
    data: their bytes, one behind the other. tensor: what the first one is part of, where that was
    named.
    """

    region: int
    label: str | None
    items: int | None
    first: list[int]
    data: bytes
    suspects: Suspects = field(default_factory=lambda: Suspects([], 0, 0))
    tensor: Place | None = None


@dataclass(frozen=True)
class Sighting:
    """Where the condition first holds. since: the epoch before, in which it did not; None where
    there is none. hits: one per region, the first FIRST of hit_count. unseen: how many blocks
    that changed until then could not be looked at, for their contents are gone.
    """

    epoch: int
    since: int | None
    hits: list[Hit]
    hit_count: int
    unseen: int

    def as_dict(self, process: Process, kind: Type) -> dict[str, Any]:
        """All of it, by name; values: items of the type that was watched."""
        out = asdict(self) | described(process, process.epochs[self.epoch])
        for hit, found in zip(out["hits"], self.hits, strict=True):
            hit["values"] = kind.listed(hit.pop("data"))
            hit.pop("tensor")
            hit |= {"tensor": None} if found.tensor is None else found.tensor.as_dict()
        return out


def watch(
    process: Process,
    condition: Condition,
    target: Target | None = None,
    epochs: tuple[int, int] | None = None,
    progress: Progress = None,
) -> tuple[Sighting | None, int]:
    """The first of epochs (first and last) in which any item meets a condition: of the target, or
    of any captured region; and how many blocks could not be looked at.

    progress: called with the epochs done and those in all. Raises Error, FormatError for damage.
    """
    end = len(process.epochs) - 1
    first, last = (0, end) if epochs is None else (epochs[0], min(epochs[1], end))
    search = _Watch(process, condition, first, last, progress)
    if target is not None and not target.whole:
        found = search.parts(target)
    elif condition.operator == "changed":
        found = search.change(None if target is None else target.region)
    else:
        found = search.items(None if target is None else target.region)
    if found is None:
        return None, search.unseen
    epoch, hits, begun = found
    since = None if begun else process.seen.before(epoch)
    for hit in hits[:FIRST]:
        if target is not None and not target.whole:
            part = target.start, target.stop
        elif hit.items is not None and hit.items == len(hit.first):
            size = condition.type.itemsize
            part = hit.first[0] * size, (hit.first[-1] + 1) * size
        else:
            part = 0, int(process.regions.size[contents.captured_row(process, hit.region)])
        before = None if begun else process.seen.before(epoch, hit.region)
        hit.suspects = suspects(process, hit.region, part, before, epoch)
        if hit.first:
            begin = 0 if target is None or target.whole else target.start
            at = begin + hit.first[0] * condition.type.itemsize
            hit.tensor = tensor_at(process, hit.region, at, epoch=epoch)
    return Sighting(epoch, since, hits[:FIRST], len(hits), search.unseen), search.unseen


Found = tuple[int, list[Hit], bool] | None  # epoch, where, whether it was so from the first one on


class _Watch:
    def __init__(
        self, process: Process, condition: Condition, first: int, last: int, progress: Progress
    ) -> None:
        self.process = process
        self.condition = condition
        self.type = condition.type
        self.first = first
        self.last = last
        self.unseen = 0
        self._progress = progress
        self._clean = Contents()  # the digests of contents that don't meet the condition

    def _hit(self, region: int, items: int | None, first: list[int], data: bytes) -> Hit:
        return Hit(region, label_of(self.process, region), items, first, data)

    def _advance(self, epoch: int) -> None:
        if self._progress is not None:
            self._progress(max(0, epoch - self.first), max(1, self.last + 1 - self.first))

    # ---- a part of a region ----

    def parts(self, target: Target) -> Found:
        """Of items anywhere in a region; of many, piece by piece."""
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
        """Of a few items: the history of their bytes says it. before: items of the target that
        come before them.
        """
        last: bytes | None = None
        versions = byte_history(self.process, target.region, target.start, target.stop, self.last)
        for i, version in enumerate(versions):
            if version.data is None:
                self.unseen += 1
                continue
            until = versions[i + 1].first if i + 1 < len(versions) else self.last + 1
            raw = np.frombuffer(version.data, "u1")
            if self.condition.operator != "changed":
                met = self.condition.test(raw)
                counts = until > self.first
            else:
                met = np.zeros(len(raw) // self.type.itemsize, bool)
                if last is not None:
                    met = _unequal(raw, np.frombuffer(last, "u1"), self.type.itemsize)
                counts = version.first >= self.first
            last = version.data
            if counts and met.any():
                begun = version.first < self.first
                hit = self._met(target.region, met, raw, before)
                return max(version.first, self.first), [hit], begun
        return None

    def _met(self, region: int, met: Array, raw: Array, base: int = 0) -> Hit:
        at = np.flatnonzero(met)
        size = self.type.itemsize
        data = b"".join(raw[i * size : (i + 1) * size].tobytes() for i in at[:FIRST].tolist())
        return self._hit(region, len(at), (at[:FIRST] + base).tolist(), data)

    # ---- the contents of regions ----

    def items(self, region: int | None) -> Found:
        """Of whole regions: every block that changed is looked at once."""
        begin = self.first
        if begin:  # what was there before
            found = {}
            if region is None:
                found = contents.snapshot_all(self.process, begin)[0]
            else:
                found[region] = contents.block_records(self.process, begin, region)
            records = np.concatenate([np.empty(0, layout.BLOCK), *found.values()])
            hits = self._scan(np.full(len(records), begin, "u4"), records)
            if hits is not None:
                return *hits, True
            begin += 1
        for first, stop in batches(self.process, "blocks", begin, self.last + 1):
            records = self.process.blocks(first, stop)
            numbers = self.process.epoch_of("blocks", first, stop)
            self._count_lost(first, stop, region)
            if region is not None:
                of = np.flatnonzero(records["region"] == region)
                records, numbers = records[of], numbers[of]
            hits = self._scan(numbers, records)
            if hits is not None:
                return *hits, False
            self._advance(stop)
        return None

    def _count_lost(self, first: int, stop: int, region: int | None) -> None:
        if (self.process.epochs["flags"][first:stop] & layout.DROPPED).any():
            digests = self.process.digests(first, stop)
            epochs = self.process.epoch_of("digests", first, stop)
            lost = self.process.epochs["flags"][epochs] & layout.DROPPED != 0
            if region is not None:
                lost &= digests["region"] == region
            self.unseen += int(digests["changed"][lost].sum())

    def _scan(self, numbers: Array, records: Array) -> tuple[int, list[Hit]] | None:
        """Looks at records in the order of epochs; numbers: the epoch of each."""
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
                met[unknown] = self._test(files, some[first[unknown]])
                clean = unknown[~met[unknown]]
                if len(clean):
                    self._clean.add(digests[clean], digests[clean])
                if met.any():
                    of = numbers[new[at : at + AT_ONCE]][met[which]]
                    epoch = int(of.min())
                    return epoch, self._hits(files, records[new[numbers[new] == epoch]])
                self._advance(int(numbers[new[at]]))
        return None

    def _test(self, files: contents.DataFiles, records: Array) -> Array:
        """Which blocks have an item that meets the condition."""
        order = np.lexsort((records["offset"], records["segment"]))
        ends = np.cumsum(records["length"][order], dtype="i8")
        out = np.zeros(len(records), bool)
        for position, piece in files.pieces(records[order]):
            raw = np.frombuffer(piece, "u1")
            at = np.flatnonzero(
                self.condition.test(raw[: len(raw) - len(raw) % self.type.itemsize])
            )
            where = np.searchsorted(ends, position + at * self.type.itemsize, "right")
            out[order[where]] = True
        return out

    def _hits(self, files: contents.DataFiles, records: Array) -> list[Hit]:
        """All that meets the condition in the blocks of one epoch."""
        out: dict[int, Hit] = {}
        for record in records[np.lexsort((records["block"], records["region"]))]:
            if self._clean.find(record["digest"].reshape(1))[1][0]:
                continue
            raw = np.empty(int(record["length"]), np.uint8)
            files.read(record.reshape(1), raw.data)
            raw = raw[: len(raw) - len(raw) % self.type.itemsize]
            met = self.condition.test(raw)
            if met.any():
                base = int(record["block"]) * BLOCK_SIZE // self.type.itemsize
                _add(out, self._met(int(record["region"]), met, raw, base))
        return list(out.values())

    # ---- changes ----

    def change(self, region: int | None) -> Found:
        """Of whole regions, their digests say in which epoch one first changed."""
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
        """Which items are not as they were."""
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
    """Which items differ in any byte."""
    whole = len(ours) - len(ours) % itemsize
    return np.asarray((ours[:whole] != theirs[:whole]).reshape(-1, itemsize).any(axis=1))


def _add(hits: dict[int, Hit], more: Hit) -> None:
    """Joins what was found in another block of a region."""
    hit = hits.setdefault(more.region, more)
    if hit is not more:
        room = FIRST - len(hit.first)
        hit.items = (hit.items or 0) + (more.items or 0)
        size = len(more.data) // max(1, len(more.first))
        hit.first += more.first[:room]
        hit.data += more.data[: room * size]
