"""The timeline of a report: a lane per stream with launches, copies and sets, and one for waits of
the host.

Each call is a mark. If there are too many, marks of the same lane, name and time bin are merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array

LANES = 20  # of streams; the busiest, and one for all others
NAMES = 4000  # kernels told apart
STREAMS = {1: "default stream", 2: "per-thread default stream"}
WORK = {  # what is shown on streams: kind of event, its name
    "graph-launch": "graph launch",
    "launch-host": "host function",
    "copy": "copy",
    "set": "set",
}
OTHER_KERNELS, WAIT = "other kernels", "wait"
IN_GRAPH = 1  # flag: recorded into a graph, not executed


@dataclass(frozen=True)
class Lane:
    """Marks of one stream, or of the host's waits.

    time (relative, ascending), what (index into the names), count: arrays of the same length.
    """

    name: str
    time: Array
    what: Array
    count: Array


@dataclass(frozen=True)
class Timeline:
    """The lanes of a process.

    names: of marks, kernels first, those with the most launches first. kernels: the function ids of
    the kernels. bin: the nanoseconds over which marks were merged, 0 if each mark is one call.
    left_out: the number of streams that share the last lane.
    """

    lanes: list[Lane]
    names: list[str]
    kernels: list[int]
    bin: int
    left_out: int


def timeline(events: Array, times: Array, names: dict[int, str], limit: int) -> Timeline:
    """Returns the timeline of a process.

    events: by seq. times: of each, ascending. names: of kernels, by function id. limit: the maximal
    number of marks.
    """
    kind, executed = events["kind"], events["flags"] & IN_GRAPH == 0
    launch = (kind == KIND["launch"]) & executed
    kernels, what_of = _kernels(events["id"][launch])
    labels = [names.get(i, f"function {i}") for i in kernels] + [OTHER_KERNELS]
    what = np.zeros(len(events), "u4")
    what[launch] = what_of
    shown = launch.copy()
    for name, label in WORK.items():
        those = (kind == KIND[name]) & executed
        what[those] = len(labels)
        labels.append(label)
        shown |= those
    waits = kind == KIND["sync"]
    what[waits] = len(labels)
    labels.append(WAIT)
    of_streams, lane_names, left_out = _streams(events, shown)
    lane = np.full(len(events), len(lane_names), "u4")
    lane[shown] = of_streams
    lane_names.append("host waits")
    shown |= waits
    lane, what, times = lane[shown], what[shown], times[shown].astype("u8")
    lane, times, what, count, length = _merged(lane, times, what, limit)
    bounds = np.searchsorted(lane, np.arange(len(lane_names) + 1))
    lanes = [
        Lane(name, times[begin:end], what[begin:end], count[begin:end])
        for name, begin, end in zip(lane_names, bounds[:-1], bounds[1:], strict=True)
    ]
    return Timeline(lanes, labels, kernels, length, left_out)


def _kernels(ids: Array) -> tuple[list[int], Array]:
    """Returns at most NAMES function ids, those with the most launches first, and the index of each
    launch in them.
    """
    different, which, counts = np.unique(ids, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(len(order), "u4")
    rank[order] = np.minimum(np.arange(len(order)), NAMES)
    return different[order[:NAMES]].tolist(), rank[which]


def _streams(events: Array, shown: Array) -> tuple[Array, list[str], int]:
    """Returns the lane of each shown event, the names of the lanes, and how many streams share
    one.
    """
    key = events["context"][shown].astype("u8") << np.uint64(48) | events["stream"][shown]
    different, which, counts = np.unique(key, return_inverse=True, return_counts=True)
    contexts = len(np.unique(different >> np.uint64(48)))
    most = len(counts) if len(counts) <= LANES + 1 else LANES
    busy = np.sort(np.argsort(-counts, kind="stable")[:most])
    lane = np.full(len(different), len(busy), "u4")
    lane[busy] = np.arange(len(busy))
    names = []
    for value in different[busy].tolist():
        stream = value & ((1 << 48) - 1)
        name = STREAMS.get(stream, f"stream {stream}")
        names.append(f"context {value >> 48}, {name}" if contexts > 1 else name)
    left_out = len(different) - len(busy)
    if left_out:
        names.append(f"{left_out:,} other streams")
    return lane[which], names, left_out


def _merged(
    lane: Array, times: Array, what: Array, limit: int
) -> tuple[Array, Array, Array, Array, int]:
    """Returns lane, time, what and count of at most `limit` marks, and the length of the bins.

    If a bin is as long as the run, there may be more: one for each lane and name.
    """
    order = np.argsort(lane, kind="stable")
    lane, times, what = lane[order], times[order], what[order]
    count = np.ones(len(lane), "u4")
    shift = 0
    while len(lane) > limit and shift < 63:
        shift = max(shift + 1, int(times.max()).bit_length() - limit.bit_length() - 1)
        bins = times >> np.uint64(shift)
        order = np.lexsort((what, bins, lane))
        lane, times, what, count = lane[order], times[order], what[order], count[order]
        same = (np.diff(lane) == 0) & (np.diff(bins[order]) == 0) & (np.diff(what) == 0)
        starts = np.flatnonzero(np.append(True, ~same))
        count = np.add.reduceat(count, starts)
        lane, what = lane[starts], what[starts]
        times = np.minimum.reduceat(times, starts)
        order = np.lexsort((times, lane))
        lane, times, what, count = lane[order], times[order], what[order], count[order]
    return lane, times, what, count, 1 << shift if shift else 0
