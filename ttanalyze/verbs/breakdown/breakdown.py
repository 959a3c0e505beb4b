"""Adds up what the GPU did in each step of each rank.

The definitions are those of the temporal breakdown of Holistic Trace Analysis: docs/guides/ranks.md
has them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import orjson
import pandas as pd

from ttanalyze.core.intervals import Intervals
from ttanalyze.core.steps import Step, steps_of
from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.activities import COARSE, OWN
from ttanalyze.format.activity_table import ActivityTable
from ttanalyze.format.collectives import is_nccl
from ttanalyze.format.event_kinds import KIND, MOVE
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.output.tables import as_records
from ttanalyze.output.times import as_timedeltas
from ttanalyze.util.parallel import address_of, each
from ttanalyze.util.progress import Progress
from ttanalyze.util.remote import Url

TIMES = (
    *("total", "compute", "communication", "exposed_communication", "memory", "exposed_memory"),
    *("recorder", "idle_host", "idle_waiting"),
)
COLUMNS = ("rank", "process", "device", "step", *TIMES, "idle", "overlap")
WHOLE = "whole run"
FEW = 4  # processes that are not worth processes of their own


@dataclass
class Breakdown:
    """The result of `breakdown`. All times are timedelta64[ns], in JSON nanoseconds.

    Attributes:
        run: The run.
        steps: One row per rank, device and step.
        ranks: One row per rank and device: the sums over its steps.
        notes: What the numbers do not say, a sentence each.

    Columns:
        rank: The rank; missing if no launcher gave one.
        process: The number of the process.
        device: The GPU.
        step: The name of the step; of `ranks`, the number of steps.
        total: From the step's first GPU work to that of the next step.
        compute: The GPU ran kernels other than those of communication.
        communication: It ran kernels of communication.
        exposed_communication: It ran these and computed nothing.
        memory: It copied or set memory.
        exposed_memory: It did this alone.
        recorder: It worked for the recorder alone.
        idle_host: It was idle, and the host had not yet submitted the work that came next.
        idle_waiting: It was idle, and the next work was submitted: it waited for other work, or for
            the launch itself.
        idle: The sum of the last two.
        overlap: The part of communication during which the GPU also computed, in percent; missing
            without communication.
    """

    run: str
    steps: pd.DataFrame
    ranks: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Returns the attributes as a JSON object in one line."""
        tables = {name: as_records(getattr(self, name)) for name in ("ranks", "steps")}
        return orjson.dumps({"run": self.run, **tables, "notes": self.notes}).decode()


def breakdown(
    run: Run, step: str | None = None, progress: Progress = None, cluster: str | None = None
) -> Breakdown:
    """Says where the time of each rank and step went.

    Args:
        run: The run. It needs GPU times: `--timeline cupti`.
        step: A regular expression for the NVTX ranges, or the names of epochs, that are steps.
            Default: names such as "step 12", "iter_3" or "batch#0".
        progress: Called with the finished and the total number of processes.
        cluster: The address of a dask scheduler whose workers look at the processes. Default: that
            of DASK_SCHEDULER_ADDRESS, else this machine.

    Returns:
        The times, for each step and in total.

    Raises:
        Error: No process has GPU times, or none has such a step.
        FormatError: A file does not follow the format.

    Example:
        >>> found = tt.breakdown(tt.open("timed"))
        >>> found.steps[["rank", "step", "idle"]].head(2)
           rank    step                      idle
        0     0  step 0 0 days 00:00:00.000000300
        1     0  step 1 0 days 00:00:00.000000300
    """
    here = not isinstance(run.path, Url)
    several = here and len(run.processes) > FEW
    each_process = each(
        functools.partial(_of_process, step), run.processes, several, progress, address_of(cluster)
    )
    parts = [part for some, _ in each_process for part in some]
    notes = [note for _, note in each_process if note]
    if not parts:
        why = notes[0] if len(run.processes) == 1 else "no process has GPU times of steps"
        raise Error(f"{run.path}: {why}; record with --timeline cupti")
    steps = pd.concat(parts, ignore_index=True)
    notes += _uneven(run, steps)
    return Breakdown(str(run.path), _derived(steps), _derived(_summed(steps)), notes)


def _of_process(step: str | None, process: Process) -> tuple[list[pd.DataFrame], str]:
    """Returns the tables of a process, one for each device, and what they do not say."""
    work = _Work(process)
    if not len(work.begins):
        return [], f"{process.name} has no GPU times"
    found = steps_of(process, step)
    if step is not None and not found:
        return [], f"{process.name} has no step that matches {step}"
    coarse = f"{process.name}: times are those of events around the work" if work.coarse else ""
    devices = layout.distinct(work.device).tolist()
    return [work.steps(device, found) for device in devices], coarse


def _uneven(run: Run, steps: pd.DataFrame) -> list[str]:
    """Says which ranks are missing, and which have fewer steps than others."""
    missing = run.missing_ranks
    out = [f"not recorded: {text.ranks(missing)}"] if missing else []
    counts = steps.groupby("process")["step"].nunique()
    few = [p.name for p in run.processes if counts.get(p.index, counts.max()) < counts.max()]
    if few:
        out.append(f"{', '.join(few[:8])}: fewer steps than the {counts.max()} of others")
    return out


