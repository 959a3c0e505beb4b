"""Details of a divergence: blocks, bytes, values, tensors and suspected calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ttanalyze.core.bytewise import Contents, compare_bytes, origin, unequal_blocks
from ttanalyze.core.tensors import Tally, place_of, type_of
from ttanalyze.core.values import Tolerance, Type, ValueDifference
from ttanalyze.core.values.compare import Comparison
from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.labels import Part
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.diff import suspects
from ttanalyze.verbs.diff.match import MatchedCalls, MatchedRegions
from ttanalyze.verbs.diff.report import Divergence
from ttanalyze.verbs.diff.sides import Calls, Names, Side
from ttanalyze.verbs.diff.states import Common, Stretches

LISTED_BLOCKS = 16
LISTED_TENSORS = 16
EXAMPLES = 4  # values that are shown
LOOKED_AT = 1 << 14  # blocks of one region whose bytes are compared
Types = Mapping[str | int | None, Type]  # by label, by id in a, None for all others


@dataclass(frozen=True)
class Details:
    """Reads the contents of both sides of one context.

    only: by pair, the blocks that are looked at, all of other pairs.
    """

    common: Common
    regions: MatchedRegions
    calls: MatchedCalls | None
    names: Names
    types: Types
    tolerance: Tolerance | None
    only: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def type_of(self, pair: int) -> Type | None:
        """Returns the given type of a region's items."""
        row = int(self.regions.rows_a[pair])
        label = self.names.text(int(self.regions.a.label[row]))
        for key in (int(self.regions.a.id[row]), label):
            if key is not None and key in self.types:
                return self.types[key]
        return self.types.get(None)

    def within_tolerance(self, pair: int, position: int) -> bool:
        """Returns whether contents with different digests are equal within the tolerance."""
        a, b, one = self.common.a.process, self.common.b.process, self.type_of(pair)
        if a is None or b is None or one is None:
            return False
        try:
            sides = self._contents(a, b, pair, position)
            blocks = unequal_blocks(sides[0].records, sides[1].records)
            return all(
                self._values(one, sides, blocks[i : i + 64], False).same
                for i in range(0, len(blocks), 64)
            )
        except Error:
            return False

    # ---- a divergence ----

    def divergence(self, found: Stretches, i: int) -> Divergence:
        """Returns all details of the i-th stretch."""
        common, pair = self.common, int(found.pair[i])
        first, last = int(found.first[i]), int(found.last[i])
        goes_on = last + 1 >= min(found.positions, int(common.died[pair]))
        epoch_a, epoch_b = int(common.epochs_a[first]), int(common.epochs_b[first])
        row = int(self.regions.rows_a[pair])
        since = bool(found.since[i])
        out = Divergence(
            region_a=int(common.regions_a[pair]),
            region_b=int(common.regions_b[pair]),
            kind=self.names.text(int(self.regions.a.kind[row])) or "",
            label=self.names.text(int(self.regions.a.label[row])),
            size=int(self.regions.a.size[row]),
            epoch_a=epoch_a,
            epoch_b=epoch_b,
            until_a=None if goes_on else int(common.epochs_a[last]),
            until_b=None if goes_on else int(common.epochs_b[last]),
            equal_a=int(common.epochs_a[first - 1]) if since else None,
            equal_b=int(common.epochs_b[first - 1]) if since else None,
            trigger=self.names.text(int(common.a.trigger[epoch_a])) or "",
            epoch_label=self.names.text(int(common.a.label[epoch_a])),
            digest_a=f"{int(found.digest_a[i]):016x}",
            digest_b=f"{int(found.digest_b[i]):016x}",
        )
        out.notes += self._notes(out)
        self._origins(out)
        if self.calls is not None:
            out.after = _last_launch(common.a, self.calls.a, epoch_a)
        self._look(out, pair, first)
        windows = self._window(common.a, out, 0), self._window(common.b, out, 1)
        if any(window is not None for window in windows):
            out.suspects, out.suspect_count = suspects.find(*windows, self.calls, self.regions)
        out.leftover = not (since or out.suspect_count) and self.calls is not None
        if out.leftover:
            out.notes.append("no call wrote to it: its contents are from before its allocation")
        elif not since:
            out.notes.append("it was never the same: some of it may be from before its allocation")
        return out

    def _notes(self, out: Divergence) -> list[str]:
        notes = []
        for side, epoch in ((self.common.a, out.epoch_a), (self.common.b, out.epoch_b)):
            flags = int(side.flags[epoch])
            which = "A" if side is self.common.a else "B"
            if flags & layout.LOOSE:
                notes.append(
                    f"{which}: epoch {epoch} was cut while work was running: it may be torn"
                )
            if flags & layout.EPOCH_FLAGS["gap"]:
                notes.append(f"{which}: the epoch before {epoch} was refused: changes may be older")
        if out.kind == "managed":
            notes.append("it is managed memory: the host may have written to it too")
        return notes

    def _origins(self, out: Divergence) -> None:
        for side, region, member in (
            (self.common.a, out.region_a, "origin_a"),
            (self.common.b, out.region_b, "origin_b"),
        ):
            if side.process is not None:
                row = int(side.process.regions.rows(np.array([region]))[0])
                setattr(out, member, origin(side.process, row))

    def _window(self, side: Side, out: Divergence, which: int) -> suspects.Window | None:
        if side.process is None:
            return None
        region, epoch = ((out.region_a, out.epoch_a), (out.region_b, out.epoch_b))[which]
        equal = (out.equal_a, out.equal_b)[which]
        after = 0
        if equal is not None:
            seen = side.process.coverage.until(equal, int(side.context[equal]), region)
            if seen is not None:
                inside = side.inside[seen]
                after = int(side.process.coverage.whole[seen] if inside else side.cut[seen] - 1)
        return suspects.Window(side.process, region, after, int(side.cut[epoch]) - 1)

    # ---- contents ----

    def _contents(
        self, a: Process, b: Process, pair: int, position: int
    ) -> tuple[Contents, Contents]:
        common = self.common
        records = (
            (a, int(common.epochs_a[position]), int(common.regions_a[pair])),
            (b, int(common.epochs_b[position]), int(common.regions_b[pair])),
        )
        one, other = (Contents(p, contents.block_records(p, e, r)) for p, e, r in records)
        return one, other

    def _look(self, out: Divergence, pair: int, position: int) -> None:
        """Compares blocks, and the bytes and values of those that differ."""
        a, b = self.common.a.process, self.common.b.process
        out.block_total = layout.blocks_of(out.size)
        if a is None or b is None:
            out.notes.append("a manifest has digests only: the bytes are unknown")
            return
        try:
            sides = self._contents(a, b, pair, position)
            blocks = unequal_blocks(sides[0].records, sides[1].records)
            if pair in self.only:
                blocks = [block for block in blocks if block in self.only[pair]]
            out.blocks, out.block_count = blocks[:LISTED_BLOCKS], len(blocks)
            out.partial = len(blocks) > LOOKED_AT
            tally = _tally(out, a, b)
            out.bytes = compare_bytes(*sides, blocks[:LOOKED_AT], tally.add)
            one = self.type_of(pair)
            if one is not None:
                out.values = self._values(one, sides, blocks[:LOOKED_AT], True)
                out.examples = _examples(one, sides, out.values.first[:EXAMPLES])
            parts = tally.parts()
            if parts and out.bytes is not None:
                self._look_at_tensors(out, tally, parts, sides, set(blocks[:LOOKED_AT]))
        except Error as e:
            out.notes.append(str(e))

    def _look_at_tensors(
        self,
        out: Divergence,
        tally: Tally,
        parts: list[Part],
        sides: tuple[Contents, Contents],
        differs: set[int],
    ) -> None:
        """Names the tensors that differ, and compares the values of the first."""
        assert out.bytes is not None
        found, first = tally.result(), parts[0]
        out.tensors, out.tensor_count = found[:LISTED_TENSORS], len(found)
        if first.offset <= out.bytes.first < first.offset + first.bytes:
            tensor = place_of(first, out.bytes.first)
            out.tensor, out.tensor_type = tensor.name, tensor.type
            out.tensor_offset, out.tensor_element = tensor.offset, tensor.element
        one = type_of(first)
        if one is None or out.values is not None:
            return
        if first.offset % one.itemsize or first.start % one.itemsize:
            return  # items would lie across blocks
        comparison = Comparison(one, self.tolerance)
        end = first.offset + first.bytes
        for at in range(first.offset // BLOCK_SIZE * BLOCK_SIZE, end, BLOCK_SIZE):
            begin, stop = max(at, first.offset), min(at + BLOCK_SIZE, end)
            block = at // BLOCK_SIZE
            if block in differs:
                pieces = [side.block(block)[begin - at : stop - at] for side in sides]
                comparison.add(*pieces)
            else:
                comparison.skip(stop - begin)
        out.tensor_values = comparison.result()
        before = first.start // one.itemsize
        examples = _examples(one, sides, out.tensor_values.first[:EXAMPLES], first.offset)
        out.tensor_examples = [(before + index, x, y) for index, x, y in examples]

    def _values(
        self, one: Type, sides: tuple[Contents, Contents], blocks: list[int], whole: bool
    ) -> ValueDifference:
        """Compares these blocks item by item. whole: other blocks count as equal items."""
        comparison = Comparison(one, self.tolerance)
        done = 0
        for block in blocks:
            if whole:
                comparison.skip((block - done) * BLOCK_SIZE)
            comparison.add(sides[0].block(block), sides[1].block(block))
            done = block + 1
        if whole and done * BLOCK_SIZE < sides[0].size:
            comparison.skip(sides[0].size - done * BLOCK_SIZE)
        return comparison.result()


def _tally(out: Divergence, a: Process, b: Process) -> Tally:
    """Counts by the names of A, or of B if only B has names."""
    if not len(a.labels) and len(b.labels):
        return Tally(b, out.region_b, out.epoch_b)
    return Tally(a, out.region_a, out.epoch_a)


def _examples(
    one: Type, sides: tuple[Contents, Contents], indices: list[int], start: int = 0
) -> list[tuple[int, str, str]]:
    """Returns some items of a part of the region that begins at start."""
    out = []
    for index in indices:
        begin, end = start + index * one.itemsize, start + (index + 1) * one.itemsize
        raw = (np.frombuffer(side.bytes(begin, end), "u1") for side in sides)
        a, b = (one.text(one.view(item)[0]) for item in raw)
        out.append((index, a, b))
    return out


def _last_launch(side: Side, calls: Calls, epoch: int) -> dict[str, Any] | None:
    """Returns the last launch before an epoch: kernel, its number among launches of this
    kernel, seq.
    """
    at = np.flatnonzero(calls.launch[: int(np.searchsorted(calls.seq, side.cut[epoch]))])
    if not len(at) or side.process is None:
        return None
    last = int(at[-1])
    alike: Array = calls.alike[at] == calls.alike[last]
    seq = int(calls.seq[last])
    event = side.process.events_between(seq - 1, seq)[0]
    kernel = side.process.kernel(int(event["id"])) if event["kind"] == KIND["launch"] else None
    return {"kernel": kernel, "ordinal": int(alike.sum()), "seq": seq}
