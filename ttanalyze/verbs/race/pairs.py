"""Pairs of calls that reach the same memory, and that nothing orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ttanalyze.core import stacks
from ttanalyze.core.order import Call, Event, calls_between, unordered
from ttanalyze.core.reach import READS, WRITES, Reach
from ttanalyze.format import history, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.verbs.race.report import OneCall, Pair

LISTED = 8
COMPARED = 2000  # calls of a window that are held against each other
DELAYED = layout.constant("TT_EVENTF_DELAYED") | layout.constant("TT_EVENTF_DELAYED_STREAM")


@dataclass(frozen=True)
class _Reach:
    """A call, and by row of process.regions what it does there."""

    call: Call
    regions: dict[int, int]


def find(process: Process, region: int, since: int | None, epoch: int) -> list[Pair]:
    """The pairs that may be why a region differs in an epoch but not since another, the likeliest
    first.

    A call that may have written to the region, and one that reaches memory which it reaches, where
    one of both may write; first those of which one was late, and where memory changed in these
    epochs.
    """
    after = 0 if since is None else int(process.coverage.whole[since])
    calls = calls_between(process, after, int(process.coverage.some[epoch]))
    search = _Search(process, calls)
    return search.pairs(region, set(_changed(process, since, epoch)))[:LISTED]


def _changed(process: Process, since: int | None, epoch: int) -> Iterable[int]:
    """Rows of regions that changed from the epoch before to this one."""
    first = 0 if since is None else since + 1
    listed = np.unique(process.digests(first, epoch + 1)["region"])
    for region in listed.tolist():
        records = history.region_history(process, region, epoch)
        before = records["digest"][records["epoch"] < first][-1:]
        if not len(before) or (records["digest"][records["epoch"] >= first] != before).any():
            yield int(process.regions.rows(np.array([region]))[0])


class _Search:
    def __init__(self, process: Process, calls: Sequence[Call]) -> None:
        self._process = process
        self._reach = Reach(process)
        reaches = [_Reach(call, self._regions(call.event)) for call in calls[-COMPARED:]]
        self._reaches = [reach for reach in reaches if reach.regions]

    def _regions(self, event: Event) -> dict[int, int]:
        out: dict[int, int] = {}
        for access in self._reach.of(event):
            out[access.row] = max(min(access.mode, WRITES), out.get(access.row, READS))
        return out

    # ---- pairs ----

    def pairs(self, region: int, changed: set[int]) -> list[Pair]:
        row = int(self._process.regions.rows(np.array([region]))[0])
        ranked: list[tuple[tuple[int, ...], _Reach, _Reach, int]] = []
        seen: set[tuple[int, int]] = set()
        for one in self._reaches:
            if one.regions.get(row, READS) == READS:
                continue
            for other in self._reaches:
                pair = (one.call.event.seq, other.call.event.seq)
                if (min(pair), max(pair)) in seen or not unordered(one.call, other.call):
                    continue
                seen.add((min(pair), max(pair)))
                for shared in one.regions.keys() & other.regions.keys():
                    how = max(one.regions[shared], other.regions[shared])
                    if how != READS and shared in changed:
                        rank = self._rank(one, other, how, shared == row)
                        ranked.append((rank, one, other, shared))
        ranked.sort(key=lambda found: found[0])
        return [self._pair(one, other, shared) for _, one, other, shared in ranked]

    def _rank(self, one: _Reach, other: _Reach, how: int, itself: bool) -> tuple[int, ...]:
        """The smaller, the likelier: one of both late, sure to write, near each other."""
        events = one.call.event, other.call.event
        late = sum(bool(event.flags & DELAYED) for event in events)
        apart = abs(events[0].seq - events[1].seq)
        return (late == 0, -how, not itself, late == 2, apart)

    def _pair(self, one: _Reach, other: _Reach, row: int) -> Pair:
        first, second = sorted((one, other), key=lambda r: r.call.event.seq)
        table = self._process.regions
        label = int(table.label[row])
        return Pair(
            first=self._one(first, row),
            second=self._one(second, row),
            region=int(table.id[row]),
            label=None if label == layout.NO_ID else self._process.strings.get(label),
            size=int(table.size[row]),
        )

    def _one(self, reach: _Reach, row: int) -> OneCall:
        event = reach.call.event
        process, launch = self._process, event.kind == KIND["launch"]
        frames = process.stack(event.stack) if event.stack else []
        return OneCall(
            seq=event.seq,
            kind=layout.EVENT_KINDS[event.kind],
            call=process.call(event.call),
            kernel=process.kernel(event.id) if launch else None,
            stream=event.stream,
            thread=event.thread,
            does=("reads", "reaches", "writes")[reach.regions[row]],
            delayed=bool(event.flags & DELAYED),
            caller=stacks.caller(frames) if frames else None,
        )
