"""Instruction traces as tables: see `ttanalyze.traces.reader` for the files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from ttanalyze.core.run_tables import Table
from ttanalyze.errors import Error
from ttanalyze.records.lines import Lines
from ttanalyze.records.members import Place, typed
from ttanalyze.traces.reader import METADATA, TYPES, Kernel, Trace
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.query.files import PIECE, EventsFile, RecordsFile, pieces_of
from ttanalyze.verbs.query.trace_columns import RECORDED, WORKED_OUT, Rows

SHOWN = ("index", "launch", "short", "cta_x", "cta_y", "cta_z", "warp", "opcode_id", "pc", "sass")
BYTES = 1 << 25  # of the lines of a piece


def open_file(path: str | os.PathLike[str]) -> RecordsFile:
    """Opens a file of kernel events or an instruction trace. The first record tells which it is.

    Args:
        path: The file.

    Raises:
        Error: The file cannot be read.
    """
    lines = Lines(Path(path))
    for number, value in lines.records():
        with contextlib.suppress(Error):
            typed(Place(lines, number), value, (*TYPES, METADATA), "")
            return TraceFile(path)
        break
    return TraceFile(path) if lines.text else EventsFile(path)


class TraceFile(RecordsFile):
    """An instruction trace, whose table `events` has one row per record.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, {"events": Table(RECORDED, WORKED_OUT, SHOWN, pieces_of)})

    def pieces(self, columns: Sequence[str], progress: Progress) -> Iterator[pd.DataFrame]:
        """Reads columns of the records in pieces.

        Args:
            columns: The names of the columns.
            progress: Called with the read and the total number of bytes.

        Yields:
            DataFrames, at least one.

        Raises:
            Error: A line is wrong. The message names it.
        """
        trace, rows = Trace(self.path), Rows(columns)
        total, given, begin = os.path.getsize(self.path), False, 0
        for record in trace.records():
            if isinstance(record, Kernel):
                continue
            rows.add(record)
            if len(rows) == PIECE or trace.lines.read - begin > BYTES:
                yield rows.frame()
                given, begin = True, trace.lines.read
                tell(progress, trace.lines.at, total)
        if len(rows) or not given:
            yield rows.frame()
        self._ended(trace.lines)
