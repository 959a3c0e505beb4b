"""The timeline of a report: a lane per stream with launches, copies and sets, and one for waits of
the host. Work has the time at which the GPU did it, if that was recorded, else that of its call.

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

    time (relative, ascending), length (0 if unknown), called (the time of the call), what (index
    into the names), count: arrays of the same length.
    """

    name: str
    time: Array
    length: Array
    called: Array
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


def timeline(
    events: Array, called: Array, times: Array, lengths: Array, names: dict[int, str], limit: int
) -> Timeline:
    """Returns the timeline of a process.

    events: by seq. called, times, lengths: of each. names: of kernels, by function id. limit: the
    maximal number of marks.
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
    marks = _Marks(
        lane[shown],
        times[shown].astype("u8"),
        lengths[shown].astype("u8"),
        called[shown].astype("u8"),
        what[shown],
        np.ones(int(shown.sum()), "u4"),
    )
    marks, length = _merged(marks, limit)
    lane = marks.lane
    bounds = np.searchsorted(lane, np.arange(len(lane_names) + 1))
    lanes = [
        Lane(name, *(a[begin:end] for name, a in vars(marks).items() if name != "lane"))
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


@dataclass(frozen=True)
class _Marks:
    lane: Array
    time: Array
    length: Array
    called: Array
    what: Array
    count: Array

    def take(self, rows: Array) -> _Marks:
        return _Marks(*(a[rows] for a in vars(self).values()))


def _merged(marks: _Marks, limit: int) -> tuple[_Marks, int]:
    """Returns at most `limit` marks by lane and time, and the length of the bins.

    If a bin is as long as the run, there may be more: one for each lane and name. A merged mark is
    as long as its parts together.
    """
    marks = marks.take(np.lexsort((marks.time, marks.lane)))
    shift = 0
    while len(marks.lane) > limit and shift < 63:
        most = int(marks.time.max())
        shift = max(shift + 1, most.bit_length() - limit.bit_length() - 1)
        bins = marks.time >> np.uint64(shift)
        order = np.lexsort((marks.what, bins, marks.lane))
        marks = marks.take(order)
        same = (np.diff(marks.lane) == 0) & (np.diff(bins[order]) == 0) & (np.diff(marks.what) == 0)
        starts = np.flatnonzero(np.append(True, ~same))
        marks = _Marks(
            marks.lane[starts],
            np.minimum.reduceat(marks.time, starts),
            np.add.reduceat(marks.length, starts),
            np.minimum.reduceat(marks.called, starts),
            marks.what[starts],
            np.add.reduceat(marks.count, starts),
        )
        marks = marks.take(np.lexsort((marks.time, marks.lane)))
    return marks, 1 << shift if shift else 0
