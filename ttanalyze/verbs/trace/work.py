"""GPU work in a trace, at its recorded times, in the lanes of its streams.

Work of one stream may overlap, such as kernels of a graph or of early launches. A lane shows only
nested items, so a stream has as many lanes (layers) as needed. The work of a graph is nested in the
graph.

Work is never drawn before its call, although the clocks may differ that much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.code import demangle
from ttanalyze.core.waits import Found as FoundWaits
from ttanalyze.core.waits import Waits
from ttanalyze.format import activities, event_kinds, layout
from ttanalyze.format.activities import COARSE, OWN, SYNC
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import NO_ID, Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.trace.capture_waits import CaptureWaits
from ttanalyze.verbs.trace.lanes import Lanes
from ttanalyze.verbs.trace.rows import LATEST, Part, Rows, Template, Templates, Writer, groups

PIECE = 1 << 15  # activities
NO_WAITS = FoundWaits(*(np.empty(0, "i8") for _ in range(3)))
LAYERS = 128  # of a lane; what more there is at a time is cut short
UNKNOWN, TIMED, INEXACT = 1, 2, 3  # how well the time of a call's work is known; 0: not needed
LAUNCH, GRAPH, COPY = KIND["launch"], KIND["graph-launch"], KIND["copy"]
READY = KIND["region-ready"]
OF_CALLS, OF_NONE, OF_RECORDER = range(3)  # whose work it is, which says in which lanes

KEY = np.dtype(
    [("whose", "<u1"), ("layer", "<u2"), ("node", "<u1")]
    + [(n, layout.ACTIVITY[n]) for n in ("kind", "flags", "context", "device", "stream", "name")]
)


@dataclass(frozen=True)
class Found:
    """Activities of some calls, by call and begin. rows: the index of the call, -1 if there is
    none.
    """

    records: Array
    rows: Array


@dataclass(frozen=True)
class ExtraActivities:
    """Activities and their lanes: by owner, context and stream, and layer."""

    records: Array
    whose: Array
    layer: Array
    begins: Array
    ends: Array


@dataclass(frozen=True)
class CallTimes:
    """The GPU times of calls, one item per call.

    state: UNKNOWN, TIMED, INEXACT or 0. begins, ends: for TIMED and INEXACT. more: the work of
    graphs, and all but the first activity of a call. held: waits for captures, and their layers.
    """

    state: Array
    layer: Array
    begins: Array
    ends: Array
    more: ExtraActivities
    held: FoundWaits
    held_layers: Array


class Work:
    """The GPU work of one process. known: whether there is any."""

    def __init__(self, process: Process, lanes: Lanes, writer: Writer) -> None:
        self._process = process
        self._lanes = lanes
        self._writer = writer
        self.known = process.activities.there
        self._names: dict[int, str] = {NO_ID: "unknown kernel"}
        self._templates = Templates(KEY, self._template)
        self._waits = Waits(process.captures)
        self._capture_waits = CaptureWaits(process, lanes, writer)
        self._ended: dict[int, list[int]] = {}  # by lane: when the last thing in each layer ends

    def find(self, after: int, calls: Array) -> Found:
        """Returns the activities of calls by seq, and others with seq in (after, the last of them],
        such as the recorder's own in graphs.
        """
        if not self.known or not len(calls):
            return Found(np.empty(0, layout.ACTIVITY), np.empty(0, "i8"))
        records = self._process.activities.between(after, int(calls[-1]))
        rows = activities.rows_of(calls, records["seq"])
        rows[records["flags"] & OWN != 0] = -1
        return Found(records, rows)

    @staticmethod
    def waited(found: Found, until_copied: Array) -> Array:
        """Returns until when the host certainly was in each call: waiting for the GPU or, if
        requested, for the copy. 0 if unknown.
        """
        until = np.zeros(len(until_copied), "i8")
        of_calls = found.rows >= 0
        records, rows = found.records[of_calls], found.rows[of_calls]
        meant = (records["kind"] == SYNC) | (until_copied[rows] & (records["kind"] == COPY))
        np.maximum.at(until, rows[meant], _times(records["end_ns"][meant]))
        return until

    def call_times(self, found: Found, calls: Array, submits: Array, made: Array) -> CallTimes:
        """Returns the times of calls: tt_event records, the first of those that were looked for.

        submits: which of them submit GPU work. made: their times.
        """
        mine = (found.rows >= 0) & (found.rows < len(calls)) & (found.records["kind"] != SYNC)
        records, rows = found.records[mine], found.rows[mine]
        first = np.maximum(_times(records["begin_ns"]), made[rows])
        last = np.maximum(_times(records["end_ns"]), first)
        # A call is where the first thing done for it is, a graph where all of it is.
        new = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
        head = np.flatnonzero(new & submits[rows])
        of = rows[head]
        of_graph = submits[rows] & (calls["kind"][rows] == GRAPH)
        if of_graph.any():
            latest = np.maximum.reduceat(last, np.flatnonzero(new))[np.cumsum(new) - 1]
            graphs = head[of_graph[head]]
            whole = last.copy()
            whole[graphs] = latest[graphs]
        else:
            whole = last
        rest = np.ones(len(records), bool)
        rest[head] = False
        rest = np.flatnonzero(np.where(of_graph, records["kind"] != GRAPH, rest))
        state = np.where(submits & self.known, UNKNOWN, 0).astype("u1")
        state[of] = np.where(records["flags"][head] & COARSE != 0, INEXACT, TIMED)
        streams = _lane(calls)
        since, until = first[head], whole[head]
        waits = held = NO_WAITS  # without a timeline there is nothing to find them by
        if self.known:
            waits, held = self._waits.find(calls, streams, submits, made, of, (since, until))
        state[waits.rows] = TIMED
        of = np.append(of, waits.rows)
        since, until = np.append(since, waits.begins), np.append(until, waits.ends)
        # In lanes: calls, then the rest, of which what is a graph's lies in it, and waits.
        more = records[rest].copy()
        whose = self._whose(more, OF_CALLS)
        whose[np.isin(calls["kind"][rows[rest]], (LAUNCH, GRAPH))] = OF_CALLS
        unsaid = of_graph[rest] | (more["stream"] == 0) | (more["context"] == NO_ID)
        for name in ("context", "stream"):
            more[name] = np.where(unsaid, calls[name][rows[rest]], more[name])
        place_of = np.zeros(len(calls), "i8")
        place_of[of] = np.arange(len(of))
        inside = np.where(of_graph[rest], place_of[rows[rest]], -1)
        lanes = np.concatenate([streams[of], _lane(more, whose), streams[held.rows]])
        begins = np.concatenate([since, first[rest], held.begins])
        ends = np.concatenate([until, last[rest], held.ends])
        outer = (np.full(len(some), -1) for some in (of, held.rows))
        layers = self._layers(lanes, begins, ends, np.concatenate([next(outer), inside, *outer]))

        layer, begin, end = (np.zeros(len(calls), "i8") for _ in range(3))
        count, behind = len(of), len(of) + len(rest)
        layer[of], begin[of], end[of] = layers[:count], begins[:count], ends[:count]
        spans = (column[count:behind] for column in (layers, begins, ends))
        held = FoundWaits(held.rows, begins[behind:], ends[behind:])
        return CallTimes(
            state, layer, begin, end, ExtraActivities(more, whose, *spans), held, layers[behind:]
        )

    def write_held(self, calls: Array, held: FoundWaits, layers: Array) -> None:
        """Writes waits for captures, by row of their calls."""
        self._capture_waits.write(calls[held.rows], held.begins, held.ends, layers)

    def write_more(self, more: ExtraActivities) -> None:
        records = more.records
        self._learn(records["name"])
        keys = np.zeros(len(records), KEY)
        for name in ("kind", "flags", "context", "device", "stream", "name"):
            keys[name] = records[name]
        keys["whose"], keys["layer"], keys["node"] = more.whose, more.layer, records["node"] != 0
        zeros = np.zeros(len(records), "u8")
        nodes, _ = activities.nodes_of(records)
        columns = [records["seq"], records["bytes"], zeros, zeros, zeros, nodes]
        span = (more.begins, more.ends)
        self._writer.rows(self._templates.for_keys(keys), Rows((span, span), zeros, columns))

    def write_others(
        self, after: int, until: int, times: tuple[int, int] = (0, int(LATEST))
    ) -> None:
        """Writes work of no recorded call with seq in (after, until], or without a known call (-1
        and 0), that began in [first, last) of these times.
        """
        pieces = self._process.activities.by_seq(PIECE, after, until) if self.known else ()
        for records in pieces:
            begins = _times(records["begin_ns"])
            inside = (begins >= times[0]) & (begins < times[1]) & (records["kind"] != SYNC)
            self.write_strays(records[inside])

    def write_strays(self, records: Array) -> None:
        """Writes activities of no recorded call."""
        whose = self._whose(records, OF_NONE)
        begins, ends = _times(records["begin_ns"]), _times(records["end_ns"])
        layers = self._layers(_lane(records, whose), begins, ends, np.full(len(records), -1))
        self.write_more(ExtraActivities(records, whose, layers, begins, ends))

    # ---- lanes and layers ----

    def _whose(self, records: Array, others: int) -> Array:
        """Returns OF_RECORDER or others."""
        by_recorder = records["flags"] & OWN != 0
        return np.asarray(np.where(by_recorder, OF_RECORDER, others), "u1")

    def _layers(self, lanes: Array, begins: Array, ends: Array, inside: Array) -> Array:
        """Returns a layer for each item, so that items in a layer of a lane are nested or do not
        overlap.

        inside: the earlier item that contains it, or -1. If there are no layers left, items begin
        later than they did.
        """
        layers = np.zeros(len(lanes), "u2")
        for lane, rows in groups(lanes):
            rows = rows[np.lexsort((ends[rows], inside[rows] >= 0, begins[rows]))]
            ended = self._ended.setdefault(lane, [0])
            held = inside[rows] >= 0
            outer, inner = rows[~held], rows[held]
            if (
                begins[outer[0]] >= ended[0]
                and (begins[outer[1:]] >= ends[outer[:-1]]).all()
                and (begins[inner[1:]] >= ends[inner[:-1]]).all()
            ):
                ended[0] = int(ends[outer[-1]])
            else:
                _spread(rows, begins, ends, inside, layers, ended)
        return layers

    # ---- templates ----

    def _learn(self, names: Array) -> None:
        new = [name for name in layout.distinct(names).tolist() if name not in self._names]
        if new:
            mangled = [self._process.strings.get(name) or "" for name in new]
            self._names.update(zip(new, demangle.demangle(mangled), strict=True))

    def _template(self, key: Any) -> Template:
        kind, layer = int(key["kind"]), int(key["layer"])
        category = layout.EVENT_KINDS[kind]
        args: dict[str, Any] = {}
        name = category
        if kind == LAUNCH:
            full = self._names[int(key["name"])]
            name, args = demangle.short(full), {"kernel": full}
        if kind == READY:
            name = f"waits for {self._names[int(key['name'])]}"
        args |= {"context": int(key["context"])} if key["context"] != NO_ID else {}
        args |= {"stream": int(key["stream"])} if key["stream"] else {}
        args |= {"coarse": True} if int(key["flags"]) & COARSE else {}
        args |= {"stamped": True} if int(key["flags"]) & activities.STAMPED else {}
        numbers: tuple[str, ...] = ("bytes",) if kind in event_kinds.MOVE else ()
        numbers += ("node",) if key["node"] else ()
        if key["whose"] == OF_CALLS:
            lane = self._lanes.stream(int(key["context"]), int(key["stream"]), layer)
            numbers = ("seq", *numbers)
        elif key["whose"] == OF_RECORDER:
            lane = self._lanes.recorder(int(key["device"]), layer)
        else:
            lane = self._lanes.unattributed(int(key["device"]), layer)
        return self._writer.template([Part(lane, name, category, args, numbers=numbers)])


def _times(times: Array) -> Array:
    return np.asarray(np.minimum(times, LATEST), "i8")


def _lane(records: Array, whose: Array | None = None) -> Array:
    """Returns a number for the lane of each activity or call."""
    lanes = (records["context"].astype("u8") << np.uint64(32)) ^ records["stream"]
    if whose is None:
        return np.asarray(lanes)
    others = (whose.astype("u8") << np.uint64(62)) | records["device"]
    return np.asarray(np.where(whose == OF_CALLS, lanes, others))


def _spread(
    rows: Array, begins: Array, ends: Array, inside: Array, layers: Array, ended: list[int]
) -> None:
    """Assigns layers to items of one lane, by begin. ended: see Work._ended."""
    within = list(ended)  # by layer: when the last thing inside its last one ends
    for row, begin, end, holder in zip(
        rows.tolist(),
        begins[rows].tolist(),
        ends[rows].tolist(),
        inside[rows].tolist(),
        strict=True,
    ):
        if holder >= 0 and begin >= within[layers[holder]]:
            layers[row] = layers[holder]
            within[layers[holder]] = end
            continue
        free = next((i for i, last in enumerate(ended) if last <= begin), len(ended))
        if free == LAYERS:
            free = LAYERS - 1
            begins[row] = begin = ended[free]
            ends[row] = end = max(begin, end)
            layers[row], ended[free], within[free] = free, end, end
            continue
        if free == len(ended):
            ended.append(0)
            within.append(0)
        layers[row], ended[free], within[free] = free, end, begin
