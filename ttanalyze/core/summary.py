"""What `info` tells of a process, and `summary.json`, which keeps it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.core import delays, guard, zones
from ttanalyze.core.crash_report import crash_reports, last_epoch
from ttanalyze.core.traced import totals
from ttanalyze.core.waits import Waits
from ttanalyze.format import event_kinds, layout, statuses, summaries
from ttanalyze.format.captures import LATEST, Captures
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import process_warnings

IN_GRAPH = 1  # flag: recorded into a graph, not executed


def keep(folder: Path) -> None:
    """Writes summary.json of a process that has ended.

    Raises FormatError if a file does not follow the format, OSError if it cannot be written.
    """
    process = Process(folder, int(folder.name[1:]))
    summaries.keep(folder, {**summarise(process), "warnings": process_warnings(process)})


def summarise(process: Process) -> dict[str, Any]:
    """Returns what `info` tells of a process, but for its number."""
    flags = process.epochs["flags"]
    regions = process.regions
    kinds = [layout.REGION_KINDS[kind] for kind in regions.birth["kind"].tolist()]
    captured = (regions.flags & layout.CAPTURED != 0).tolist()
    recorded = process.info
    return {
        "pid": recorded.get("pid"),
        "argv": recorded.get("argv", []),
        "rank": None if process.rank is None else asdict(process.rank),
        "cwd": recorded.get("cwd"),
        "status": process.status,
        "reason": recorded.get("reason"),
        "started_ns": recorded.get("started_ns"),
        "ended_ns": recorded.get("ended_ns"),
        "driver_version": recorded.get("driver_version"),
        "devices": recorded.get("devices", []),
        "deterministic": recorded.get("deterministic", False),
        "options": recorded.get("options", {}),
        "ring": recorded.get("ring", {}),
        "epochs": len(process.epochs),
        "triggers": _triggers(process.epochs["trigger"]),
        "epoch_flags": {
            name: int(np.count_nonzero(flags & bit)) for name, bit in layout.EPOCH_FLAGS.items()
        },
        "epochs_dropped": _dropped(process),
        "epochs_skipped": int(np.count_nonzero(process.epochs["skipped"])),
        "overhead": recorded.get("overhead"),
        "threads": recorded.get("threads", []),
        "epochs_digests_only": int(np.count_nonzero(process.digests_alone)),
        "unread": process.unread.count(0, len(process.epochs) - 1),
        "bytes_read": int(process.epochs["bytes_read"].sum(dtype="u8")),
        "bytes_changed": int(process.epochs["bytes_changed"].sum(dtype="u8")),
        "bytes_stored": int(process.epochs["bytes_stored"].sum(dtype="u8")),
        "regions_captured": _tally([k for k, c in zip(kinds, captured, strict=True) if c]),
        "regions_not_captured": _tally([k for k, c in zip(kinds, captured, strict=True) if not c]),
        "bytes_captured": int(regions.size[np.array(captured, bool)].sum(dtype="u8")),
        "kernels": len(process.functions),
        "replayable": _replayable(process),
        "traced": totals([process]),
        "modules": len(process.modules),
        "events": _events(process),
        "events_lost": recorded.get("counters", {}).get("events_lost", 0),
        "annotations": recorded.get("counters", {}).get("annotations", 0),
        "timeline": _timeline(process),
        "capture_waits": _capture_waits(process),
        "late": _late(process),
        "zones": _zones(process),
        "guards": _guards(process),
        "unknown_calls": recorded.get("unknown_calls", []),
        "incidents": crash_reports(process),
        "last_epoch": last_epoch(process),
    }


def _events(process: Process) -> int:
    """Returns the number of events: the process's own count, if it wrote one."""
    if process.status in statuses.OVER and "events" in process.info.get("counters", {}):
        return int(process.info["counters"]["events"])
    return process.count_events()


