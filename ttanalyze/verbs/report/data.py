"""The data of a report page: tables of numpy columns of bounded size.

If a table would exceed its limit, rows that are adjacent in time are merged. The scripts of the
page bin what is in view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.code import demangle
from ttanalyze.core import stacks
from ttanalyze.core.allocating_calls import site_column
from ttanalyze.format import layout
from ttanalyze.format.columns import texts_of
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.util.progress import Progress, counted
from ttanalyze.verbs.info import ProcessSummary, info
from ttanalyze.verbs.info.show import process_rows
from ttanalyze.verbs.report import flames
from ttanalyze.verbs.report.changes import Cells, changes
from ttanalyze.verbs.report.timeline import Timeline, timeline
from ttanalyze.verbs.report.usage import usage

PROCESSES = 8  # shown of a run
KERNELS = 500  # in the table
CALLERS = 8  # of a kernel


@dataclass(frozen=True)
class Limits:
    """The maximal number of rows of each table of one process.

    Attributes:
        marks: Calls on the timeline.
        cells: Cells of each heat map.
        epochs, regions, usage: Rows of these tables.
        shown: Regions in the heat map.
    """

    marks: int = 1 << 20
    cells: int = 1 << 20
    epochs: int = 1 << 17
    regions: int = 1 << 14
    usage: int = 1 << 16
    shown: int = 1 << 13

    def divided(self, by: int) -> Limits:
        return Limits(*(max(1, n // by) for n in vars(self).values()))


def document(run: Run, limits: Limits | None = None, progress: Progress = None) -> Any:
    """Returns the data of a report page.

    Args:
        run: The run.
        limits: The limits of the tables.
        progress: Called with the finished and the total number of epochs.

    Returns:
        An object with the lists "processes" (the data of each shown process) and the number
        "hidden" (processes that are not shown).

    Raises:
        FormatError: A file does not follow the format.
    """
    overview = info(run)
    shown = sorted(run.processes, key=lambda p: -len(p.epochs))[:PROCESSES]
    shown.sort(key=lambda p: p.index)
    limits = (limits or Limits()).divided(max(1, len(shown)))
    advance = counted(progress, sum(len(p.epochs) for p in shown))

    summaries = {p.process: p for p in overview.processes}
    return {
        "processes": [_process(p, summaries[p.index], limits, advance) for p in shown],
        "hidden": len(run.processes) - len(shown),
    }


@dataclass(frozen=True)
class Clock:
    """Converts sequence numbers to times that start at 0 and never decrease.

    Attributes:
        known: An array of two rows: ascending sequence numbers and their times.
        unit: "ns", or "calls" if the run has no times.
        zero: The time that is 0, in nanoseconds.
    """

    known: Array
    unit: str
    zero: int = 0

    def __call__(self, seqs: Array) -> Array:
        if not self.known.shape[1]:
            return np.zeros(len(seqs))
        return np.floor(np.interp(seqs.astype("f8"), self.known[0], self.known[1]))


def clock_of(process: Process, events: Array) -> Clock:
    """Returns the clock of a process, from all records that have a time."""
    births = process.regions.birth
    tables = (events, process.epochs, births)
    seqs = np.concatenate([t["seq"] for t in tables])
    times = np.concatenate([t["time_ns"] for t in tables])
    timed = times > 0
    if not timed.any() or times[timed].min() == times[timed].max():
        last = int(seqs.max()) if len(seqs) else 0
        return Clock(np.array([[0.0, last], [0.0, last]]), "calls")
    seqs, times = seqs[timed], times[timed]
    order = np.argsort(seqs, kind="stable")
    zero = int(times.min())
    relative = np.maximum.accumulate((times[order] - np.uint64(zero)).astype("f8"))
    return Clock(np.stack([seqs[order].astype("f8"), relative]), "ns", zero)


def gpu_times(process: Process, seqs: Array, times: Array, clock: Clock) -> tuple[Array, Array]:
    """Returns when the GPU began the work of each call, or the host its wait, and how long that
    took. Where this was not recorded: the time of the call, and 0.
    """
    times, lengths = times.copy(), np.zeros(len(times))
    if clock.unit != "ns" or not process.activities.there:
        return times, lengths
    for waits in (False, True):
        begins, ends, known = process.activities.spans(seqs, waits)
        times[known] = np.maximum(begins[known] - clock.zero, 0)
        lengths[known] = (ends - begins)[known]
    return times, lengths


class Texts:
    """Texts with a number for each; 0 means none."""

    def __init__(self) -> None:
        self.known: dict[str | None, int] = {None: 0}

    def numbers(self, values: Array, text_of: Callable[[int], str | None]) -> Array:
        """Returns the number of the text of each value."""
        different, which = np.unique(values, return_inverse=True)
        codes = [self._number(text_of(value)) for value in different.tolist()]
        return np.array(codes, "u4")[which] if len(codes) else np.empty(0, "u4")

    def _number(self, value: str | None) -> int:
        value = None if value is None else text.printable(value)
        return self.known.setdefault(value, len(self.known))

    def listed(self) -> list[str]:
        return [value or "" for value in self.known]


def _process(
    process: Process, summary: ProcessSummary, limits: Limits, advance: Callable[[int], None]
) -> dict[str, Any]:
    events = process.events
    clock = clock_of(process, events)
    names = _kernel_names(process)
    times = clock(events["seq"])
    short = {i: name for i, (_, name) in names.items()}
    when, lengths = gpu_times(process, events["seq"], times, clock)
    marks = timeline(events, times, when, lengths, short, limits.marks)
    changed = changes(process, limits.shown, limits.cells, advance)
    rows, regions = _regions(process, clock, changed, limits.regions)
    used = usage(process.regions, clock, limits.usage)
    ends = [float((lane.time + lane.length).max()) for lane in marks.lanes if len(lane.time)]
    span = max([*clock.known[1][-1:].tolist(), *ends, 0.0])
    return {
        "process": process.index,
        "summary": [list(pair) for pair in process_rows(summary)],
        "clock": {"unit": clock.unit, "span": span},
        "timeline": {
            "lanes": [vars(lane) for lane in marks.lanes],
            "names": marks.names,
            "kernels": len(marks.kernels),
            "bin": marks.bin,
            "timed": bool(lengths.any()),
            "left_out": marks.left_out,
        },
        "usage": vars(used),
        "epochs": _epochs(process, clock, changed.per_epoch, limits.epochs),
        "changes": {
            "rows": np.searchsorted(rows, changed.shown),
            "regions": _cells(changed.regions),
            "blocks": _cells(changed.blocks),
            "first": changed.first,
            "merged": changed.merged,
        },
        "regions": regions,
        "kernels": _kernels(process, events, times, marks, names),
        "flames": _flames(process, events, short, used.peak_seq),
    }


def _cells(cells: Cells) -> dict[str, Any]:
    """Returns cells with ascending keys row * width + column."""
    width = int(cells.column.max()) + 1 if len(cells) else 1
    key = cells.row.astype("u8") * np.uint64(width) + cells.column
    return {"key": key, "count": cells.count, "width": width, "shift": cells.shift}


def _epochs(process: Process, clock: Clock, changed: Array, limit: int) -> dict[str, Any]:
    """Returns rows of `step` epochs each: sums of numbers, and other values of the first one."""
    epochs, texts = process.epochs, Texts()
    step = 1
    while len(epochs) > step * limit:
        step *= 2
    starts = np.arange(0, len(epochs), step)
    first = epochs[starts]

    def summed(values: Array) -> Array:
        return np.add.reduceat(values.astype("f8"), starts) if len(starts) else np.empty(0)

    flags = np.bitwise_or.reduceat(epochs["flags"], starts) if len(starts) else epochs["flags"]
    return {
        "count": len(epochs),
        "step": step,
        "time": clock(first["seq"]),
        "trigger": first["trigger"],
        "flags": flags,
        "label": texts.numbers(first["label"], process.strings.get),
        "context": first["context"],
        "seq": first["seq"],
        "changed": summed(changed),
        "regions": first["regions"],
        "bytes_read": summed(epochs["bytes_read"]),
        "bytes_stored": summed(epochs["bytes_stored"]),
        "texts": texts.listed(),
        "triggers": layout.TRIGGERS,
        "flag_names": dict(layout.EPOCH_FLAGS),
    }


def _regions(
    process: Process, clock: Clock, changed: Any, limit: int
) -> tuple[Array, dict[str, Any]]:
    """Returns the listed rows of process.regions, ascending, and their columns."""
    regions, texts = process.regions, Texts()
    rows = np.arange(len(regions))
    if len(regions) > limit:
        size = regions.size.astype("f8")
        size[changed.shown] = np.inf
        rows = np.sort(np.argsort(-size, kind="stable")[: max(limit, len(changed.shown))])
    birth = regions.birth[rows]
    calls = texts_of([process], [regions.birth["call"]], Process.call)
    sites = site_column([process], pd.Series(calls))
    total = len(process.epochs)
    died = np.where(regions.died[rows] == layout.NO_EPOCH, total + 1, regions.died[rows])
    return rows, {
        "count": len(regions),
        "id": birth["id"],
        "kind": birth["kind"],
        "kinds": layout.REGION_KINDS,
        "label": texts.numbers(regions.label[rows], process.strings.get),
        "size": birth["size"].astype("f8"),
        "base": [f"{base:#x}" for base in birth["base"].tolist()],
        "site": texts.numbers(sites.codes[rows], lambda code: sites.categories[code]),
        "seq": birth["seq"],
        "time": clock(birth["seq"]),
        "captured": regions.flags[rows] & layout.CAPTURED,
        "born": np.minimum(birth["epoch"], total),
        "died": died,
        "epochs": changed.epochs[rows],
        "changed": changed.changed[rows],
        "earliest": changed.earliest[rows],
        "latest": changed.latest[rows],
        "texts": texts.listed(),
    }


def _kernel_names(process: Process) -> dict[int, tuple[str, str]]:
    """Returns the full and the short demangled name by function id."""
    mangled = [process.strings.get(int(name)) or "" for name in process.functions["name"]]
    whole = [text.printable(name) for name in demangle.demangle(mangled)]
    ids = process.functions["id"].tolist()
    return {i: (name, demangle.short(name)) for i, name in zip(ids, whole, strict=True)}


def _kernels(
    process: Process,
    events: Array,
    times: Array,
    marks: Timeline,
    names: dict[int, tuple[str, str]],
) -> dict[str, Any]:
    """Returns the kernels with the most launches, with sizes, times and streams."""
    launch = (events["kind"] == KIND["launch"]) & (events["flags"] & 1 == 0)
    of, times = events["id"][launch], times[launch]
    begins, ends, known = process.activities.spans(events["seq"][launch])
    took = np.where(known, ends - begins, 0)
    order = np.argsort(of, kind="stable")
    ids, starts, counts = np.unique(of[order], return_index=True, return_counts=True)
    events = events[launch]
    callers = stacks.StackTexts(stacks.caller)
    listed = []
    for function in marks.kernels[:KERNELS]:
        i = int(np.searchsorted(ids, function))
        rows = order[starts[i] : starts[i] + counts[i]]
        gpu_time = float(took[rows].sum()) if known[rows].any() else None
        described = _kernel(process, function, names, events[rows], times[rows])
        called = _callers(process, callers, events["stack"][rows])
        listed.append({**described, "gpu_time": gpu_time, "callers": called})
    return {"count": len(ids), "launches": int(launch.sum()), "listed": listed}


def _kernel(
    process: Process,
    function: int,
    names: dict[int, tuple[str, str]],
    launches: Array,
    times: Array,
) -> dict[str, Any]:
    at = int(np.searchsorted(process.functions["id"], function))
    known = at < len(process.functions) and int(process.functions["id"][at]) == function
    whole, short = names.get(function, (f"function {function}",) * 2)
    shape = np.ascontiguousarray(np.concatenate([launches["grid"], launches["block"]], axis=1))
    mixed = _mixed(shape)
    _, first, counts = np.unique(mixed, return_index=True, return_counts=True)
    usual = shape[first[counts.argmax()]].tolist()
    return {
        "name": whole,
        "short": short,
        "launches": len(launches),
        "grid": usual[:3],
        "block": usual[3:],
        "shapes": len(counts),
        "first": float(times[0]),
        "last": float(times[-1]),
        "streams": len(np.unique(launches["stream"])),
        "registers": int(process.functions["registers"][at]) if known else None,
        "shared": int(process.functions["shared"][at]) if known else None,
    }


def _flames(process: Process, events: Array, names: dict[int, str], peak: int) -> dict[str, Any]:
    launch = (events["kind"] == KIND["launch"]) & (events["flags"] & 1 == 0)
    launches = events[launch]
    begins, ends, known = process.activities.spans(launches["seq"])
    took = np.where(known, ends - begins, 0)
    return {
        "stacks": len(process.frames) > 0,
        "work": flames.work(process, launches, took, names),
        "memory": flames.memory(process, peak),
    }


def _callers(process: Process, texts: stacks.StackTexts, numbers: Array) -> list[tuple[str, int]]:
    """Returns the callers with the most launches, and how many. [] if no stacks were recorded."""
    found: dict[str, int] = {}
    for stack, count in zip(*np.unique(numbers, return_counts=True), strict=True):
        name = texts.get(process, int(stack))
        if name is not None:
            found[text.printable(name)] = found.get(text.printable(name), 0) + int(count)
    return sorted(found.items(), key=lambda item: -item[1])[:CALLERS]


def _mixed(shapes: Array) -> Array:
    """Returns a number for each row of six, equal for equal rows."""
    out = np.zeros(len(shapes), "u8")
    for column in shapes.T:
        out = (out ^ column) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(29)
    return out
