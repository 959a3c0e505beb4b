"""The columns of `run.activities`, made piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.format import layout
from ttanalyze.format.activities import COARSE, OWN, STAMPED, SYNC, nodes_of, rows_of
from ttanalyze.format.columns import Texts, concat, masked, named, nullable, process_column
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

ACTIVITY_COLUMNS = (
    *("process", "seq", "kind", "kernel", "context", "device", "stream", "bytes", "node"),
    *("begin_ns", "end_ns", "gpu_time", "wait_time", "coarse", "own", "stamped"),
)

BITS = {"coarse": COARSE, "own": OWN, "stamped": STAMPED}


class ActivityTable:
    """Makes DataFrames of activities in pieces with shared categories.

    The kernel and the stream of an activity come from its call if its record lacks them.
    """

    def __init__(self) -> None:
        self._kernels = Texts(_kernel_of)

    def frame(
        self,
        processes: Sequence[Process],
        records: Sequence[Array],
        columns: Sequence[str] = ACTIVITY_COLUMNS,
    ) -> pd.DataFrame:
        """Returns columns of tt_activity records of each process, by seq."""
        made = {c: self._column(c, processes, records) for c in columns}
        return pd.DataFrame(made)

    def _column(self, column: str, processes: Sequence[Process], records: Sequence[Array]) -> Any:
        if column == "process":
            return process_column(processes, records)
        if column == "kernel":
            both = zip(processes, records, strict=True)
            return self._kernels.column(processes, [_kernels_of(p, r) for p, r in both])
        if column == "stream":
            both = zip(processes, records, strict=True)
            return nullable(concat([_streams_of(p, r) for p, r in both], "u8"), 0)
        kind = concat([r["kind"] for r in records], "u4")
        if column == "kind":
            return named(kind, layout.EVENT_KINDS)
        if column in ("gpu_time", "wait_time"):
            took = [r["end_ns"] - r["begin_ns"] for r in records]
            return masked(concat(took, "u8"), (kind == SYNC) != (column == "wait_time"))
        if column in BITS:
            return concat([r["flags"] for r in records], "u4") & BITS[column] != 0
        if column == "node":
            found = [nodes_of(r) for r in records]
            there = concat([known for _, known in found], bool)
            return masked(concat([nodes for nodes, _ in found], "u8"), ~there)
        values = concat([r[column] for r in records], layout.ACTIVITY[column])
        missing = {"seq": 0, "context": layout.NO_ID, "device": layout.NO_ID}
        return nullable(values, missing[column]) if column in missing else values


LAUNCH = KIND["launch"]
FUNCTIONS = 1 << 32  # what names functions instead of texts begins here


def _kernel_of(process: Process, number: int) -> str | None:
    if number < FUNCTIONS:
        return process.strings.get(number)
    return process.kernel(number - FUNCTIONS)


def _kernels_of(process: Process, records: Array) -> Array:
    """Returns the numbers that _kernel_of takes."""
    names = records["name"].astype("i8")
    unsaid = (records["kind"] == LAUNCH) & (records["name"] == layout.NO_ID)
    if unsaid.any():
        calls, rows = _calls_of(process, records[unsaid])
        launch = (rows >= 0) & (calls["kind"][rows] == LAUNCH)
        names[unsaid] = np.where(launch, calls["id"][rows].astype("i8") + FUNCTIONS, layout.NO_ID)
    return np.asarray(names)


def _streams_of(process: Process, records: Array) -> Array:
    """Returns the stream of each activity, 0 if unknown."""
    streams = records["stream"].copy()
    unsaid = (streams == 0) & (records["seq"] != 0)
    if unsaid.any():
        calls, rows = _calls_of(process, records[unsaid])
        streams[unsaid] = np.where(rows >= 0, calls["stream"][rows], 0)
    return np.asarray(streams)


def _calls_of(process: Process, records: Array) -> tuple[Array, Array]:
    """Returns calls, at least one, and the row of each activity's call or -1."""
    first, last = int(records["seq"][0]), int(records["seq"][-1])
    calls = process.events_between(max(first - 1, 0), last)
    return np.append(calls, np.zeros(1, layout.EVENT)), rows_of(calls["seq"], records["seq"])
