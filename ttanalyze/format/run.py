"""Run: a run directory as a whole, with its tables, memory contents and warnings."""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ttanalyze.errors import Error, FormatError, UnreadWarning, system_errors
from ttanalyze.format import contents, layout, manifest, selection
from ttanalyze.format.files import check_version, expect, expect_list, read_json
from ttanalyze.format.instruction_traces import TraceRecords
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.process_info import ProcessInfo, check_process, missing_ranks
from ttanalyze.format.unread import UNREAD
from ttanalyze.options import unmet
from ttanalyze.output import text
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress, counted
from ttanalyze.util.remote import Url, forget, location, names_in, place

if TYPE_CHECKING:
    import pandas as pd

    from ttanalyze import plots

FORMAT = "ttanalyze-run"
PUSHED = "push.json"  # beside the files of a run that `push` uploaded
AT_ONCE = 64  # processes that are opened with their run


@checked
def open_run(path: str | os.PathLike[str], ranks: Collection[int] | None = None) -> Run:
    """Opens a run directory.

    Reads the headers, the JSON files and epochs.bin, however large the run is. All else is read
    when it is needed; of more than 64 processes, and of a run elsewhere, these files too. A run may
    be opened while it is recorded; it then has the epochs that are committed at this moment.

    Args:
        path: The run directory, or its URL: s3://, gs://, https:// or file://.
        ranks: Open only the processes with these ranks. Default: all processes.

    Returns:
        The run.

    Raises:
        FormatError: A file does not follow the format. The message names the file and the offset.
        Error: `path` is not a run directory or cannot be read, or it lacks one of `ranks`.

    Example:
        >>> run = tt.open("run1")
        >>> run
        <Run 'run1': 1 process, 2 epochs>
        >>> run.epochs[["epoch", "trigger", "bytes_changed"]]
           epoch trigger  bytes_changed
        0      0    sync           4096
        1      1    sync           4096
        >>> run.regions[["region", "label", "size"]]
           region    label  size
        0       0  weights  4096
    """
    return Run(place(path), ranks)


def _table(name: str, row: str) -> functools.cached_property[pd.DataFrame]:
    """Returns a property that makes a table of all processes with the function of that name."""

    def made(run: Run) -> pd.DataFrame:
        from ttanalyze.format import collective_table, graph_tables, tables, trace_tables
        from ttanalyze.output.times import as_timedeltas

        others = {
            "collectives": collective_table,
            "graphs": graph_tables,
            "traced": trace_tables,
        }
        return as_timedeltas(getattr(others.get(name, tables), name)(run.processes))

    made.__doc__ = f"One row per {row}: the table `{name}`."
    return functools.cached_property(made)


