"""The tables of the instruction traces of a run."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.core.run_tables import FramePiece, Table
from ttanalyze.errors import Error
from ttanalyze.format import open_run
from ttanalyze.format.instruction_traces import kind_number
from ttanalyze.format.run import Run
from ttanalyze.traces import ipc
from ttanalyze.traces.hangs import hangs
from ttanalyze.traces.instructions import Instructions, instructions_of
from ttanalyze.traces.native import AnyTrace, RunTrace
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.query.files import pieces_of
from ttanalyze.verbs.query.trace_columns import RECORDED, WORKED_OUT, columns_of, integers, texts
from ttanalyze.verbs.query.traces import SHOWN, Regions, TraceFile

COUNTS = (
    *("process", "launch", "seq", "kernel", "instruction", "sass", "opcode", "category"),
    *("source", "warps", "threads"),
)
HANG_TEXTS = ("kernel", "hang", "doing", "at", "sass", "source", "caller")
COUNT_TEXTS = ("kernel", "sass", "opcode", "category", "source")
HANGS = (
    *("process", "seq", "kernel", "hang", "doing", "warps", "block", "warp", "at"),
    *("instruction", "sass", "source", "caller"),
)
ADDRESSES = 1 << kind_number("addresses") | 1 << kind_number("values")
OF_FILES = ("instructions", "warps", "histogram", "ipc", "mma", "tma")
TRACE_TABLES = ("trace", "trace-counts", *OF_FILES, "hangs")


class TracedRun(TraceFile):
    """The instruction traces of a run.

    The table `trace` has a row per record, with the columns of an instruction trace in a file;
    `trace-counts` has how often instructions were executed; `hangs` what warps did in launches that
    had not ended; the others are those of TraceFile.

    Args:
        run: The run.
        launch: The `seq` of the only wanted launch. Default: all traced launches.
        regions: For `histogram` and `ipc`.
    """

    def __init__(self, run: Run, launch: int | None = None, regions: Regions | None = None) -> None:
        self.path, self.notes = run.path, []
        self._run, self._launch = run, launch
        own = self._tables(regions)
        kinds = {int(asked) for process in run.processes for asked in process.traced["kinds"]}
        addresses = any(asked & ADDRESSES for asked in kinds)
        several = sum(len(process.traced) > 0 for process in run.processes) > 1
        process, addrs = (("process",) if several else ()), (("addrs",) if addresses else ())
        shown = (*SHOWN[:1], *process, *SHOWN[1:], *addrs)
        self.tables = {
            "trace": Table(RECORDED, (*WORKED_OUT, "process"), shown, pieces_of),
            "trace-counts": Table(COUNTS, (), COUNTS, self._counts),
            "hangs": Table(HANGS, (), HANGS, self._hangs),
            **{name: own[name] for name in OF_FILES},
        }

    def open(self) -> AnyTrace:
        """Returns the trace, at its beginning."""
        return RunTrace(self._run, self._launch)

    def pieces(self, columns: Sequence[str], progress: Progress) -> Iterator[pd.DataFrame]:
        """Reads columns of the records, chunk by chunk, or one by one if tensor copies are wanted.

        Args:
            columns: The names of the columns.
            progress: Called with the read and the total number of bytes.

        Yields:
            DataFrames, at least one.

        Raises:
            Error: A record is wrong. The message names it.
        """
        trace = RunTrace(self._run, self._launch)
        for batch in trace.batches():
            made = columns_of(batch, columns, trace.lines)
            if made is None:
                yield from super().pieces(columns, progress)
                return
            yield pd.DataFrame(made, index=range(len(batch.records)))
            tell(progress, batch.records.begin, trace.lines.size)
        self._ended(trace.lines)

    def _counts(
        self, _: Any, columns: Sequence[str], ordered: bool, progress: Progress
    ) -> Iterator[FramePiece]:
        rows: list[tuple[Any, ...]] = []
        self.notes = []
        for process in self._run.processes:
            known = functools.cache(functools.partial(self._known, process))
            for records in process.trace_records(kinds=["count"]):
                counts = records.counts().tolist()
                heads = zip(records.heads["launch"], records.heads["instruction"], strict=True)
                for (launch, number), (warps, threads) in zip(heads, counts, strict=True):
                    of = process.traced[launch]
                    if self._launch not in (None, int(of["seq"])):
                        continue
                    table = known(int(of["function"]))
                    one = table.by_number.get(int(number))
                    told = (one.text, one.opcode, one.category, one.source) if one else (None,) * 4
                    place = (process.index, int(launch), int(of["seq"]), table.kernel, int(number))
                    rows.append((*place, *told, warps, threads))
        made = {name: [row[i] for row in rows] for i, name in enumerate(COUNTS)}
        frame = {
            name: texts(made[name]) if name in COUNT_TEXTS else integers(made[name])
            for name in columns
        }
        yield FramePiece(pd.DataFrame(frame, index=np.arange(len(rows))))

    def _hangs(
        self, _: Any, columns: Sequence[str], ordered: bool, progress: Progress
    ) -> Iterator[FramePiece]:
        rows = [
            (
                *(launch.process, launch.seq, launch.kernel, hang.kind, group.doing, group.count),
                *(group.warps[0] if group.warps else (None, None)),
                group.at,
                *((one.number, one.text, one.source) if one else (None, None, None)),
                launch.callers[0] if launch.callers else None,
            )
            for hang in hangs(self._run)
            for launch in hang.launches
            if self._launch in (None, launch.seq)
            for group in launch.groups
            for one in (*group.instructions,) or (None,)
        ]
        made = {name: [row[i] for row in rows] for i, name in enumerate(HANGS)}
        frame = {
            name: texts(made[name]) if name in HANG_TEXTS else integers(made[name])
            for name in columns
        }
        yield FramePiece(pd.DataFrame(frame, index=np.arange(len(rows))))

    def _ipc(self, trace: AnyTrace) -> Iterator[dict[str, Any]]:
        times = self._regions.times
        if times is None:
            what = "a run of it with --timeline, for NVTX ranges, or a Chrome trace of Proton"
            raise Error(f"--table ipc: needs --times, {what}")
        if not os.path.isdir(times):
            yield from super()._ipc(trace)
        else:
            yield from ipc.of_ranges(self._run, open_run(times), self.notes)

    def _known(self, process: Any, function: int) -> Instructions:
        try:
            found = instructions_of(self._run, process, function)
            self.notes += [found.note] if found.note else []
            return found
        except Error as e:
            self.notes.append(str(e))
            return Instructions(process.kernel(function) or f"function {function}", False, {})
