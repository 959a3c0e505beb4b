"""Computed columns of events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.format import annotations as annotation_records
from ttanalyze.format import layout
from ttanalyze.format.columns import categories
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

OF_THE_GPU = {"gpu_begin", "gpu_end", "gpu_time", "queue_time"}
OF_ANNOTATIONS = {"annotation", "domain", "range"}
OF_WAITS = {"waited", "waited_region"}
DELAYED = (layout.constant("TT_EVENTF_DELAYED"), layout.constant("TT_EVENTF_DELAYED_STREAM"))
DELAYS = ["call", "stream", "call and stream"]  # by which of these flags
TO_HOST, FROM_HOST, PEER = (
    layout.constant(f"TT_EVENTF_{n}") for n in ("HOST_DST", "HOST_SRC", "PEER")
)
DIRECTIONS = [
    f"{source} to {target}" for target in ("device", "host") for source in ("device", "host")
]
DIRECTIONS.append("between devices")
WAIT_FIELDS = ("time_ns", "kind", "flags", "context", "dst")


def annotation_texts(process: Process, column: str, members: dict[str, Array]) -> Array:
    """Returns numbers for the texts of OF_ANNOTATIONS."""
    if column == "range":
        return process.annotations.paths_at(members["thread"], members["seq"])
    said = annotation_records.is_annotation(members["kind"])
    if column == "annotation":
        return np.where(said, members["id"], layout.NO_ID)
    return np.where(
        said & (members["kind"] != annotation_records.NAME), members["dst"], layout.NO_ID
    )


def settings_at(process: Process, seqs: Array) -> Array:
    """Returns the string of the tt_control settings at each call, none if nothing was ever set."""
    since, strings = process.controls
    return np.append(strings, layout.NO_ID)[np.searchsorted(since, seqs, "right") - 1]


def waits(process: Process, column: str, members: dict[str, Array]) -> Any:
    """Returns OF_WAITS of events, missing if they did not wait or the region is unknown."""
    events = np.zeros(len(members["seq"]), layout.EVENT)
    for name in ("seq", *WAIT_FIELDS):
        events[name] = members[name]
    rows = np.flatnonzero(process.captures.waited(events))
    out = np.full(len(events), -1, "i8")
    if column == "waited":
        out[rows] = process.captures.waited_for(events[rows])
    else:
        regions = process.captures.regions_of(events[rows])
        out[rows] = np.where(regions < 0, -1, np.append(process.regions.id, 0)[regions])
    return pd.arrays.IntegerArray(out, out < 0)


def delays(flags: Array) -> Any:
    """Returns what was delayed of each event."""
    call, stream = (flags & flag != 0 for flag in DELAYED)
    return categories(call + 2 * stream - 1, DELAYS)


def directions(kinds: Array, flags: Array) -> Any:
    """Returns from where to where copies went, missing for other calls."""
    way = (flags & FROM_HOST != 0) + 2 * (flags & TO_HOST != 0).astype("i4")
    way = np.where(flags & PEER != 0, len(DIRECTIONS) - 1, way)
    return categories(np.where(kinds == KIND["copy"], way, -1).astype("i4"), DIRECTIONS)


def epoch_of(process: Process, seqs: Array) -> Any:
    """Returns the first epoch that was cut at or after each call, missing if there is none."""
    cuts = np.sort(process.epochs["seq"])
    numbers = process.epochs["number"][np.argsort(process.epochs["seq"], kind="stable")]
    at = np.searchsorted(cuts, seqs)
    none = at == len(cuts)
    return pd.arrays.IntegerArray(np.append(numbers, 0)[at].astype("i8"), none)


def gpu_times(process: Process, members: dict[str, Array]) -> dict[str, Any]:
    """Returns OF_THE_GPU of events, missing if unknown."""
    begins, ends, known = process.activities.spans(members["seq"])
    times = {"gpu_begin": begins, "gpu_end": ends, "gpu_time": ends - begins}
    times |= {"queue_time": begins - members["time_ns"].astype("i8")}
    return {name: pd.arrays.IntegerArray(of, ~known) for name, of in times.items()}


class HostTimes:
    """For each event of a process, the time until the next call of its thread."""

    def __init__(self, process: Process) -> None:
        events = process.event_columns("seq", "thread", "time_ns", "kind")
        calls = ~annotation_records.is_annotation(events.pop("kind"))
        if not calls.all():
            events = {name: column[calls] for name, column in events.items()}
        self._seqs = events["seq"]
        numbers, different = pd.factorize(events["thread"])
        small = numbers.astype("u2") if len(different) <= 1 << 16 else numbers  # sorts much faster
        order = np.argsort(small, kind="stable")
        threads, times = small[order], events["time_ns"][order].astype("i8")
        gaps = np.append(np.diff(times), 0)[: len(times)]
        last = np.append(threads[1:] != threads[:-1], True)[: len(threads)]
        self._gaps, self._last = np.empty(len(times), "i8"), np.empty(len(times), bool)
        self._gaps[order], self._last[order] = gaps, last

    def until_next(self, seqs: Array) -> Any:
        """Returns the times of events by seq, missing for the last one of a thread."""
        if not len(self._seqs):
            return pd.arrays.IntegerArray(np.zeros(len(seqs), "i8"), np.ones(len(seqs), bool))
        at = np.minimum(np.searchsorted(self._seqs, seqs), len(self._seqs) - 1)
        unknown = self._seqs[at] != seqs  # of a run that goes on, there may be more by now
        return pd.arrays.IntegerArray(self._gaps[at], self._last[at] | unknown)
