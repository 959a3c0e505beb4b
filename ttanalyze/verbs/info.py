"""Summarises a run: programs, devices, epochs, regions, warnings. Reads no memory contents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.core import delays, guard, zones
from ttanalyze.core.crash_report import crash_report_text, crash_reports, last_epoch
from ttanalyze.core.waits import Waits
from ttanalyze.format import event_kinds, layout, statuses
from ttanalyze.format.captures import LATEST, Captures
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import AT_ONCE, Run, warnings_of
from ttanalyze.format.unread import UNREAD
from ttanalyze.output import text
from ttanalyze.traces.hangs import hang_of
from ttanalyze.util.parallel import each
from ttanalyze.util.remote import Url, listed_bytes

SHOWN_PROCESSES = 8
SHOWN_RANKS = 64
SHOWN_WARNINGS = 10
IN_GRAPH = 1  # flag: recorded into a graph, not executed


def info(run: Run) -> dict[str, Any]:
    """Summarises a run.

    Args:
        run: The run.

    Returns:
        An object for JSON: run, format, created_ns, bytes_on_disk, exit, warnings, and one entry
        per process with program, driver, devices, options, epochs, regions and counters.

    Raises:
        FormatError: A file does not follow the format.

    Example:
        >>> summary = tt.info(tt.open("run1"))
        >>> summary["processes"][0]["argv"]
        ['./app', '--fast']
    """

    def told(process: Process) -> tuple[dict[str, Any], list[str], int]:
        used = _disk_usage(process.path) if here else 0
        return _process(run, process), warnings_of(run, process), used

    here = not isinstance(run.path, Url)
    many = len(run.processes) > AT_ONCE and here
    found = each(told, run.processes, many)
    others = {process.path.name for process in run.processes}
    rest = _disk_usage(run.path, others) if here else listed_bytes(run.path)
    size = rest + sum(of for *_, of in found)
    processes = [process for process, *_ in found]
    warnings = [line for _, lines, _ in found for line in lines] if found else run.warnings
    return {
        "run": str(run.path),
        "format": run.info.get("version", layout.VERSION),
        "created_ns": run.info.get("created_ns"),
        "bytes_on_disk": size,
        "exit": run.info.get("exit"),
        "processes": processes,
        "warnings": warnings,
    }


def _process(run: Run, process: Process) -> dict[str, Any]:
    flags = process.epochs["flags"]
    regions = process.regions
    kinds = [layout.REGION_KINDS[kind] for kind in regions.birth["kind"].tolist()]
    captured = (regions.flags & layout.CAPTURED != 0).tolist()
    recorded = process.info
    return {
        "process": process.index,
        "pid": recorded.get("pid"),
        "argv": recorded.get("argv", []),
        "rank": None if process.rank is None else asdict(process.rank),
        "cwd": recorded.get("cwd"),
        "status": _status(run, process),
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
        "incidents": [_incident(run, process, one) for one in crash_reports(process)],
        "last_epoch": last_epoch(process),
    }


def _status(run: Run, process: Process) -> str:
    killed = process.status == statuses.RUNNING and run.over
    return statuses.KILLED if killed else process.status


def _incident(run: Run, process: Process, report: dict[str, Any]) -> dict[str, Any]:
    """Returns a crash report with what the warps of its launches did in words."""
    told = report.pop("launches", None)
    return {**report, "hang": hang_of(run, process, told).as_dict()} if told else report


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


def _disk_usage(path: Path, without: Collection[str] = ()) -> int:
    """Returns the size of the files in a folder, without those in some folders of it."""
    total = 0
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name not in without]
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # a run that goes on renames its drafts
                continue
    return total


def info_text(summary: dict[str, Any], colour: bool = False) -> str:
    """Returns a summary for a screen.

    Args:
        summary: The result of `info`.
        colour: Whether to use terminal colours.
    """
    head = f"format {summary['format']}, {text.size(summary['bytes_on_disk'])} on disk"
    pairs = [("run", f"{text.printable(summary['run'])}  ({head})")]
    processes = summary["processes"]
    if summary["exit"] and processes:
        pairs.append(("exit", _ending(summary["exit"])))
    ranked = [process for process in processes if process["rank"]]
    if ranked:
        pairs.append(("ranks", _ranks(ranked)))
    if len(processes) == 1:
        out = [text.rows([*pairs, *process_rows(processes[0])])]
    else:
        out = [text.rows(pairs)]
        for process in processes[:SHOWN_PROCESSES]:
            rank = f", rank {process['rank']['rank']}" if process["rank"] else ""
            head = f"process {process['process']}{rank}"
            out += ["", text.coloured(head, "bold", colour)]
            out.append(text.rows(process_rows(process)))
    if len(processes) > SHOWN_PROCESSES:
        out.append(f"… and {len(processes) - SHOWN_PROCESSES} more processes (--json has them all)")
    warnings = summary["warnings"]
    out.append("")
    for warning in warnings[:SHOWN_WARNINGS]:
        line = f"warning: {text.printable(warning)}"
        out.append(text.coloured(line, "yellow", colour))
    if len(warnings) > SHOWN_WARNINGS:
        out.append(f"… and {len(warnings) - SHOWN_WARNINGS} more warnings")
    if not warnings:
        out.append("no warnings")
    return "\n".join(out)


def _ranks(ranked: list[dict[str, Any]]) -> str:
    """Returns a table of ranks, with those that are missing below."""
    rows = [["rank", "node", "local", "devices", "process", "recording", "epochs", "calls"]]
    shown = sorted(ranked, key=lambda process: int(process["rank"]["rank"]))
    for process in shown[:SHOWN_RANKS]:
        rank = process["rank"]
        local = "" if rank["local_rank"] is None else str(rank["local_rank"])
        devices = rank["visible_devices"] or ",".join(
            str(device.get("ordinal", "?")) for device in process["devices"]
        )
        counts = [f"{process['epochs']:,}", f"{process['events']:,}"]
        place = [str(rank["rank"]), text.printable(rank["node"]), local, text.printable(devices)]
        rows.append([*place, str(process["process"]), process["status"], *counts])
    out = text.table(rows, {0, 2, 4, 6, 7})
    if len(shown) > SHOWN_RANKS:
        out += f"\n… and {len(shown) - SHOWN_RANKS} more (--json has them all)"
    world = max(process["rank"]["world_size"] for process in ranked)
    missing = sorted(set(range(world)) - {process["rank"]["rank"] for process in ranked})
    if missing:
        listed = text.ranges(missing)
        out += f"\nnot recorded: {text.count(len(missing), 'rank')} of {world:,} ({listed})"
    return out


def _ending(ending: dict[str, Any]) -> str:
    if ending.get("signal") is not None:
        return f"killed by signal {ending['signal']}"
    return f"status {ending.get('status')}"


def process_rows(process: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = [("program", _program(process))]
    if process["started_ns"] is not None:
        pairs.append(("time", _times(process)))
    version = process["driver_version"]
    if version is not None:
        pairs.append(("driver", f"CUDA {version // 1000}.{version % 1000 // 10}"))
    devices = [
        f"{d.get('ordinal')}: {text.printable(d.get('name', '?'))}, {text.size(d.get('memory', 0))}"
        for d in process["devices"]
    ]
    pairs.append(("device", "\n".join(devices) or "unknown"))
    options = [
        f"{name.removeprefix('TT_').lower().replace('_', '-')}={value}"
        for name, value in process["options"].items()
        if name != "TT_OUT" and value not in ("", "0")
    ]
    if options:
        pairs.append(("options", text.printable(" ".join(options))))
    ring = process["ring"]
    if ring:
        location = text.printable(ring.get("memory", "unknown"))
        size = f"{text.size(ring.get('bytes', 0))} in {location} memory"
        pairs.append(("ring", "none" if location == "none" else size))
    pairs.append(("epochs", _epochs(process)))
    if process["overhead"]:
        pairs.append(("overhead", _overhead(process)))
    if process["threads"]:
        pairs.append(("threads", _threads(process)))
    if process["unread"]:
        pairs.append(("unread", f"{text.count(process['unread'], 'region-epoch')}: {UNREAD}"))
    pairs.append(("regions", _regions(process)))
    kernels, modules = text.count(process["kernels"], "kernel"), process["modules"]
    calls = f"{process['events']:,} recorded, {kernels}, {text.count(modules, 'module')}"
    annotations = process["annotations"]
    pairs.append(
        ("calls", f"{calls}, {text.count(annotations, 'annotation')}" if annotations else calls)
    )
    if process["replayable"]:
        pairs.append(("replay", _again(process["replayable"])))
    if process["timeline"]:
        pairs.append(("GPU", _gpu_times(process["timeline"])))
    if process["capture_waits"]["count"]:
        pairs.append(("waits", _waits_text(process["capture_waits"])))
    if process["late"]:
        calls, instructions = process["late"]["calls"], process["late"]["instructions"]
        what = f"{text.count(calls, 'call')}, {text.count(instructions, 'instruction')} in kernels"
        pairs.append(("delayed", what))
    if process["zones"]:
        pairs.append(("zones", _zones_text(process["zones"])))
    if process["guards"]:
        pairs.append(("guards", f"behind {_served_text(process['guards'])}"))
    pairs.append(("bytes", _bytes(process)))
    pairs.append(("lost", _losses(process)))
    for report in process["incidents"]:
        pairs.append(("crash report", crash_report_text(report, process["pid"])))
    if process["incidents"] and process["last_epoch"]:
        last = process["last_epoch"]
        pairs.append(("last epoch", f"{last['epoch']} ({last['trigger']}, call {last['seq']})"))
    if process["unknown_calls"]:
        names = ", ".join(process["unknown_calls"][:6])
        more = len(process["unknown_calls"]) - 6
        names += f" and {more} more" if more > 0 else ""
        pairs.append(("unknown calls", f"{text.printable(names)} (passed through, not recorded)"))
    return pairs


def _regions(process: dict[str, Any]) -> str:
    captured, others = process["regions_captured"], process["regions_not_captured"]
    regions = f"{sum(captured.values()):,} captured"
    regions += f" ({text.listing(captured.items())})" if captured else ""
    regions += f", {text.size(process['bytes_captured'])}"
    if others:
        regions += f"; {sum(others.values()):,} not captured ({text.listing(others.items())})"
    return regions


def _program(process: dict[str, Any]) -> str:
    argv = text.command(process["argv"]) or "unknown"
    shown = argv if len(argv) <= 200 else argv[:200] + "…"
    reason = text.printable(process["reason"] or "no reason given")
    endings = {
        "complete": "recording complete",
        "signal": f"recorded until it ended by {reason}",
        "timeout": f"recorded until it was ended by {reason}",
        "failed": f"recording stopped early: {reason}",
        statuses.KILLED: "killed",
        statuses.RUNNING: "killed, or still running",
    }
    ending = endings.get(process["status"], text.printable(process["status"]))
    return f"{shown}\npid {'unknown' if process['pid'] is None else process['pid']}, {ending}"


def _times(process: dict[str, Any]) -> str:
    started, ended = process["started_ns"], process["ended_ns"]
    if not started:
        return "not kept (deterministic)"
    try:
        out = datetime.fromtimestamp(started / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return f"{started} ns"
    return out if ended is None else f"{out}, {(ended - started) / 1e9:.3f} s"


def _epochs(process: dict[str, Any]) -> str:
    out = f"{process['epochs']:,}"
    if process["triggers"]:
        out += f" ({text.listing(process['triggers'].items())})"
    counts = {**process["epoch_flags"], "digests only": process["epochs_digests_only"]}
    flags = [(name, n) for name, n in counts.items() if n]
    return f"{out}; {text.listing(flags)}" if flags else out


def _overhead(process: dict[str, Any]) -> str:
    """Returns in words what recording cost the program, and what was skipped for it."""
    cost = process["overhead"]
    parts = [("epochs on the host", "host_ns"), ("epochs on the GPU", "gpu_ns")]
    parts.append(("calls", "events_ns"))
    spent = sum(cost.get(key, 0) for _, key in parts)
    alone = max(cost.get("elapsed_ns", 0) - spent, 1)
    out = f"{100 * spent / alone:.2f}%, limit {cost.get('limit', 0) / 1000:g}%"
    allowance = process["options"].get("TT_OVERHEAD_ALLOWANCE", "0")
    if allowance != "0":
        out += f" once that is {allowance}"
    shown = ", ".join(f"{name} {text.duration(cost.get(key, 0))}" for name, key in parts)
    skipped = process["epochs_skipped"]
    return f"{out} ({shown}); {skipped:,} of {text.count(process['epochs'], 'epoch')} skipped"


def _threads(process: dict[str, Any]) -> str:
    """Returns the processor time of the recorder's threads, and where they may run."""
    threads, options = process["threads"], process["options"]
    shown = [
        (f"{thread['count']} " if thread.get("count", 1) > 1 else "")
        + f"{text.printable(str(thread.get('name', '?')))} {text.duration(thread.get('cpu_ns', 0))}"
        for thread in threads
    ]
    total = sum(thread.get("cpu_ns", 0) for thread in threads)
    out = f"{text.duration(total)} of processor time"
    if process["started_ns"] is not None and process["ended_ns"] is not None:
        took = max(process["ended_ns"] - process["started_ns"], 1)
        out += f", {100 * total / took:.2g}% of a core"
    if options.get("TT_THREAD_CORES"):
        out += f", on cores {text.printable(options['TT_THREAD_CORES'])}"
    if options.get("TT_THREAD_PRIORITY") == "idle":
        out += ", only when these are idle" if options.get("TT_THREAD_CORES") else ", on idle cores"
    return f"{out}: {', '.join(shown)}"