class _Work:
    """The GPU work of a process: begins, ends and more, an item per activity."""

    def __init__(self, process: Process) -> None:
        self.process = process
        table, parts = ActivityTable(), []
        for records in process.activities.by_seq():
            mine = records["kind"] != KIND["sync"]
            records = layout.take(records, mine)
            kernels = table.frame([process], [records], ["kernel"])["kernel"].array
            nccl = np.array([*map(is_nccl, kernels.categories), False])
            parts.append((records, nccl[np.asarray(kernels.codes)]))
        records = layout.joined([part for part, _ in parts]) if parts else _NOTHING
        nccl = np.concatenate([np.empty(0, bool), *(part for _, part in parts)])
        whole = records["kind"] == KIND["graph-launch"]
        inside = layout.distinct(records["seq"][(records["node"] != 0) & ~whole])
        used = ~(whole & np.isin(records["seq"], inside))  # its nodes have times of their own
        records, nccl = layout.take(records, used), nccl[used]
        self.seq = records["seq"]
        self.begins, self.ends = (records[n].astype("i8") for n in ("begin_ns", "end_ns"))
        self.device = np.where(records["device"] == layout.NO_ID, 0, records["device"])
        self.own = records["flags"] & OWN != 0
        self.coarse = bool((records["flags"] & COARSE != 0)[~self.own].any())
        memory = np.isin(records["kind"], MOVE)
        self.nccl = nccl & ~self.own
        self.memory = memory & ~self.own
        self.compute = ~(memory | nccl | self.own)

    def steps(self, device: int, found: list[Step]) -> pd.DataFrame:
        """Returns the table of the steps on a device, without sums of columns."""
        here = (self.device == device) & ~self.own
        names, edges = self._windows(here, found)
        first, last = edges[:-1], edges[1:]
        compute, nccl, memory, own = (
            self._when((self.device == device) & kind)
            for kind in (self.compute, self.nccl, self.memory, self.own)
        )
        either = compute.union(nccl)
        work = either.union(memory)
        busy = work.union(own)
        gaps = busy.gaps()
        host = Intervals(
            gaps.begins, np.clip(self._submitted(device, gaps), gaps.begins, gaps.ends)
        )
        rank = self.process.rank
        sums = {
            "total": last - first,
            "compute": compute.within(first, last),
            "communication": nccl.within(first, last),
            "exposed_communication": either.within(first, last) - compute.within(first, last),
            "memory": memory.within(first, last),
            "exposed_memory": work.within(first, last) - either.within(first, last),
            "recorder": busy.within(first, last) - work.within(first, last),
            "idle_host": host.within(first, last),
        }
        idle = sums["total"] - busy.within(first, last)
        table = pd.DataFrame({"step": names, **sums, "idle_waiting": idle - sums["idle_host"]})
        table.insert(0, "device", device)
        table.insert(0, "process", self.process.index)
        number = pd.array([None if rank is None else rank.rank] * len(table), "Int64")
        table.insert(0, "rank", number)
        return table

    def _when(self, some: Array) -> Intervals:
        return Intervals.of(self.begins[some], self.ends[some])

    def _windows(self, here: Array, found: list[Step]) -> tuple[list[str], Array]:
        """Returns the names of steps with work, and when each begins, with the end of the last."""
        begins, ends, seqs = self.begins[here], self.ends[here], self.seq[here]
        if not len(begins):
            return [], np.zeros(1, "i8")
        names, edges, end = [], [], 0
        for one in found:
            last = len(seqs) if one.last is None else np.searchsorted(seqs, one.last, "right")
            rows = slice(int(np.searchsorted(seqs, one.first)), int(last))
            if rows.start < rows.stop:
                names.append(one.name)
                edges.append(int(begins[rows].min()))
                end = max(end, int(ends[rows].max()))
        if not found:
            return [WHOLE], np.array([begins.min(), ends.max()])
        return names, np.maximum.accumulate(np.array([*edges, end], "i8"))

    @functools.cached_property
    def _calls(self) -> tuple[Array, Array]:
        """The seq of each call, ascending, and when it was made."""
        found = self.process.event_columns("seq", "time_ns")
        return found["seq"], found["time_ns"].astype("i8")

    def _submitted(self, device: int, gaps: Intervals) -> Array:
        """Returns when the host submitted the work after each gap; the gap's begin if unknown."""
        here = np.flatnonzero(self.device == device)
        here = here[np.argsort(self.begins[here], kind="stable")]
        next_ = here[np.searchsorted(self.begins[here], gaps.ends)]
        seqs, times = self._calls
        if not len(seqs):
            return gaps.begins
        at = np.minimum(np.searchsorted(seqs, self.seq[next_]), len(seqs) - 1)
        known = (seqs[at] == self.seq[next_]) & (self.seq[next_] != 0)
        return np.where(known, times[at], gaps.begins)


_NOTHING = np.empty(0, layout.ACTIVITY)


def _summed(steps: pd.DataFrame) -> pd.DataFrame:
    groups = steps.groupby(["process", "device"], sort=False)
    summed = groups.agg({"rank": "first", "step": "count", **dict.fromkeys(TIMES, "sum")})
    return summed.reset_index()


def _derived(table: pd.DataFrame) -> pd.DataFrame:
    """Adds the columns that follow from others, and orders rows and columns."""
    hidden = table["communication"] - table["exposed_communication"]
    table["overlap"] = (100 * hidden / table["communication"]).round(2)
    table["idle"] = table["idle_host"] + table["idle_waiting"]
    table = table.sort_values(["rank", "process", "device"], kind="stable", ignore_index=True)
    return as_timedeltas(table[list(COLUMNS)], (*TIMES, "idle"))
