"""Writes a trace: calls, streams, epochs and memory use, process by process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ttanalyze.core.clocks import clocks
from ttanalyze.errors import Error
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.util.progress import Progress, counted
from ttanalyze.verbs.trace.annotations import write_annotations
from ttanalyze.verbs.trace.calls import Calls
from ttanalyze.verbs.trace.chrome import ChromeWriter
from ttanalyze.verbs.trace.lanes import Lanes
from ttanalyze.verbs.trace.marks import read_marks, write_marks
from ttanalyze.verbs.trace.perfetto import PerfettoWriter
from ttanalyze.verbs.trace.rows import LATEST, Writer
from ttanalyze.verbs.trace.shifted import Shifted
from ttanalyze.verbs.trace.tracks import write_epochs, write_memory

FORMATS: dict[str, Callable[[BinaryIO], Writer]] = {
    "chrome": ChromeWriter,
    "perfetto": PerfettoWriter,
}
PIDS = 1 << 22  # what Linux gives is smaller
ALL = (0, (1 << 64) - 1)


@dataclass
class Traced:
    """The numbers of items in a written trace.

    Attributes:
        processes: Processes.
        lanes: Threads, streams and other lanes.
        calls: Driver calls.
        epochs: Epochs.
        arrows: Arrows from a call to its GPU work and from an epoch to its drain.
        marks: Findings of the annotating report.
        ranges: NVTX ranges and marks.
        clock_error_ns: How exactly the clocks of different hosts are related, in nanoseconds: 0 on
            one host; None if only their wall clocks relate some of them.
    """

    processes: int = 0
    lanes: int = 0
    calls: int = 0
    epochs: int = 0
    arrows: int = 0
    marks: int = 0
    ranges: int = 0
    clock_error_ns: int | None = 0


def trace(
    run: Run,
    file: BinaryIO,
    form: str = "chrome",
    *,
    epochs: tuple[int, int] | None = None,
    annotate: str | os.PathLike[str] | None = None,
    progress: Progress = None,
) -> Traced:
    """Writes a trace of a run.

    Times in the trace are nanoseconds of CLOCK_MONOTONIC on the host of the first process. Times of
    other hosts are moved to it by the ends of common collectives. The labels of a process, and
    `clock_error_ns`, say how exactly.

    Args:
        run: The run.
        file: A binary file.
        form: "chrome" (JSON) or "perfetto" (protocol buffers).
        epochs: The first and the last epoch. The calls since the epoch before are included.
            Default: the whole run.
        annotate: The path of a report of verify or diff, as JSON. Its findings become marks.
        progress: Called with the finished and the total number of calls.

    Returns:
        The numbers of items in the trace.

    Raises:
        Error: No process has these epochs, the format is unknown, or the report belongs to another
            run.
        FormatError: A file does not follow the format.

    Example:
        >>> with open("trace.json", "wb") as file:
        ...     traced = tt.trace(tt.open("run1"), file)
        >>> traced.calls, traced.epochs
        (5, 2)

    Source:
        The Trace Event Format of Chromium, and trace_packet.proto of Perfetto.
    """
    if form not in FORMATS:
        raise Error(f"format {form}: must be one of {', '.join(FORMATS)}")
    most = max((len(p.epochs) for p in run.processes), default=0)
    if epochs is not None and (epochs[0] >= most or epochs[0] > epochs[1]):
        have = f"the run has 0 to {most - 1}" if most else "the run has none"
        raise Error(f"no epochs {epochs[0]} to {epochs[1]}: {have}")
    marks = [] if annotate is None else read_marks(Path(annotate), run)
    advance = counted(progress, sum(p.count_events() for p in run.processes) if progress else 0)

    whole = FORMATS[form](file)
    numbers, pids, done = itertools.count(1), _pids(run), Traced()
    relations = clocks(run.processes)
    errors = [clock.error_ns for clock in relations.values()]
    done.clock_error_ns = None if None in errors else max((e or 0 for e in errors), default=0)
    for process, pid in zip(run.processes, pids, strict=True):
        clock = relations[process.index]
        writer: Writer = Shifted(whole, clock.offset_ns) if clock.offset_ns else whole
        first, last, bounds = _window(process, epochs)
        since = int(process.captures.cuts[first - 1]) if 0 < first < last else 0
        lanes = Lanes(process, pid, numbers, writer, clock)
        write_memory(process, lanes, writer, bounds, since)
        done.marks += write_marks(process, lanes, writer, marks, (first, last), bounds)
        done.arrows += write_epochs(process, lanes, writer, first, last, done.arrows)
        calls = Calls(process, lanes, writer)
        until = int(process.captures.cuts[last - 1]) if first < last else 0
        window = (since, until) if epochs is not None else (0, int(LATEST))
        calls.write(bounds, window, advance, done.arrows)
        done.ranges += write_annotations(process, lanes, writer, bounds, window)
        done.processes += 1
        done.lanes += len(lanes)
        done.calls += calls.count
        done.arrows += calls.arrows
        done.epochs += last - first
    whole.end()
    return done


def _window(process: Process, epochs: tuple[int, int] | None) -> tuple[int, int, tuple[int, int]]:
    """Returns the epochs [first, last) of a process, and its calls with seq in (after, until]."""
    count = len(process.epochs)
    if epochs is None:
        return 0, count, ALL
    first, last = min(epochs[0], count), min(epochs[1] + 1, count)
    if first >= last:
        return first, first, (0, 0)
    seqs = process.epochs["seq"]
    after = int(seqs[:first].max()) if first else 0  # of two contexts, epochs may not be in order
    return first, last, (after, max(int(seqs[first:last].max()), after))


def _pids(run: Run) -> list[int]:
    """Returns a unique number for each process, the system's if possible."""
    out: list[int] = []
    for process in run.processes:
        pid = int(process.info.get("pid", 0))
        good = 0 < pid < PIDS and pid not in out
        out.append(pid if good else PIDS + process.index)
    return out