class Run:
    """A recorded run. Use `tt.open` to open one.

    The tables are pandas DataFrames. Each is read at its first use and then kept. Integer columns
    have fixed-width dtypes, and texts are categories. Times are timedelta64[ns], except those in
    columns whose name ends in `_ns`: these are whole nanoseconds. The page Tables describes the
    columns.

    Args:
        path: The run directory.
        ranks: The ranks of the processes to open. Default: all processes.

    Attributes:
        path: The run directory.
        info: The contents of run.json, {} if the run has none.
        ranks: The ranks that were asked for, None for all.
        processes: The recorded processes, by number.

    Raises:
        FormatError: A file does not follow the format.
        Error: `path` is not a run directory or cannot be read, or it lacks one of `ranks`.
    """

    def __init__(self, path: Path, ranks: Collection[int] | None = None) -> None:
        self.path = path
        self.ranks = None if ranks is None else frozenset(ranks)
        forget(path)
        with system_errors(path):
            names = names_in(path)
        indices = sorted(int(n[1:]) for n in names if re.fullmatch(r"p(0|[1-9]\d{0,6})", n))
        if "run.json" not in names and not indices:
            raise Error(f"{path}: not a run directory: it has no run.json")
        self._names = names
        self.info = self._read_info() if "run.json" in names else {}
        if ranks is None:
            self._check_listed()
        chosen = indices if ranks is None else self._with_ranks(indices, ranks)
        self.processes = [Process(path / f"p{i}", i) for i in chosen]
        soon = len(chosen) <= AT_ONCE and not isinstance(path, Url)
        for process in self.processes if soon else ():
            process.open()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles paths alone: whoever gets it opens the files there."""
        place = location(self.path)
        return _reopened, (place, self._names, self.info, self.ranks, self.processes)

    def part(self, processes: list[Process]) -> Run:
        """Returns the run with only some of its processes.

        Args:
            processes: The processes, of this run.
        """
        return _reopened(str(self.path), self._names, self.info, self.ranks, processes)

    def __repr__(self) -> str:
        epochs = sum(len(p.epochs) for p in self.processes)
        processes = text.count(len(self.processes), "process", "processes")
        return f"<Run {str(self.path)!r}: {processes}, {text.count(epochs, 'epoch')}>"

    def _repr_html_(self) -> str:
        """Returns what notebooks show."""
        import ttanalyze

        return ttanalyze.notebook.html(self)

    @functools.cached_property
    def plot(self) -> plots.Plots:
        """The plots of the run, for notebooks."""
        import ttanalyze

        return ttanalyze.plots.Plots(self)

    def _read_info(self) -> dict[str, Any]:
        path = self.path / "run.json"
        info = read_json(path)
        if info.get("format") != FORMAT:
            raise FormatError(path, "format", f"expected {FORMAT!r}")
        check_version(path, "version", info.get("version"))
        expect(path, "", info, created_ns=int, exit=dict, replay=dict)
        expect(path, "exit.", info.get("exit", {}), status=int, signal=(int, None))
        replay = info.get("replay", {})
        expect(path, "replay.", replay, run=str, process=int, launch=int, moved=dict)
        expect_list(path, "", info, "processes", dict)
        for i, process in enumerate(info.get("processes", [])):
            check_process(path, f"processes[{i}].", process)
        return info

    def _check_listed(self) -> None:
        """Checks that each process in run.json has a process.json."""
        for process in self.info.get("processes", []):
            name = f"p{process.get('process', 0)}"
            path = self.path / name / "process.json"
            if not path.exists():
                told = (
                    f"missing, and run.json names the process: copy {name} from where it was made"
                )
                ranks = ", or choose ranks" if process.get("rank") else ""
                raise FormatError(path, 0, told + ranks)

    @functools.cached_property
    def over(self) -> bool:
        """Whether its program has ended, also if it was killed. `record` or `push` told so."""
        if "exit" in self.info and "job.json" not in self._names:
            return True
        pushed = PUSHED in self._names and read_json(self.path / PUSHED)
        return bool(pushed and pushed.get("ended"))

    @property
    def missing_ranks(self) -> list[int]:
        """The ranks of the job that no process has, ascending. Of some ranks alone: none."""
        alone = self.ranks is not None
        return [] if alone else missing_ranks(process.rank for process in self.processes)

    def _with_ranks(self, indices: list[int], ranks: Collection[int]) -> list[int]:
        """Returns the numbers of the processes with these ranks, in the order of the ranks."""
        told = {i: ProcessInfo(self.path / f"p{i}").rank for i in indices}
        have = {i: rank.rank for i, rank in told.items() if rank is not None}
        if not have:
            numbers = text.ranges(sorted({*ranks}))
            raise Error(
                f"{self.path}: no rank {numbers}: no launcher gave ranks; see `ttanalyze info`"
            )
        missing = sorted({*ranks} - {*have.values()})
        if missing:
            there = text.ranges(sorted({*have.values()}))
            raise Error(f"{self.path}: no rank {text.ranges(missing)} (there are: {there})")
        return sorted((i for i in have if have[i] in ranks), key=lambda i: (have[i], i))

    @checked
    def process(self, index: int = 0, rank: int | None = None) -> Process:
        """Returns a process by its number or its rank.

        Args:
            index: The number N of the process: its folder is pN.
            rank: Its rank, instead of the number.

        Raises:
            Error: The run has no such process, or several processes have this rank.
        """
        if rank is not None:
            return self._of_rank(index, rank)
        for process in self.processes:
            if process.index == index:
                return process
        have = text.ranges(sorted(p.index for p in self.processes)) or "none"
        raise Error(f"{self.path}: no process {index} (there are: {have})")

    def _of_rank(self, index: int, rank: int) -> Process:
        if index:
            raise Error(f"give process {index} or rank {rank}, not both")
        self._with_ranks([p.index for p in self.processes], [rank])  # says which there are
        found = [p for p in self.processes if p.rank is not None and p.rank.rank == rank]
        if len(found) > 1:
            numbers = ", ".join(str(p.index) for p in found)
            raise Error(f"{self.path}: processes {numbers} have rank {rank}: use --process")
        return found[0]

    # ---- tables ----

    epochs = _table("epochs", "epoch")
    regions = _table("regions", "region")

    @functools.cached_property
    def events(self) -> pd.DataFrame:
        """One row per recorded driver call: the table `events`.

        Behind the recorded columns there are `short`, `demangled` (names of the kernel) and
        `caller` (the source line that made the call, missing without a call stack).
        """
        import ttanalyze
        from ttanalyze.format import tables

        names = ttanalyze.query(self, fields=["short", "demangled", "caller"])
        return tables.events(self.processes).join(names)  # a run that goes on may have more by now

    @functools.cached_property
    def allocs(self) -> pd.DataFrame:
        """One row per allocation: the table `allocs`.

        Behind its columns there is `site`, the source line that made the allocation, or the call
        and the thread if there is no call stack.
        """
        import ttanalyze

        allocs = ttanalyze.query(self, table="allocs")
        return allocs.assign(site=ttanalyze.query(self, table="allocs", fields=["site"])["site"])

    activities = _table("activities", "activity of the GPU or wait")
    ranges = _table("ranges", "NVTX range or mark")
    collectives = _table("collectives", "call of NCCL that communicates")
    digests = _table("digests", "recorded digest of a region")
    labels = _table("labels", "name of a part of a region")
    graphs = _table("graphs", "executable graph")
    stacks = _table("stacks", "frame of a recorded call stack")
    modules = _table("modules", "loaded image")
    traced = _table("traced", "launch whose instructions were to be traced")

    @checked
    def trace_records(
        self,
        launch: int | None = None,
        kinds: Collection[str] = (),
        instructions: Collection[int] | None = None,
        process: int = 0,
        rank: int | None = None,
    ) -> Iterator[TraceRecords]:
        """Reads records of instructions, in the order of the trace.

        A trace may be larger than memory, so the records come in parts of some hundred thousand.

        Args:
            launch: The number of the launch: `launch` in `run.traced`. Default: all launches.
            kinds: Kinds of records: `opcode`, `registers`, `addresses`, `values`, `tma`, `count`,
                `end`. Default: all kinds.
            instructions: The numbers of instructions. Default: all instructions.
            process: The number of the process.
            rank: Its rank, instead of the number.

        Yields:
            The records, as numpy arrays.

        Raises:
            Error: The run has no such process, or there is no such kind.
            FormatError: A file does not follow the format.

        Example:
            >>> for records in tt.open("run1").trace_records(kinds=["addresses"]):
            ...     print(records.heads["instruction"], records.addresses().min(axis=1))
        """
        return self.process(process, rank).trace_records(launch, kinds, instructions)

    @checked
    def tensors(self, epoch: int, process: int = 0, rank: int | None = None) -> pd.DataFrame:
        """Returns the named parts of regions in an epoch, such as tensors.

        Args:
            epoch: The number of the epoch.
            process: The number of the process.
            rank: Its rank, instead of the number.

        Returns:
            The table `tensors`, one row per named part.

        Raises:
            Error: The run has no such epoch or process.
        """
        from ttanalyze.format import tables

        of = self.process(process, rank)
        contents.check_epoch(of, epoch)
        return tables.tensors(of, epoch=epoch)

    @functools.cached_property
    def functions(self) -> pd.DataFrame:
        """One row per kernel: the table `functions`."""
        from ttanalyze.format import tables

        functions = tables.functions(self.processes)
        functions["checksum"] = tables.checksums(self.processes)
        return functions

    @checked
    def graph_nodes(
        self, graph: int, seq: int | None = None, process: int = 0, rank: int | None = None
    ) -> pd.DataFrame:
        """Returns the nodes of an executable graph.

        Args:
            graph: The number of the graph, from `run.graphs`.
            seq: The state of the graph at the call with this sequence number. Default: the last
                state.
            process: The number of the process.
            rank: Its rank, instead of the number.

        Returns:
            One row per node: the table `graph_nodes`.

        Raises:
            Error: The run has no such graph or process.
        """
        from ttanalyze.format import graph_tables

        return graph_tables.nodes(self.process(process, rank), graph, seq)

    @checked
    def graph_edges(
        self, graph: int, seq: int | None = None, process: int = 0, rank: int | None = None
    ) -> pd.DataFrame:
        """Returns the edges of an executable graph.

        Args:
            graph: The number of the graph, from `run.graphs`.
            seq: The state of the graph at the call with this sequence number. Default: the last
                state.
            process: The number of the process.
            rank: Its rank, instead of the number.

        Returns:
            One row per edge: the table `graph_edges`.

        Raises:
            Error: The run has no such graph or process.
        """
        from ttanalyze.format import graph_tables

        return graph_tables.edges(self.process(process, rank), graph, seq)

    # ---- contents ----

    @checked
    def read(
        self,
        epoch: int,
        region: int | str,
        process: int = 0,
        dtype: Any = None,
        start: int = 0,
        stop: int | None = None,
        rank: int | None = None,
    ) -> Array:
        """Reads the contents of a region in an epoch.

        Reads only the blocks that overlap [start, stop), and checks each against its digest.

        Args:
            epoch: The number of the epoch.
            region: The id of the region, from `run.regions`, its label, or the name of a tensor.
            process: The number of the process.
            rank: Its rank, instead of the number.
            dtype: The numpy dtype of the items. Default: uint8. numpy has no bf16, e4m3 and e5m2:
                `ttanalyze.values.parse("bf16").view` makes numbers of uint8.
            start: The first byte, an offset in the region or tensor.
            stop: The end in bytes, exclusive. Default: the end of the region or tensor.

        Returns:
            A 1-D array of `dtype`.

        Raises:
            Error: The epoch or the region does not exist, several have this name, the contents
                are gone, or their size is not a multiple of the item size.
            FormatError: The stored contents do not have their digest.

        Warns:
            UnreadWarning: The epoch did not read the region. The contents are those of the last
                epoch that did.

        Example:
            >>> run = tt.open("run1")
            >>> run.read(epoch=1, region=0, dtype="f4")[:5]
            array([0. , 0. , 0. , 1.5, 0. ], dtype=float32)
            >>> run.read(epoch=1, region="weights", start=12, stop=16)
            array([  0,   0, 192,  63], dtype=uint8)
        """
        of, end = self.process(process, rank), None if stop is None else int(stop)
        found = selection.named(of, region, epoch) if isinstance(region, str) else int(region)
        parts = [found] if isinstance(found, int) else [part.region for part in found]
        for one in parts:
            if of.unread.left_out(one, int(epoch)):
                which = f"region {one} in epoch {epoch} is as it was when it was read last"
                warnings.warn(f"{which}: {UNREAD}", UnreadWarning, stacklevel=3)
        if isinstance(found, int):
            out = contents.read(of, int(epoch), found, int(start), end)
        else:
            out = contents.read_parts(of, int(epoch), found, int(start), end)
        if dtype is None:
            return out
        try:
            wanted = np.dtype(dtype)
        except (TypeError, ValueError) as e:
            other = "it is one of numpy's, and values.parse(NAME).view knows bf16 and others"
            raise Error(f"dtype={dtype!r}: {e}: {other}") from e
        if wanted.hasobject or not wanted.itemsize:
            raise Error(f"dtype {wanted} can't be a view of memory")
        if len(out) % wanted.itemsize:
            rest = len(out) % wanted.itemsize
            raise Error(
                f"{len(out)} bytes don't divide into {wanted} items of {wanted.itemsize}: "
                f"{rest} are left over"
            )
        return out.view(wanted)

    def manifest(self, progress: Progress = None) -> dict[str, Any]:
        """Returns the manifest of the recorded digests.

        The manifest has no times, addresses or paths, so equal runs have equal manifests.
        docs/format.md describes it.

        Args:
            progress: Called with the finished and the total number of epochs.

        Returns:
            The manifest as `json.load` returns a manifest.json.

        Raises:
            FormatError: A file does not follow the format.

        Example:
            >>> manifest = tt.open("run1").manifest()
            >>> manifest["format"], manifest["block_size"], manifest["digest"]
            ('ttanalyze-manifest', 65536, 'xxh3-64')
            >>> manifest["processes"][0]["regions"][0]["label"]
            'weights'
        """
        advance = counted(progress, sum(len(p.epochs) for p in self.processes))

        processes = [manifest.of_process(p, advance) for p in self.processes]
        return {**manifest.HEAD, "processes": processes}

    # ---- what is not as it should be ----

    @functools.cached_property
    def failures(self) -> list[str]:
        """One line per process whose recording failed. Everything after the failure is missing."""
        return [
            f"{self.path}: process {process.index}: {process.failure}"
            for process in self.processes
            if process.failure is not None
        ]

    @functools.cached_property
    def warnings(self) -> list[str]:
        """One line per warning of the recorder and per gap in the run."""
        if not self.processes:
            return ["no process was recorded"]
        return [line for process in self.processes for line in warnings_of(self, process)]


def _reopened(
    path: str,
    names: list[str],
    info: dict[str, Any],
    ranks: frozenset[int] | None,
    processes: list[Process],
) -> Run:
    """Returns a run that was opened before, without reading its files again."""
    run = object.__new__(Run)
    run.path, run._names, run.info, run.ranks = place(path), names, info, ranks
    run.processes = processes
    return run


def warnings_of(run: Run, process: Process, known: list[str] | None = None) -> list[str]:
    """Returns the warnings of one process, as `run.warnings` has them.

    known: what `process_warnings` returns of it.
    """
    several = len(run.processes) > 1
    lead = f"process {process.index}: " if several else ""
    if known is None:
        number = None if several else run.info.get("exit", {}).get("signal")
        until = "by then" if run.over else "so far"
        how = "it was killed" if run.over else "it was killed or still runs"
        how = how if number is None else f"it was killed by signal {number}"
        seen = text.count(len(process.epochs), "epoch") if len(process.epochs) else "no epoch"
        known = process_warnings(process, f"{how}: {seen} committed {until}")
    return [lead + line for line in known]


def process_warnings(process: Process, running: str = "") -> list[str]:
    """Returns the warnings of one process. running: that of one that did not say how it ended."""
    out = list(process.info.get("warnings", []))
    if process.status == "running":
        out.append(running)
        out.append("it did not record the sizes of its files: records may be lost")
    elif process.failure is not None:
        out.append(process.failure)
    elif process.torn:
        out.append("files end in records that no epoch committed")
    out += unmet(process.info, len(process.epochs), len(process.launches))
    flags, skipped = process.epochs["flags"], process.epochs["skipped"] != 0
    removed = process.removed & (flags & (layout.DROPPED | layout.REFUSED) == 0)
    dropped, left = flags & layout.DROPPED != 0, process.epochs["digests_count"] > 0
    wanted = left & (not process.without_contents)
    counts = [
        ((flags & layout.REFUSED != 0) & ~skipped, "refused: it has no contents"),
        (skipped, "skipped, to keep to --max-overhead: it has no contents"),
        (dropped & ~left, "overwritten in the ring: its contents are lost"),
        (dropped & wanted, "stored without contents: only digests are there"),
        (removed, "removed to save space: only digests are left"),
        (flags & layout.LOOSE, "cut while work was running: contents may be torn"),
    ]
    for of, what in counts:
        number = int(np.count_nonzero(of))
        if number:
            said = f"was {what}"
            if number > 1:
                said = f"were {what}".replace(" it has ", " they have ").replace(" its ", " their ")
            out.append(f"{text.count(number, 'epoch')} {said}")
    lost = int(process.info.get("counters", {}).get("events_lost", 0))
    if lost:
        out.append(f"{text.count(lost, 'event')} {'was' if lost == 1 else 'were'} lost")
    return out
