"""Pairs of calls that reach the same memory, and that nothing orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.core import stacks
from ttanalyze.format import event_kinds, graphs, history, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.regions import Regions
from ttanalyze.verbs.race.order import HOST_DST, Call, calls_between, unordered
from ttanalyze.verbs.race.report import OneCall, Pair

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
    after = 0 if since is None else int(process.coverage.whole[since])
    calls = calls_between(process, context, after, int(process.coverage.some[epoch]))
    search = _Search(process, calls)
    return search.pairs(region, set(_changed(process, since, epoch)))[:LISTED]


def _changed(process: Process, since: int | None, epoch: int) -> Iterable[int]:
    """Rows of regions that are not the same in the epoch as in the one before."""
    first = 0 if since is None else since + 1
    listed = np.unique(process.digests(first, epoch + 1)["region"])
    for region in listed.tolist():
        records = history.region_history(process, region, epoch)
        before = records["digest"][records["epoch"] < first][-1:]
        if not len(before) or (records["digest"][records["epoch"] >= first] != before).any():
            yield int(process.regions.rows(np.array([region]))[0])


class _Living:
    """The regions that live at a call: an address may be used again and again.

    Calls are asked for in their order, so that those between which nothing changes cost nothing.
    """

    def __init__(self, regions: Regions) -> None:
        birth = regions.birth
        self._rows = np.argsort(birth["base"], kind="stable")
        self._base, self._size = birth["base"][self._rows], birth["size"][self._rows]
        self._born, self._died = birth["seq"][self._rows], regions.death_seq[self._rows]
        self._changes = np.sort(regions.changes["seq"])
        self._at: tuple[int, tuple[Array, Array, Array]] | None = None

    def _now(self, seq: int) -> tuple[Array, Array, Array]:
        """Rows, beginnings and ends, ascending."""
        changes = int(np.searchsorted(self._changes, seq))
        if self._at is None or self._at[0] != changes:
            now = (self._born < seq) & ((self._died == 0) | (seq <= self._died))
            base = self._base[now]
            self._at = changes, (self._rows[now], base, base + self._size[now])
        return self._at[1]

    def regions_at(self, seq: int, addresses: Array, size: Any = 1) -> set[int]:
        """Rows of the regions that these, of so many bytes each, lie in or reach into."""
        rows, base, end = self._now(seq)
        first = np.searchsorted(end, addresses, "right")
        stop = np.searchsorted(base, addresses + np.maximum(np.uint64(size), np.uint64(1)))
        out: set[int] = set()
        for i in np.flatnonzero(first < stop).tolist():
            out.update(rows[first[i] : stop[i]].tolist())
        return out


class _Search:
    def __init__(self, process: Process, calls: Sequence[Call]) -> None:
        self._process = process
        self._living = _Living(process.regions)
        reaches = [_Reach(call, self._reach(call.event)) for call in calls[-COMPARED:]]
        self._reaches = [reach for reach in reaches if reach.regions]

    # ---- what calls reach ----

    def _reach(self, event: Any) -> dict[int, int]:
        kind, flags, seq = int(event["kind"]), int(event["flags"]), int(event["seq"])
        if kind == KIND["launch"]:
            return self._pointed_to(seq, self._process.params(event), MAY_WRITE)
        if kind == KIND["graph-launch"]:
            return self._of_graph(event)
        copies = kind == KIND["copy"]
        if kind not in event_kinds.STORE:
            return {}
        return self._moved(seq, event, event["bytes"], copies, bool(flags & HOST_DST))

    def _pointed_to(self, seq: int, words: bytes, how: int) -> dict[int, int]:
        addresses = np.frombuffer(words[: len(words) // 8 * 8], "<u8")
        return dict.fromkeys(self._living.regions_at(seq, addresses), how)

    def _moved(self, seq: int, of: Any, size: Any, copies: bool, to_host: bool) -> dict[int, int]:
        """What a copy, or a fill, from of["src"] to of["dst"] reaches."""
        read = self._living.regions_at(seq, of["src"].reshape(1), size) if copies else ()
        written = () if to_host else self._living.regions_at(seq, of["dst"].reshape(1), size)
        return dict.fromkeys(read, READS) | dict.fromkeys(written, WRITES)

    def _of_graph(self, event: Any) -> dict[int, int]:
        known, number, seq = self._process.graphs, int(event["id"]), int(event["seq"])
        out: dict[int, int] = {}
        if number >= len(known) or not known.known(number, seq):
            return out
        for node in known.nodes(number, seq):
            kind = int(node["kind"])
            if node["flags"] & graphs.DISABLED:
                continue
            if kind in (graphs.KERNEL, graphs.KIND["mem-op"]):
                how = MAY_WRITE if kind == graphs.KERNEL else WRITES
                found = self._pointed_to(seq, known.data(node), how)
            elif kind in (graphs.KIND["copy"], graphs.KIND["set"]):
                to_host = bool(node["flags"] & graphs.HOST_DST)
                copies = kind == graphs.KIND["copy"]
                found = self._moved(seq, node, node["reach"], copies, to_host)
            else:
                continue
            most = MAY_WRITE if node["flags"] & graphs.CONDITIONAL else WRITES
            for row, how in found.items():
                out[row] = max(min(how, most), out.get(row, READS))
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
