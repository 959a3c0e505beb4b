"""A run directory as a whole."""

from __future__ import annotations

import functools
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ttanalyze.errors import Error, FormatError, UnreadWarning, system_errors
from ttanalyze.format import contents, layout, manifest
from ttanalyze.format.files import check_version, expect, expect_list, read_json
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.process_info import check_process
from ttanalyze.format.unread import UNREAD
from ttanalyze.options import unmet
from ttanalyze.output import text
from ttanalyze.util.progress import Progress, counted

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "ttanalyze-run"


def open_run(path: str | os.PathLike[str]) -> Run:
    """Opens a run directory. Looks at headers, JSON and epochs.bin only, however large it is.

    Raises FormatError for files that no recorder can have written, and Error where path is
    not a run directory or can't be read.
    """
    return Run(Path(path))


def _table(name: str, row: str) -> functools.cached_property[pd.DataFrame]:
    """A table of all processes, which the function of its name makes."""

    def made(run: Run) -> pd.DataFrame:
        from ttanalyze.format import graph_tables, tables

        return getattr(graph_tables if name == "graphs" else tables, name)(run.processes)

    made.__doc__ = f"One row per {row}; columns as in tables.{name}."
    return functools.cached_property(made)


class Run:
    """What was recorded. Tables are made when they are first asked for, and then kept.

    path: the run directory. info: its run.json. processes: one per recorded process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with system_errors(path):
            names = os.listdir(path)
        indices = sorted(int(n[1:]) for n in names if re.fullmatch(r"p(0|[1-9]\d{0,6})", n))
        if "run.json" not in names and not indices:
            raise Error(f"{path}: not a run directory: it has no run.json")
        self.info = self._read_info() if "run.json" in names else {}
        self._check_listed()
        self.processes = [Process(path / f"p{i}", i) for i in indices]

    def __repr__(self) -> str:
        epochs = sum(len(p.epochs) for p in self.processes)
        return f"<Run {str(self.path)!r}: {len(self.processes)} processes, {epochs} epochs>"

    def _read_info(self) -> dict[str, Any]:
        path = self.path / "run.json"
        info = read_json(path)
        if info.get("format") != FORMAT:
            raise FormatError(path, "format", f"expected {FORMAT!r}")
        check_version(path, "version", info.get("version"))
        expect(path, "", info, created_ns=int, exit=dict)
        expect(path, "exit.", info.get("exit", {}), status=int, signal=(int, None))
        expect_list(path, "", info, "processes", dict)
        for i, process in enumerate(info.get("processes", [])):
            check_process(path, f"processes[{i}].", process)
        return info

    def _check_listed(self) -> None:
        """A process is in run.json once it has a process.json."""
        for process in self.info.get("processes", []):
            path = self.path / f"p{process.get('process', 0)}" / "process.json"
            if not os.path.lexists(path):
                raise FormatError(path, 0, "missing, and run.json names the process")

    def process(self, index: int) -> Process:
        """A process by its number. Raises Error where there is none."""
        for process in self.processes:
            if process.index == index:
                return process
        have = ", ".join(str(p.index) for p in self.processes) or "none"
        raise Error(f"{self.path}: no process {index} (there are: {have})")

    # ---- tables ----

    epochs = _table("epochs", "epoch")
    regions = _table("regions", "region")
    events = _table("events", "recorded driver call")
    activities = _table("activities", "thing that the GPU did, or wait")
    ranges = _table("ranges", "NVTX range or mark")
    digests = _table("digests", "region digest that was recorded")
    labels = _table("labels", "name given to a part of a region")
    graphs = _table("graphs", "executable graph")
    stacks = _table("stacks", "frame of a recorded call stack")
    modules = _table("modules", "loaded image")

    def tensors(self, epoch: int, process: int = 0) -> pd.DataFrame:
        """What parts of regions are called in an epoch; columns as in tables.tensors. Raises Error
        where there is no such epoch.
        """
        from ttanalyze.format import tables

        contents.check_epoch(self.process(process), epoch)
        return tables.tensors(self.process(process), epoch=epoch)

    @functools.cached_property
    def functions(self) -> pd.DataFrame:
        """One row per kernel; columns as in tables.functions, and checksum."""
        from ttanalyze.format import tables

        functions = tables.functions(self.processes)
        functions["checksum"] = tables.checksums(self.processes)
        return functions

    def graph_nodes(self, graph: int, seq: int | None = None, process: int = 0) -> pd.DataFrame:
        """One row per node of a graph as a call with this seq finds it, by default as it was in
        the end; columns as in graph_tables.nodes. Raises Error where there is no such graph.
        """
        from ttanalyze.format import graph_tables

        return graph_tables.nodes(self.process(process), graph, seq)

    def graph_edges(self, graph: int, seq: int | None = None, process: int = 0) -> pd.DataFrame:
        """One row per edge, in the same way; columns as in graph_tables.edges."""
        from ttanalyze.format import graph_tables

        return graph_tables.edges(self.process(process), graph, seq)

    # ---- contents ----

    def read(
        self,
        epoch: int,
        region: int,
        process: int = 0,
        dtype: Any = None,
        start: int = 0,
        stop: int | None = None,
    ) -> Array:
        """Bytes [start, stop) of a region as of an epoch, the whole region by default.

        Gives a 1-D array of uint8, or of dtype. Reads the blocks it needs and checks each
        against its digest. Raises Error where there is no such epoch or region, where the
        contents are lost or don't divide into items of dtype, FormatError where damaged. Warns
        (UnreadWarning) where the epoch did not read the region.
        """
        end = None if stop is None else int(stop)
        if self.process(process).unread.left_out(int(region), int(epoch)):
            which = f"region {region} in epoch {epoch} is as it was when it was read last"
            warnings.warn(f"{which}: {UNREAD}", UnreadWarning, stacklevel=2)
        out = contents.read(self.process(process), int(epoch), int(region), int(start), end)
        if dtype is None:
            return out
        wanted = np.dtype(dtype)
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
        """The manifest that the recorded digests make, as a parsed manifest.json would be.

        progress: called with the epochs done and those in all.
        """
        advance = counted(progress, sum(len(p.epochs) for p in self.processes))

        processes = [manifest.of_process(p, advance) for p in self.processes]
        return {**manifest.HEAD, "processes": processes}

    # ---- what is not as it should be ----

    @functools.cached_property
    def failures(self) -> list[str]:
        """The processes whose recording failed, so that what came later is missing: a line each."""
        return [
            f"{self.path}: process {process.index}: {process.failure}"
            for process in self.processes
            if process.failure is not None
        ]

    @functools.cached_property
    def warnings(self) -> list[str]:
        """What the recorder warned of and what is missing, one line each."""
        out = []
        several = len(self.processes) > 1
        if not self.processes:
            out.append("no process was recorded")
        for process in self.processes:
            lead = f"process {process.index}: " if several else ""
            ending = None if several else self.info.get("exit")
            out += [lead + line for line in _warnings_of(process, ending)]
        return out


def _warnings_of(process: Process, ending: dict[str, Any] | None) -> list[str]:
    """ending: how the program is known to have ended."""
    out = list(process.info.get("warnings", []))
    if process.status == "running":
        seen = text.count(len(process.epochs), "epoch") if len(process.epochs) else "no epoch"
        number = (ending or {}).get("signal")
        if number is not None:
            out.append(f"it was killed by signal {number}: {seen} committed by then")
        else:
            out.append(f"it was killed or still runs: {seen} committed so far")
        out.append("it did not record the sizes of its files: records may be lost")
    elif process.failure is not None:
        out.append(process.failure)
    elif process.torn:
        out.append("files end in records that no epoch committed")
    options = process.info.get("options", {})
    out += unmet(options, len(process.epochs), len(process.launches))
    flags = process.epochs["flags"]
    removed = process.epochs["segment"] < process.oldest_segment
    removed &= (flags & (layout.DROPPED | layout.REFUSED)) == 0
    dropped, left = flags & layout.DROPPED != 0, process.epochs["digests_count"] > 0
    wanted = left & (not process.without_contents)
    counts = [
        (flags & layout.REFUSED, "refused: nothing was captured then"),
        (dropped & ~left, "overwritten in the ring: nothing is left"),
        (dropped & wanted, "stored without contents: only digests are there"),
        (removed, "removed to save space: only digests are left"),
        (flags & layout.LOOSE, "cut while work was running: contents may be torn"),
    ]
    for of, what in counts:
        number = int(np.count_nonzero(of))
        if number:
            out.append(f"{text.count(number, 'epoch')} {'was' if number == 1 else 'were'} {what}")
    lost = int(process.info.get("counters", {}).get("events_lost", 0))
    if lost:
        out.append(f"{text.count(lost, 'event')} {'was' if lost == 1 else 'were'} lost")
    return out
