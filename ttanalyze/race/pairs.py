"""Pairs of calls that reach the same memory, and that nothing orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze import stacks
from ttanalyze.model import graphs, history, layout
from ttanalyze.model.layout import Array
from ttanalyze.model.process import Process
from ttanalyze.race.order import HOST_DST, KIND, Call, calls_between, unordered
from ttanalyze.race.report import OneCall, Pair

LISTED = 8
COMPARED = 2000  # calls of a window that are held against each other
DELAYED = layout.constant("TT_EVENTF_DELAYED") | layout.constant("TT_EVENTF_DELAYED_STREAM")
# What a call does to a region.
READS, MAY_WRITE, WRITES = range(3)


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
    context = int(process.epochs[epoch]["context"])
    after, until = 0 if since is None else int(process.seen.some[since]), process.seen.some[epoch]
    calls = calls_between(process, context, after, int(until))
    search = _Search(process, calls, after, int(until))
    return search.pairs(region, set(_changed(process, since, epoch)))[:LISTED]


def _changed(process: Process, since: int | None, epoch: int) -> Iterable[int]:
    """Rows of regions that are not the same in the epoch as in the one before."""
    first = 0 if since is None else since + 1
    listed = np.unique(process.digests(first, epoch + 1)["region"])
    for region in listed.tolist():
        records = history.region_history(process, region, epoch)
        before = records["digest"][records["epoch"] < first][-1:]
        if (records["digest"][records["epoch"] >= first] != before).any() or not len(before):
            yield int(process.regions.rows(np.array([region]))[0])


class _Search:
    def __init__(self, process: Process, calls: Sequence[Call], after: int, until: int) -> None:
        self._process = process
        table = process.regions
        alive = (table.birth["seq"] <= until) & ((table.death_seq == 0) | (table.death_seq > after))
        self._rows = np.flatnonzero(alive)[np.argsort(table.birth["base"][alive], kind="stable")]
        self._base = table.birth["base"][self._rows]
        self._end = self._base + table.birth["size"][self._rows]
        reaches = [_Reach(call, self._reach(call.event)) for call in calls[-COMPARED:]]
        self._reaches = [reach for reach in reaches if reach.regions]

    # ---- what calls reach ----

    def _at(self, addresses: Array) -> set[int]:
        """Rows of the regions that these lie in."""
        if not len(self._rows):
            return set()
        found = np.searchsorted(self._base, addresses, "right").astype("i8") - 1
        inside = (found >= 0) & (addresses < self._end[np.maximum(found, 0)])
        return set(self._rows[found[inside]].tolist())

    def _reach(self, event: Any) -> dict[int, int]:
        kind, flags = int(event["kind"]), int(event["flags"])
        if kind == KIND["launch"]:
            return dict.fromkeys(self._pointed_to(self._process.params(event)), MAY_WRITE)
        if kind == KIND["graph-launch"]:
            return self._of_graph(event)
        out: dict[int, int] = {}
        if kind == KIND["copy"]:
            out |= dict.fromkeys(self._at(event["src"].reshape(1)), READS)
        if kind in (KIND["copy"], KIND["set"], KIND["mem-op"]) and not flags & HOST_DST:
            out |= dict.fromkeys(self._at(event["dst"].reshape(1)), WRITES)
        return out

    def _pointed_to(self, params: bytes) -> set[int]:
        return self._at(np.frombuffer(params[: len(params) // 8 * 8], "<u8"))

    def _of_graph(self, event: Any) -> dict[int, int]:
        known, number, seq = self._process.graphs, int(event["id"]), int(event["seq"])
        out: dict[int, int] = {}
        if number >= len(known) or not known.known(number, seq):
            return out
        for node in known.nodes(number, seq):
            if node["flags"] & graphs.DISABLED:
                continue
            if node["kind"] == graphs.KERNEL and node["data_size"]:
                found = dict.fromkeys(self._pointed_to(known.data(node)), MAY_WRITE)
            elif node["kind"] in (graphs.KIND["copy"], graphs.KIND["set"]):
                copies = node["kind"] == graphs.KIND["copy"]
                read = self._at(node["src"].reshape(1)) if copies else ()
                host = node["flags"] & graphs.HOST_DST
                written = () if host else self._at(node["dst"].reshape(1))
                found = dict.fromkeys(read, READS) | dict.fromkeys(written, WRITES)
            else:
                continue
            for row, how in found.items():
                out[row] = max(how, out.get(row, READS))
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
                pair = (int(one.call.event["seq"]), int(other.call.event["seq"]))
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
        late = sum(bool(event["flags"] & DELAYED) for event in events)
        apart = abs(int(events[0]["seq"]) - int(events[1]["seq"]))
        return (late == 0, -how, not itself, late == 2, apart)

    def _pair(self, one: _Reach, other: _Reach, row: int) -> Pair:
        first, second = sorted((one, other), key=lambda r: int(r.call.event["seq"]))
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
        process, launch = self._process, event["kind"] == KIND["launch"]
        frames = process.stack(int(event["stack"])) if event["stack"] else []
        return OneCall(
            seq=int(event["seq"]),
            kind=layout.EVENT_KINDS[int(event["kind"])],
            call=process.call(int(event["call"])),
            kernel=process.kernel(int(event["id"])) if launch else None,
            stream=int(event["stream"]),
            thread=int(event["thread"]),
            does=("reads", "reaches", "writes")[reach.regions[row]],
            delayed=bool(event["flags"] & DELAYED),
            caller=stacks.caller(frames) if frames else None,
        )
