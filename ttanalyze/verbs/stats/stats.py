"""The summaries. Rows with the most time come first; without recorded times, those with the highest
count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from ttanalyze.code import demangle
from ttanalyze.core.allocations import allocation_sites
from ttanalyze.core.graph_kernels import CAPTURED, graph_launches_of_kernels
from ttanalyze.errors import Error
from ttanalyze.format.event_kinds import KIND, LAUNCH
from ttanalyze.format.layout import NO_ID
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.output.tables import join
from ttanalyze.output.times import as_timedeltas
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.query import Query
from ttanalyze.verbs.query.execute import result_pieces

UNTIMED = "no GPU times of them were recorded (record --timeline cupti): ranked by {}"
TIMES = ("time", "mean", "min", "max", "wait_time", "wait_time_max", "gpu_time")
EXECUTED = f"(flags & {CAPTURED}) == 0"
GPU = {
    "gpu_time_share": "share",
    "gpu_time_sum": "time",
    "gpu_time_mean": "mean",
    "gpu_time_min": "min",
    "gpu_time_max": "max",
}


@dataclass(frozen=True)
class Summary:
    """One summary of a run.

    Attributes:
        name: A name of SUMMARIES.
        title: What it shows.
        table: The rows as a DataFrame. Times are timedelta64[ns], `largest` is bytes, `share`
            percent.
        notes: What the numbers do not say, a sentence each.
    """

    name: str
    title: str
    table: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def stats(
    run: Run,
    names: Sequence[str] = (),
    process: int | None = None,
    progress: Progress = None,
) -> list[Summary]:
    """Summarises a run.

    Args:
        run: The run.
        names: The wanted summaries: "kernels", "copies", "calls", "memory", "ranges". Default: all.
        process: The number of the process. Default: all processes together.
        progress: Called with the finished and the total number of rows.

    Returns:
        The summaries. Columns with GPU times are left out if none were recorded; a note says so.

    Raises:
        Error: There is no such summary or process.
        FormatError: A file does not follow the format.

    Example:
        >>> kernels = tt.stats(tt.open("run1"), ["kernels"])[0]
        >>> kernels.table[["launches", "kernel"]]
           launches kernel
        0         2  scale

    Example:
        >>> [summary.name for summary in tt.stats.stats(tt.open("run1"), ["kernels", "copies"])]
        ['kernels', 'copies']
    """
    for name in names:
        if name not in SUMMARIES:
            raise Error(f"{name}: no such summary; there are: {', '.join(SUMMARIES)}")
    processes = run.processes if process is None else [run.process(process)]
    chosen = _Chosen(run, processes, process, progress)
    found = [SUMMARIES[name](chosen) for name in names or SUMMARIES]
    return [replace(one, table=as_timedeltas(one.table, TIMES)) for one in found]


@dataclass(frozen=True)
class _Chosen:
    """The chosen processes of a run. number: None if all are."""

    run: Run
    processes: list[Process]
    number: int | None
    progress: Progress

    def ask(self, table: str, condition: str, **more: Sequence[str]) -> pd.DataFrame:
        """Returns counts and other figures of the rows that fulfil a condition."""
        where = [condition] if self.number is None else [condition, f"process == {self.number}"]
        wanted = Query(table, filter=where, count=True, **more)  # type: ignore[arg-type]
        return join(list(result_pieces(self.run, wanted, self.progress)))


def _timed(table: pd.DataFrame, key: str, columns: dict[str, str]) -> pd.DataFrame:
    """Returns the table with other names of columns and the most time first, without columns of
    times if there are none.
    """
    if not table[key].fillna(0).any():
        table = table.drop(columns=[c for c in columns if c in GPU])
    else:
        table = table.sort_values(key, ascending=False, kind="stable", ignore_index=True)
    kept = {old: new for old, new in columns.items() if old in table}
    return table[list(kept)].rename(columns=kept)


def _kernels(chosen: _Chosen) -> Summary:
    figures = {f: ["gpu_time"] for f in ("sum", "share", "mean", "min", "max")}
    table = chosen.ask(
        "activities", 'kind == "launch" and not own', group_by=["demangled"], **figures
    )
    calls, in_graphs, conditional = _launch_counts(chosen.processes)
    launches = sum(calls.values())
    title = "Kernels"
    if not len(table):
        counts = pd.DataFrame(
            {
                "launches": [calls.get(k, 0) for k in {**calls, **in_graphs}],
                "in_graphs": [in_graphs.get(k, 0) for k in {**calls, **in_graphs}],
                "kernel": [*{**calls, **in_graphs}],
            }
        )
        order = (-(counts["launches"] + counts["in_graphs"])).argsort(kind="stable")
        notes = [UNTIMED.format("count")] if launches or in_graphs else []
        if conditional:
            notes.append("kernels of conditional nodes count once for each launch of the graph")
        counts = counts.iloc[order].reset_index(drop=True)
        return Summary("kernels", f"{title} by launches", counts, notes)
    table = _timed(table, "gpu_time_sum", {**GPU, "count": "launches", "demangled": "kernel"})
    missing = launches + sum(in_graphs.values()) - int(table["launches"].sum())
    notes = []
    if missing > 0 and not conditional:
        notes.append(
            f"{text.count(missing, 'launch', 'launches')} without a recorded time: left out"
        )
    elif missing:
        notes.append("some launches have no recorded time, or are of conditional nodes: left out")
    coarse = chosen.ask("activities", 'kind == "launch" and coarse')
    if int(coarse["count"].iloc[0]):
        notes.append("some times are upper bounds, measured by events around the work")
    return Summary("kernels", f"{title} by GPU time", table, notes)


def _launch_counts(processes: Sequence[Process]) -> tuple[dict[str, int], dict[str, int], bool]:
    """Returns how often each kernel was launched by a call and by graphs, and whether conditional
    nodes decided that.
    """
    calls: dict[str, int] = {}
    in_graphs: dict[str, int] = {}
    conditional = False
    for process in processes:
        found: dict[int, int] = {}
        for events in process.event_pieces():
            ran = (events["kind"] == KIND["launch"]) & (events["flags"] & CAPTURED == 0)
            ran &= events["result"] == 0
            for number, count in zip(
                *np.unique(events["id"][ran], return_counts=True), strict=True
            ):
                found[int(number)] = found.get(int(number), 0) + int(count)
        of_graphs, maybe = graph_launches_of_kernels(process)
        conditional |= maybe
        for counts, into in ((found, calls), (of_graphs, in_graphs)):
            names = [process.kernel(number) for number in counts]
            known = [name or f"function {n}" for name, n in zip(names, counts, strict=True)]
            for name, count in zip(demangle.demangle(known), counts.values(), strict=True):
                into[name] = into.get(name, 0) + count
    return calls, in_graphs, conditional


def _copies(chosen: _Chosen) -> Summary:
    figures = {f: ["gpu_time"] for f in ("share", "mean", "min", "max")}
    figures["sum"] = ["bytes", "gpu_time"]
    figures["mean"], figures["max"] = ["gpu_time", "bytes"], ["gpu_time", "bytes"]
    condition = f'(kind == "copy" or kind == "set") and {EXECUTED}'
    table = chosen.ask("events", condition, group_by=["kind", "direction"], **figures)
    in_graphs = chosen.ask(
        "activities",
        '(kind == "copy" or kind == "set") and not own and node.notna()',
        group_by=["kind"],
        **figures,
    )
    parts = [table.assign(what=_what(table)), in_graphs.assign(what=_what(in_graphs))]
    table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    total = table["gpu_time_sum"].sum()
    if total:
        table["gpu_time_share"] = 100 * table["gpu_time_sum"].astype("Float64") / total
    names = {
        **GPU,
        "count": "count",
        "bytes_sum": "bytes",
        "bytes_mean": "bytes_mean",
        "bytes_max": "bytes_max",
        "what": "direction",
    }
    table = table.sort_values("bytes_sum", ascending=False, kind="stable", ignore_index=True)
    table = _timed(table, "gpu_time_sum", names)
    notes = []
    if not len(in_graphs) and any(len(process.graphs) for process in chosen.processes):
        notes.append("copies and sets in graphs are not counted: they have no times")
    if "time" in table:
        return Summary("copies", "Copies and sets by GPU time", table, notes)
    if len(table):
        notes.insert(0, UNTIMED.format("bytes"))
    return Summary("copies", "Copies and sets by bytes", table, notes)


def _what(table: pd.DataFrame) -> list[str]:
    kinds = table["kind"].astype("object")
    if "direction" not in table:
        return [f"{kind} in graphs" for kind in kinds]
    ways = table["direction"].astype("object").where(table["direction"].notna(), None)
    return [kind if way is None else way for kind, way in zip(kinds, ways, strict=True)]


def _calls(chosen: _Chosen) -> Summary:
    table = chosen.ask(
        "events", "call.notna()", group_by=["call"], sum=["wait_time"], max=["wait_time"]
    )
    failed = chosen.ask("events", "call.notna() and result != 0", group_by=["call"])
    errors = dict(zip(failed["call"].astype("object"), failed["count"], strict=True))
    table["wait_time_sum"] = table["wait_time_sum"].where(table["wait_time_max"].notna())
    table["failed"] = [errors.get(call, 0) for call in table["call"].astype("object")]
    names = {"count": "count", "failed": "failed", "call": "call"}
    notes = ["the duration of calls is not recorded"] if len(table) else []
    if not table["wait_time_sum"].fillna(0).any():
        return Summary("calls", "Driver calls by count", table[list(names)], notes)
    table = table.sort_values("wait_time_sum", ascending=False, kind="stable", ignore_index=True)
    names = {"wait_time_sum": "wait_time", "wait_time_max": "wait_time_max", **names}
    notes.append("wait_time is the time that the host waited for the GPU in the call")
    shown = table[list(names)].rename(columns=names)
    return Summary("calls", "Driver calls by time that the host waited", shown, notes)


def _memory(chosen: _Chosen) -> Summary:
    parts = [allocation_sites(process) for process in chosen.processes]
    empty = ["site", "kind", "allocations", "bytes", "largest", "freed", "alive", "alive_bytes"]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=empty)
    for name in ("site", "kind"):
        table[name] = table[name].astype("object")
    if len(parts) > 1:
        sums = dict.fromkeys(table.columns[2:], "sum") | {"largest": "max"}
        table = table.groupby(["site", "kind"], sort=False, as_index=False).agg(sums)
        table = table.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)
    order = [*table.columns[2:], "kind", "site"]
    return Summary("memory", "Memory by allocation site", table[order])


def _ranges(chosen: _Chosen) -> Summary:
    table = chosen.ask(
        "ranges",
        'kind != "mark"',
        group_by=["annotation"],
        **{f: ["time"] for f in ("sum", "mean", "min", "max")},
    )
    launches: dict[str, int] = {}
    times: dict[str, int] = {}
    for process in chosen.processes if len(table) else ():
        _work_in_ranges(process, launches, times)
    texts = table["annotation"].astype("object").tolist()
    table["launches"] = [launches.get(name, 0) for name in texts]
    names = {"time_sum": "time", "time_mean": "mean", "time_min": "min", "time_max": "max"}
    names |= {"count": "count", "launches": "launches"}
    notes = ["time is that of the host"] if len(table) else []
    if times:
        table["gpu_time"] = [times.get(name, 0) for name in texts]
        names["gpu_time"] = "gpu_time"
        notes.append("gpu_time is that of work which the thread submitted within the range")
    table = table.sort_values("time_sum", ascending=False, kind="stable", ignore_index=True)
    names["annotation"] = "range"
    return Summary("ranges", "NVTX ranges by time", table[list(names)].rename(columns=names), notes)


def _work_in_ranges(process: Process, launches: dict[str, int], times: dict[str, int]) -> None:
    """Adds launches, and GPU time of all work, of each message around them."""
    said = process.annotations
    for events in process.event_pieces():
        kinds = events["kind"]
        launch = np.isin(kinds, LAUNCH)
        launch &= events["flags"] & CAPTURED == 0
        begins, ends, known = process.activities.spans(events["seq"])
        took = np.where(known, ends - begins, 0)
        paths = said.paths_at(events["thread"], events["seq"])
        some = (paths != NO_ID) & (launch | known)
        different, which = np.unique(paths[some], return_inverse=True)
        counted = np.bincount(which, launch[some], len(different))
        summed = np.bincount(which, took[some], len(different))
        timed = np.bincount(which, known[some], len(different))
        for path, count, time, seen in zip(different.tolist(), counted, summed, timed, strict=True):
            for message in set(said.messages(path)):
                launches[message] = launches.get(message, 0) + int(count)
                if seen:
                    times[message] = times.get(message, 0) + int(time)


SUMMARIES: dict[str, Callable[[_Chosen], Summary]] = {
    "kernels": _kernels,
    "copies": _copies,
    "calls": _calls,
    "memory": _memory,
    "ranges": _ranges,
}