def _dropped(process: Process) -> int:
    """Returns the number of epochs that lack contents."""
    dropped = process.epochs["flags"] & layout.DROPPED != 0
    if process.without_contents:
        dropped &= process.epochs["digests_count"] == 0
    return int(np.count_nonzero(dropped))


def _again(replayable: dict[str, Any]) -> str:
    launches = text.count(replayable["launches"], "launch", "launches")
    out = f"{launches} of {text.count(replayable['kernels'], 'kernel')}"
    missing = replayable["without_code"]
    return f"{out}; code missing: {text.listing(missing.items())}" if missing else out


def _gpu_times(timeline: dict[str, Any]) -> str:
    """Returns in words how many launches have times, their source, their error, and what is
    missing.
    """
    asked, source = (text.printable(timeline.get(name, "none")) for name in ("asked", "source"))
    out = "no times"
    if timeline["launches"]:
        launches = text.count(timeline["launches"], "launch", "launches")
        out = f"times of {timeline['timed_launches']:,} of {launches}, by {source}"
    error, reason = timeline.get("clock_error_ns"), timeline.get("reason")
    out += "" if error is None else f", ±{error:,} ns"
    out += "" if source == asked else f", not by {asked}"
    out += f" ({text.printable(reason)})" if reason else ""
    missed = timeline.get("missed", 0)
    return out + (f"; {missed:,} missed" if missed else "")