def _replayable(process: Process) -> dict[str, Any] | None:
    """Returns the number of replayable launches, and whose code is missing and why. None if it was
    not requested.
    """
    if process.info.get("options", {}).get("TT_REPLAYABLE") != "1":
        return None
    launched = layout.distinct(process.launches["function"])
    functions = process.functions[np.isin(process.functions["id"], launched)]
    why = dict(
        zip(process.modules["id"].tolist(), process.modules["missing"].tolist(), strict=True)
    )
    missing = [layout.MISSING[why.get(m, 1)] for m in functions["module"].tolist()]
    return {
        "launches": len(process.launches),
        "kernels": len(launched),
        "without_code": _tally([reason for reason in missing if reason != "nothing"]),
    }


def _timeline(process: Process) -> dict[str, Any] | None:
    """Returns what process.json says of GPU times, and the number of launches with and without
    times. None without a timeline.
    """
    timeline = process.info.get("timeline", {})
    if timeline.get("asked", "off") == "off" and not process.activities.there:
        return None
    launches = timed = 0
    for records in process.event_pieces() if process.activities.there else ():
        meant = np.isin(records["kind"], event_kinds.LAUNCH) & (records["result"] == 0)
        meant &= records["flags"] & IN_GRAPH == 0
        known = process.activities.known(records["seq"][meant])
        launches, timed = launches + len(known), timed + int(np.count_nonzero(known))
    return {**timeline, "launches": launches, "timed_launches": timed}


def _capture_waits(process: Process) -> dict[str, Any]:
    """Returns the number of calls that made their stream wait for a capture and, with a timeline,
    the sum of these waits.
    """
    pieces = process.event_pieces() if len(process.epochs) else ()
    count = sum(int(np.count_nonzero(Captures.waited(records))) for records in pieces)
    known = count > 0 and process.activities.there
    return {"count": count, "time_ns": _held_up(process) if known else None}


def _late(process: Process) -> dict[str, int] | None:
    """Returns the number of delayed calls and instructions."""
    if not (process.path / delays.NAME).exists():
        return None
    points, calls = delays.read(process.path / delays.NAME).count_on()
    return {"calls": calls, "instructions": points}


def _guards(process: Process) -> dict[str, int] | None:
    """How many allocations and bytes have guards, of how many. None without --guard."""
    if process.info.get("options", {}).get("TT_GUARD", "off") == "off":
        return None
    names = ("allocations", "of_allocations", "bytes", "of_bytes")
    return dict(zip(names, guard.coverage(process), strict=True))


def _zones(process: Process) -> dict[str, Any] | None:
    """How many zones changed, and in which epochs this shows first; how many allocations and bytes
    have zones, of how many. None if there are no zones.
    """
    if not process.info.get("options", {}).get("TT_ZONES") and not zones.exist(process):
        return None
    first: dict[int, int] = {}
    for row, epoch, _ in zones.changes(process):
        first.setdefault(row, epoch)
    epochs = sorted(first.values())
    served, allocations, inside, size = zones.coverage(process)
    return {
        "changed": len(epochs),
        "epochs": sorted(set(epochs)),
        "allocations": served,
        "of_allocations": allocations,
        "bytes": inside,
        "of_bytes": size,
    }


def _held_up(process: Process) -> int:
    total, waits = 0, Waits(process.captures)
    for calls in process.events_by_seq():
        made = np.minimum(calls["time_ns"], LATEST).astype("i8")
        begins, ends, known = process.activities.spans(calls["seq"])
        lanes = (calls["context"].astype("u8") << np.uint64(32)) ^ calls["stream"]
        ran = (calls["result"] == 0) & (calls["flags"] & IN_GRAPH == 0)
        of = np.flatnonzero(known)
        span = (np.maximum(begins[of], made[of]), np.maximum(ends[of], made[of]))
        _, found = waits.find(calls, lanes, ran, made, of, span)
        total += int((found.ends - found.begins).sum())
    return total


def _triggers(numbers: Array) -> dict[str, int]:
    """Returns how often each trigger cut an epoch, the most frequent first."""
    found, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    return {layout.TRIGGERS[found[i]]: int(counts[i]) for i in np.lexsort((first, -counts))}


def _tally(names: list[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _dropped(process: Process) -> int:
    """Returns the number of epochs that lack contents."""
    dropped = process.epochs["flags"] & layout.DROPPED != 0
    if process.without_contents:
        dropped &= process.epochs["digests_count"] == 0
    return int(np.count_nonzero(dropped))
