"""Traces, read as a viewer reads them."""

from __future__ import annotations

import io
import itertools
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ttanalyze as tt
from ttanalyze.verbs.trace import Traced, trace


@dataclass
class Item:
    """A slice, a mark or a counter's value; times are nanoseconds."""

    kind: str
    lane: str
    name: str
    begin: int
    end: int
    category: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    flow_out: int | None = None
    flow_in: int | None = None


@dataclass
class Seen:
    """lanes: by process and lane, its items as they come. processes: names by pid."""

    processes: dict[int, str]
    lanes: dict[tuple[int, str], list[Item]]

    def of(self, text: str) -> list[Item]:
        """Items of the lanes whose names have this text."""
        return [item for (_, name), items in self.lanes.items() if text in name for item in items]

    @property
    def items(self) -> list[Item]:
        return self.of("")

    @property
    def calls(self) -> list[Item]:
        both = self.of("thread ") + self.of("main thread")
        return [item for item in both if "ranges" not in item.lane]


def chrome(data: bytes) -> Seen:
    processes: dict[int, str] = {}
    names: dict[tuple[int, int], str] = {}
    lanes: dict[tuple[int, str], list[Item]] = defaultdict(list)
    last: dict[tuple[int, int], Item] = {}

    def ns(microseconds: float) -> int:
        return round(microseconds * 1000)

    for event in json.loads(data)["traceEvents"]:
        pid, tid, kind = event["pid"], event.get("tid"), event["ph"]
        if kind == "M":
            if event["name"] == "process_name":
                assert pid not in processes
                processes[pid] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert (pid, tid) not in names
                names[pid, tid] = event["args"]["name"]
            continue
        at = ns(event["ts"])
        if kind == "C":
            (value,) = event["args"].values()
            lane = lanes[pid, event["name"]]
            lane.append(Item("counter", event["name"], "", at, at, args={"bytes": value}))
            continue
        lane_name = names[pid, tid]
        if kind in "sf":
            assert at == last[pid, tid].begin
            setattr(last[pid, tid], "flow_out" if kind == "s" else "flow_in", event["id"])
            continue
        assert kind in "Xi" and processes[pid]
        end = at + ns(event.get("dur", 0))
        what = "slice" if kind == "X" else "mark"
        item = Item(what, lane_name, event["name"], at, end, event["cat"], event["args"])
        lanes[pid, lane_name].append(item)
        last[pid, tid] = item
    return Seen(processes, dict(lanes))


def perfetto(data: bytes) -> Seen:
    """With the descriptions that Perfetto itself is generated from."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    packets = pb.Trace.FromString(data).packet
    assert packets[0].sequence_flags == 1 and {p.trusted_packet_sequence_id for p in packets} == {1}
    groups: dict[int, int] = {}
    tracks: dict[int, tuple[int, str]] = {}
    processes: dict[int, str] = {}
    texts: dict[str, dict[int, str]] = defaultdict(dict)
    lanes: dict[tuple[int, str], list[Item]] = defaultdict(list)
    opened: dict[int, Item] = {}

    def value(arg: Any) -> Any:
        if arg.array_values:
            return [value(item) for item in arg.array_values]
        kind = arg.WhichOneof("value")
        if kind == "string_value_iid":
            return texts["debug_annotation_string_values"][arg.string_value_iid]
        return hex(arg.pointer_value) if kind == "pointer_value" else getattr(arg, kind)

    for packet in packets:
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                text = entry.str.decode() if hasattr(entry, "str") else entry.name
                assert texts[kind.name].setdefault(entry.iid, text) == text
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                groups[track.uuid] = track.process.pid
                processes[track.process.pid] = track.process.process_name
            else:
                pid = groups[track.parent_uuid]
                assert not track.HasField("thread") or track.thread.pid == pid
                tracks[track.uuid] = pid, track.name or track.thread.thread_name
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp
        place = tracks[event.track_uuid]
        if event.type == event.TYPE_SLICE_END:
            opened.pop(event.track_uuid).end = at
            continue
        assert event.track_uuid not in opened
        if event.type == event.TYPE_COUNTER:
            args = {"bytes": event.counter_value}
            lanes[place].append(Item("counter", place[1], "", at, at, args=args))
            continue
        marks = event.type == event.TYPE_INSTANT
        item = Item(
            "mark" if marks else "slice",
            place[1],
            texts["event_names"][event.name_iid],
            at,
            at,
            texts["event_categories"][event.category_iids[0]],
            {
                texts["debug_annotation_names"][arg.name_iid]: value(arg)
                for arg in event.debug_annotations
            },
        )
        (item.flow_out,) = event.flow_ids or (None,)
        (item.flow_in,) = event.terminating_flow_ids or (None,)
        lanes[place].append(item)
        if not marks:
            opened[event.track_uuid] = item
    assert not opened
    return Seen(processes, dict(lanes))


READERS = {"chrome": chrome, "perfetto": perfetto}


def traced(path: Path, form: str = "chrome", **options: Any) -> tuple[Seen, Traced]:
    """The trace of a run, which holds what any trace must."""
    file = io.BytesIO()
    done = trace(tt.open(path), file, form, **options)
    seen = READERS[form](file.getvalue())
    check(seen)
    assert done.lanes == len(seen.lanes) and done.processes == len(seen.processes)
    assert done.calls == len(seen.calls)
    ranges = seen.of("ranges")
    assert done.ranges == len(ranges)
    assert done.marks == len([i for i in seen.items if i.kind == "mark" and i not in ranges])
    assert done.arrows == len([i for i in seen.items if i.flow_out is not None])
    return seen, done


def check(seen: Seen) -> None:
    """In every lane nothing overlaps, unless one lies within another in a stream's or among ranges,
    nor do calls go back, and every arrow leads from one to one.
    """
    for (_, name), items in seen.lanes.items():
        assert all(item.begin <= item.end for item in items)
        if "thread" in name.removesuffix("per-thread default stream") and "ranges" not in name:
            assert all(a.end <= b.begin for a, b in itertools.pairwise(items))
        else:
            check_nesting(items)
    outs = {i.flow_out: i for i in seen.items if i.flow_out is not None}
    ins = {i.flow_in: i for i in seen.items if i.flow_in is not None}
    assert outs.keys() == ins.keys()
    assert len(outs) == len([i for i in seen.items if i.flow_out is not None])
    assert all(outs[number].begin <= ins[number].begin for number in outs)


def check_nesting(items: list[Item]) -> None:
    """As viewers see to it: by when they begin, those that are there earlier before others."""
    opened: list[Item] = []
    for item in sorted(items, key=lambda item: item.begin):
        while opened and opened[-1].end <= item.begin:
            opened.pop()
        assert not opened or item.end <= opened[-1].end
        opened.append(item)