def _zones_text(zones: dict[str, Any]) -> str:
    out = "none changed"
    if zones["changed"]:
        epochs = ", ".join(map(str, zones["epochs"][:6])) + (", …" if zones["epochs"][6:] else "")
        noun = "epoch" if len(zones["epochs"]) == 1 else "epochs"
        out = f"{text.count(zones['changed'], 'zone')} written to ({noun} {epochs}); "
        out += "`ttanalyze check --only bounds` names the call"
    return f"{out}; around {_served_text(zones)}"


def _served_text(served: dict[str, Any]) -> str:
    have = f"{served['allocations']:,} of {text.count(served['of_allocations'], 'allocation')}"
    return f"{have}, {text.size(served['bytes'])} of {text.size(served['of_bytes'])}"


def _waits_text(waits: dict[str, Any]) -> str:
    out = f"{text.count(waits['count'], 'call')} had to wait for a capture"
    return out if waits["time_ns"] is None else f"{out}, {text.duration(waits['time_ns'])} in all"


def _bytes(process: dict[str, Any]) -> str:
    read, changed, stored = (process[f"bytes_{k}"] for k in ("read", "changed", "stored"))
    out = f"{text.size(read)} read, {text.size(changed)} changed, {text.size(stored)} stored"
    return f"{out} ({100 * stored / read:.3g}% of the bytes read)" if read else out


def _losses(process: dict[str, Any]) -> str:
    lost = [
        ("event", "", process["events_lost"]),
        ("epoch", " skipped", process["epochs_skipped"]),
        ("epoch", " refused", process["epoch_flags"]["refused"] - process["epochs_skipped"]),
        ("epoch", " dropped", process["epochs_dropped"]),
    ]
    return ", ".join(text.count(n, noun) + how for noun, how, n in lost if n) or "nothing"
