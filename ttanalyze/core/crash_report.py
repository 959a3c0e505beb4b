"""Crash reports in words: the in-flight work when a context was lost or the process ended."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from ttanalyze.code.demangle import demangle, short
from ttanalyze.core import guard, stacks
from ttanalyze.core.allocating_calls import line_of
from ttanalyze.format import layout
from ttanalyze.format.process import Process
from ttanalyze.output import text

SHOWN_STREAMS = 8
SHOWN_CALLS = 4
SHOWN_FRAMES = 8
SHOWN_ALLOCATIONS = 4
PER_THREAD, LEGACY = 2, 1  # streams


def crash_reports(process: Process) -> list[dict[str, Any]]:
    """Returns the crash reports of process.json. Each call has the demangled kernel (`name`) and
    its stack (`frames`, the innermost first) if known. After an illegal address, each launch has
    the allocations with guards that it has pointers to (`reaches`), the likeliest first.
    """
    found: list[dict[str, Any]] = process.info.get("incidents", [])
    lost = guard.ended_by(process, guard.ILLEGAL_ADDRESS)
    guarded = bool(lost) and guard.exist(process)
    return [
        {
            **report,
            "in_flight": [
                {
                    **stream,
                    "calls": [
                        _named(process, call) | (_reaches(process, call) if guarded else {})
                        for call in stream.get("calls", [])
                    ],
                }
                for stream in report.get("in_flight", [])
            ],
            "threads": [_named(process, thread) for thread in report.get("threads", [])],
        }
        for report in found
    ]


def _named(process: Process, call: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if call.get("kernel"):
        (more["name"],) = demangle([call["kernel"]])
    if call.get("stack"):
        more["frames"] = [stacks.frame_text(frame) for frame in process.stack(call["stack"])]
    return {**call, **more}


def _reaches(process: Process, call: dict[str, Any]) -> dict[str, Any]:
    """The allocations that a launch may have run over."""
    found = []
    regions = process.regions
    for one in guard.reached(process, call["seq"]):
        row = int(regions.rows(np.array([one.region]))[0])
        label = process.strings.get(int(regions.label[row]))
        line = line_of(process, regions.birth[row])
        size = int(regions.size[row])
        found.append({**asdict(one), "label": label, "size": size, "line": line})
    return {"reaches": found} if found else {}


def last_epoch(process: Process) -> dict[str, Any] | None:
    """Returns the last epoch with contents: number, trigger, and the call before it."""
    epochs = process.epochs
    lost = epochs["flags"] & (layout.REFUSED | layout.DROPPED) != 0
    good = np.flatnonzero(~lost & (epochs["segment"] != layout.NO_SEGMENT))
    if not len(good):
        return None
    epoch = epochs[good[-1]]
    trigger = layout.TRIGGERS[int(epoch["trigger"])]
    return {"epoch": int(epoch["number"]), "trigger": trigger, "seq": int(epoch["seq"])}


def crash_report_text(report: dict[str, Any], pid: int | None) -> str:
    """Returns a report in lines. The first says what happened. Its `hang` has lines about warps."""
    streams = report["in_flight"]
    what = text.printable(report["reason"])
    if report.get("call"):
        what += f" from {text.printable(report['call'])}"
        what += f" (call {report['seq']})" if report.get("seq") else ""
    lines = [f"{what}, {'with work in flight' if streams else 'nothing in flight'}"]
    several = len({stream["context"] for stream in streams}) > 1
    for stream in streams[:SHOWN_STREAMS]:
        lines += _stream(stream, report, several)
    more = report.get("streams", len(streams)) - min(len(streams), SHOWN_STREAMS)
    if more > 0:
        lines.append(f"and work in {text.count(more, 'more stream')}")
    if streams:
        for thread in report.get("threads", [])[:SHOWN_STREAMS]:
            who = "the main thread" if thread["thread"] == pid else f"thread {thread['thread']}"
            lines.append(f"{who} was in {text.printable(thread['call'])}")
            lines += _frames(thread)
    lines += report.get("hang", {}).get("lines", [])
    return "\n".join(lines)


def _stream_name(stream: dict[str, Any], several: bool) -> str:
    number = stream["stream"]
    if number == PER_THREAD:
        name = f"default stream of thread {stream.get('thread', 'unknown')}"
    else:
        name = "default stream" if number == LEGACY else f"stream {number}"
        name += " (destroyed)" if stream.get("destroyed") else ""
    return f"context {stream['context']}, {name}" if several else name


def _stream(stream: dict[str, Any], report: dict[str, Any], several: bool) -> list[str]:
    calls, count = stream["calls"], stream.get("count", 0)
    behind = f", waits for {_stream_name(stream['behind'], several)}" if "behind" in stream else ""
    if not calls:
        return [f"{_stream_name(stream, several)}: work of unrecorded calls{behind}"]
    number = f"{text.count(count, 'call')}, the first " if count > 1 else ""
    if stream.get("more"):
        number = f"{count:,} or more calls, the first known "
    first, *others = (_call(call, report) for call in calls[:SHOWN_CALLS])
    lines = [f"{_stream_name(stream, several)}: {number}{first}{behind}"]
    lines += _frames(calls[0]) + _past_end(calls[0])
    for call, other in zip(calls[1:], others, strict=False):
        lines += [f"  then {other}", *_past_end(call)]
    if count > SHOWN_CALLS:
        lines.append(f"  and {count - SHOWN_CALLS:,} more")
    return lines


def _frames(call: dict[str, Any]) -> list[str]:
    frames = call.get("frames", [])
    lines = [f"    {text.printable(frame)}" for frame in frames[:SHOWN_FRAMES]]
    if len(frames) > SHOWN_FRAMES:
        lines.append(f"    … and {len(frames) - SHOWN_FRAMES} more")
    return lines


def _past_end(call: dict[str, Any]) -> list[str]:
    lines = []
    reaches = call.get("reaches", [])
    for i, one in enumerate(reaches[:SHOWN_ALLOCATIONS]):
        how = "memory that was freed, of" if one["freed"] else "memory past the end of"
        name = text.printable(one["label"] or f"region {one['region']}")
        line = f", allocated at {text.printable(one['line'])}" if one["line"] else ""
        may = "or" if i else "may have accessed"
        lines.append(f"    {may} {how} {name} ({text.size(one['size'])}{line})")
    if len(reaches) > SHOWN_ALLOCATIONS:
        lines.append(f"    or of {len(reaches) - SHOWN_ALLOCATIONS} more")
    return lines


def _call(call: dict[str, Any], report: dict[str, Any]) -> str:
    if call.get("name"):
        grid, block = (_dimensions(call.get(shape, [])) for shape in ("grid", "block"))
        what = f"{short(call['name'])}<<<{grid}, {block}>>>"
    else:
        what = call["call"]
        what += f" of {call['bytes']:,} bytes" if call.get("bytes") else ""
    before = max(0, report.get("time_ns", 0) - call.get("submitted_ns", 0))
    return f"{text.printable(what)} (call {call['seq']}, {text.duration(before)} before)"


def _dimensions(shape: list[int]) -> str:
    return "x".join(map(str, shape[:1] if shape[1:] == [1, 1] else shape)) or "?"
