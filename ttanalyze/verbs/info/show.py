"""A summary of a run as text for a screen."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ttanalyze.core.crash_report import crash_report_text
from ttanalyze.core.traced import totals_text
from ttanalyze.format import statuses
from ttanalyze.format.process_info import Rank
from ttanalyze.format.unread import UNREAD
from ttanalyze.output import text
from ttanalyze.verbs.info.summary import Info, ProcessSummary

SHOWN_PROCESSES = 8
SHOWN_RANKS = 64
SHOWN_WARNINGS = 10


def info_text(summary: Info, colour: bool = False) -> str:
    """Returns a summary for a screen.

    Args:
        summary: The result of `info`.
        colour: Whether to use terminal colours.
    """
    head = f"format {summary.format}, {text.size(summary.bytes_on_disk)} on disk"
    pairs = [("run", f"{text.printable(summary.run)}  ({head})")]
    processes = summary.processes
    if summary.exit and processes:
        pairs.append(("exit", _ending(summary.exit)))
    ranked = [(process.rank, process) for process in processes if process.rank]
    if ranked:
        pairs.append(("ranks", _ranks(ranked, summary.missing_ranks)))
    if len(processes) == 1:
        out = [text.rows([*pairs, *process_rows(processes[0])])]
    else:
        out = [text.rows(pairs)]
        for process in processes[:SHOWN_PROCESSES]:
            rank = f", rank {process.rank.rank}" if process.rank else ""
            head = f"process {process.process}{rank}"
            out += ["", text.coloured(head, "bold", colour)]
            out.append(text.rows(process_rows(process)))
    if len(processes) > SHOWN_PROCESSES:
        out.append(f"… and {len(processes) - SHOWN_PROCESSES} more processes (--json has them all)")
    warnings = summary.warnings
    out.append("")
    for warning in warnings[:SHOWN_WARNINGS]:
        line = f"warning: {text.printable(warning)}"
        out.append(text.coloured(line, "yellow", colour))
    if len(warnings) > SHOWN_WARNINGS:
        out.append(f"… and {len(warnings) - SHOWN_WARNINGS} more warnings")
    if not warnings:
        out.append("no warnings")
    return "\n".join(out)


def _ranks(ranked: list[tuple[Rank, ProcessSummary]], missing: list[int]) -> str:
    """Returns a table of ranks, with those that are missing below."""
    rows = [["rank", "node", "local", "devices", "process", "recording", "epochs", "calls"]]
    shown = sorted(ranked, key=lambda one: one[0].rank)
    for rank, process in shown[:SHOWN_RANKS]:
        local = "" if rank.local_rank is None else str(rank.local_rank)
        devices = rank.visible_devices or ",".join(
            str(device.get("ordinal", "?")) for device in process.devices
        )
        counts = [f"{process.epochs:,}", f"{process.events:,}"]
        place = [str(rank.rank), text.printable(rank.node), local, text.printable(devices)]
        rows.append([*place, str(process.process), process.status, *counts])
    out = text.table(rows, {0, 2, 4, 6, 7})
    if len(shown) > SHOWN_RANKS:
        out += f"\n… and {len(shown) - SHOWN_RANKS} more (--json has them all)"
    if missing:
        world = max(rank.world_size for rank, _ in ranked)
        listed = text.ranges(missing)
        out += f"\nnot recorded: {text.count(len(missing), 'rank')} of {world:,} ({listed})"
    return out


def _ending(ending: dict[str, Any]) -> str:
    if ending.get("signal") is not None:
        return f"killed by signal {ending['signal']}"
    return f"status {ending.get('status')}"


def process_rows(process: ProcessSummary) -> list[tuple[str, str]]:
    pairs = [("program", _program(process))]
    if process.started_ns is not None:
        pairs.append(("time", _times(process)))
    version = process.driver_version
    if version is not None:
        pairs.append(("driver", f"CUDA {version // 1000}.{version % 1000 // 10}"))
    devices = [
        f"{d.get('ordinal')}: {text.printable(d.get('name', '?'))}, {text.size(d.get('memory', 0))}"
        for d in process.devices
    ]
    pairs.append(("device", "\n".join(devices) or "unknown"))
    options = [
        f"{name.removeprefix('TT_').lower().replace('_', '-')}={value}"
        for name, value in process.options.items()
        if name != "TT_OUT" and value not in ("", "0")
    ]
    if options:
        pairs.append(("options", text.printable(" ".join(options))))
    ring = process.ring
    if ring:
        location = text.printable(ring.get("memory", "unknown"))
        size = f"{text.size(ring.get('bytes', 0))} in {location} memory"
        pairs.append(("ring", "none" if location == "none" else size))
    pairs.append(("epochs", _epochs(process)))
    if process.overhead:
        pairs.append(("overhead", _overhead(process, process.overhead)))
    if process.threads:
        pairs.append(("threads", _threads(process)))
    if process.unread:
        pairs.append(("unread", f"{text.count(process.unread, 'region-epoch')}: {UNREAD}"))
    pairs.append(("regions", _regions(process)))
    kernels, modules = text.count(process.kernels, "kernel"), process.modules
    calls = f"{process.events:,} recorded, {kernels}, {text.count(modules, 'module')}"
    annotations = process.annotations
    pairs.append(
        ("calls", f"{calls}, {text.count(annotations, 'annotation')}" if annotations else calls)
    )
    if process.replayable:
        pairs.append(("replay", _again(process.replayable)))
    if process.traced:
        pairs.append(("traced", totals_text(process.traced)))
    if process.timeline:
        pairs.append(("GPU", _gpu_times(process.timeline)))
    if process.capture_waits["count"]:
        pairs.append(("waits", _waits_text(process.capture_waits)))
    if process.late:
        late, instructions = process.late["calls"], process.late["instructions"]
        what = f"{text.count(late, 'call')}, {text.count(instructions, 'instruction')} in kernels"
        pairs.append(("delayed", what))
    if process.zones:
        pairs.append(("zones", _zones_text(process.zones)))
    if process.guards:
        pairs.append(("guards", f"behind {_served_text(process.guards)}"))
    pairs.append(("bytes", _bytes(process)))
    pairs.append(("lost", _losses(process)))
    for report in process.incidents:
        pairs.append(("crash report", crash_report_text(report, process.pid)))
    if process.incidents and process.last_epoch:
        last = process.last_epoch
        pairs.append(("last epoch", f"{last['epoch']} ({last['trigger']}, call {last['seq']})"))
    if process.unknown_calls:
        names = ", ".join(process.unknown_calls[:6])
        more = len(process.unknown_calls) - 6
        names += f" and {more} more" if more > 0 else ""
        pairs.append(("unknown calls", f"{text.printable(names)} (passed through, not recorded)"))
    return pairs


def _regions(process: ProcessSummary) -> str:
    captured, others = process.regions_captured, process.regions_not_captured
    regions = f"{sum(captured.values()):,} captured"
    regions += f" ({text.listing(captured.items())})" if captured else ""
    regions += f", {text.size(process.bytes_captured)}"
    if others:
        regions += f"; {sum(others.values()):,} not captured ({text.listing(others.items())})"
    return regions


def _program(process: ProcessSummary) -> str:
    argv = text.command(process.argv) or "unknown"
    shown = argv if len(argv) <= 200 else argv[:200] + "…"
    reason = text.printable(process.reason or "no reason given")
    endings = {
        "complete": "recording complete",
        "signal": f"recorded until it ended by {reason}",
        "timeout": f"recorded until it was ended by {reason}",
        "failed": f"recording stopped early: {reason}",
        statuses.KILLED: "killed",
        statuses.RUNNING: "killed, or still running",
    }
    ending = endings.get(process.status, text.printable(process.status))
    return f"{shown}\npid {'unknown' if process.pid is None else process.pid}, {ending}"


def _times(process: ProcessSummary) -> str:
    started, ended = process.started_ns, process.ended_ns
    if not started:
        return "not kept (deterministic)"
    try:
        out = datetime.fromtimestamp(started / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return f"{started} ns"
    return out if ended is None else f"{out}, {(ended - started) / 1e9:.3f} s"


def _epochs(process: ProcessSummary) -> str:
    out = f"{process.epochs:,}"
    if process.triggers:
        out += f" ({text.listing(process.triggers.items())})"
    counts = {**process.epoch_flags, "digests only": process.epochs_digests_only}
    flags = [(name, n) for name, n in counts.items() if n]
    return f"{out}; {text.listing(flags)}" if flags else out


def _overhead(process: ProcessSummary, cost: dict[str, Any]) -> str:
    """Returns in words what recording cost the program, and what was skipped for it."""
    parts = [("epochs on the host", "host_ns"), ("epochs on the GPU", "gpu_ns")]
    parts.append(("calls", "events_ns"))
    spent = sum(cost.get(key, 0) for _, key in parts)
    alone = max(cost.get("elapsed_ns", 0) - spent, 1)
    out = f"{100 * spent / alone:.2f}%, limit {cost.get('limit', 0) / 1000:g}%"
    allowance = process.options.get("TT_OVERHEAD_ALLOWANCE", "0")
    if allowance != "0":
        out += f" once that is {allowance}"
    shown = ", ".join(f"{name} {text.duration(cost.get(key, 0))}" for name, key in parts)
    skipped = process.epochs_skipped
    return f"{out} ({shown}); {skipped:,} of {text.count(process.epochs, 'epoch')} skipped"


def _threads(process: ProcessSummary) -> str:
    """Returns the processor time of the recorder's threads, and where they may run."""
    threads, options = process.threads, process.options
    shown = [
        (f"{thread['count']} " if thread.get("count", 1) > 1 else "")
        + f"{text.printable(str(thread.get('name', '?')))} {text.duration(thread.get('cpu_ns', 0))}"
        for thread in threads
    ]
    total = sum(thread.get("cpu_ns", 0) for thread in threads)
    out = f"{text.duration(total)} of processor time"
    if process.started_ns is not None and process.ended_ns is not None:
        took = max(process.ended_ns - process.started_ns, 1)
        out += f", {100 * total / took:.2g}% of a core"
    if options.get("TT_THREAD_CORES"):
        out += f", on cores {text.printable(options['TT_THREAD_CORES'])}"
    if options.get("TT_THREAD_PRIORITY") == "idle":
        out += ", only when these are idle" if options.get("TT_THREAD_CORES") else ", on idle cores"
    return f"{out}: {', '.join(shown)}"


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


def _bytes(process: ProcessSummary) -> str:
    read, changed, stored = (getattr(process, f"bytes_{k}") for k in ("read", "changed", "stored"))
    out = f"{text.size(read)} read, {text.size(changed)} changed, {text.size(stored)} stored"
    return f"{out} ({100 * stored / read:.3g}% of the bytes read)" if read else out


def _losses(process: ProcessSummary) -> str:
    lost = [
        ("event", "", process.events_lost),
        ("epoch", " skipped", process.epochs_skipped),
        ("epoch", " refused", process.epoch_flags["refused"] - process.epochs_skipped),
        ("epoch", " dropped", process.epochs_dropped),
    ]
    return ", ".join(text.count(n, noun) + how for noun, how, n in lost if n) or "nothing"
