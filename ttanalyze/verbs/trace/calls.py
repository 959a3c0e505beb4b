"""Driver calls in a trace: each in the lane of its thread, its work in the lane of its stream.

The run has the time of a call, not its duration. So a call lasts until the next one of its thread,
at most LENGTH. A wait lasts as long as is known: until the epoch at its end, or as the timeline
says. If the run has a timeline, the times of the work are known (work.py). Otherwise the work is
drawn as long as its call; only the order and the arrow have a meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ttanalyze.code import demangle
from ttanalyze.core.waits import Found as Waits
from ttanalyze.core.waits import capture_ends
from ttanalyze.format import event_kinds, layout
from ttanalyze.format.annotations import is_annotation
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import NO_ID, Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.trace.lanes import Lanes
from ttanalyze.verbs.trace.rows import (
    LATEST,
    LENGTH,
    Part,
    Rows,
    Template,
    Templates,
    Writer,
    groups,
)
from ttanalyze.verbs.trace.work import INEXACT, UNKNOWN, CallTimes, Work

PIECE = 1 << 15  # calls
HELD = 1 << 12  # calls that may wait for what follows them
FRAMES = 32  # of a call stack that are shown

IN_GRAPH, COOPERATIVE, SYNC_COPY, TO_HOST, FROM_HOST, PEER = 1, 2, 4, 8, 16, 32  # flags

# What rows with one template have in common.
COMMON = ("kind", "flags", "thread", "result", "context", "call", "stream", "stack")
LAUNCH = ("shared", "grid", "block", "cluster")
KEY = np.dtype(
    [(name, layout.EVENT[name]) for name in ("id", *COMMON, *LAUNCH)]
    + [("dst", "<u4"), ("src", "<u4")]  # labels of regions
    + [("state", "<u1"), ("layer", "<u2")]  # of CallTimes
)


class Calls:
    """Writes the calls of one process. count, arrows: the numbers written so far."""

    def __init__(self, process: Process, lanes: Lanes, writer: Writer) -> None:
        self._process = process
        self._lanes = lanes
        self._writer = writer
        self._names = _kernel_names(process)
        self._regions = _Regions(process)
        self._stacks: dict[int, list[str]] = {}
        self._templates = Templates(KEY, lambda key: writer.template(self._parts(key)))
        self._work = Work(process, lanes, writer)
        self._ended: dict[int, int] = {}  # by thread: when its last call ends
        self._stream_ended: dict[int, int] = {}  # by context and stream
        self._cuts = _cuts(process)
        self.count = self.arrows = 0

    def write(
        self,
        bounds: tuple[int, int],
        times: tuple[int, int],
        advance: Callable[[int], None],
        flows: int,
    ) -> None:
        """Writes calls with seq in (after, until] with their GPU work, and other work within times.
        flows: the number of earlier arrows.
        """
        after, until = bounds
        for seen, count in _held_back(_between(self._process, bounds, advance)):
            work = self._work.find(after, seen["seq"])
            waited = self._work.waited(work, seen["flags"] & SYNC_COPY != 0)
            begins, ends = (span[:count] for span in self._thread_spans(seen, count, waited))
            records = seen[:count]
            submits = _submits(records)
            call_times = self._work.call_times(work, records, submits, begins)
            spans, held = self._stream_spans(records, begins, ends, submits, call_times)
            numbers = np.cumsum(submits) + (flows + self.arrows)
            rows = self._regions.rows(records)
            at = np.append(self._process.regions.id, 0)[rows]
            columns = [records["seq"], records["bytes"], records["dst"], records["src"], at]
            templates = self._templates_of(records, rows, call_times)
            self._writer.rows(templates, Rows(((begins, ends), spans), numbers, columns))
            self.count += len(records)
            self.arrows += int(submits.sum())
            self._work.write_more(call_times.more)
            self._work.write_held(records, call_times.held, call_times.held_layers)
            self._work.write_held(records, held, np.zeros(len(held.rows), "i8"))
            if count:
                last = int(records["seq"][-1])
                none = (work.rows < 0) & (work.records["seq"] <= last)
                self._work.write_strays(work.records[none])
                after = last
        self._work.write_others(after, until)
        self._work.write_others(-1, 0, times)

    # ---- times ----

    def _thread_spans(self, records: Array, count: int, waited: Array) -> tuple[Array, Array]:
        """Returns begin and end of each call in its thread's lane, without overlaps. They are final
        for the first `count`.

        waited: until when calls lasted for certain, or 0.
        """
        times = np.minimum(records["time_ns"], LATEST).astype("i8")
        cut = np.maximum(self._cut_at(records["seq"]), waited)
        begins, ends = np.empty_like(times), np.empty_like(times)
        for thread, rows in groups(records["thread"].astype("u8")):
            some = np.maximum(np.maximum.accumulate(times[rows]), self._ended.get(thread, 0))
            follows = np.append(some[1:], LATEST.astype("i8"))
            longest = np.where(cut[rows] > some, cut[rows], some + LENGTH)
            begins[rows], ends[rows] = some, np.minimum(follows, longest)
            final = rows[rows < count]
            if len(final):
                self._ended[thread] = int(ends[final[-1]])
        return begins, ends

    def _cut_at(self, seqs: Array) -> Array:
        """Returns when epochs were cut at calls, 0 if none was."""
        calls, times = self._cuts
        if not len(calls):
            return np.zeros(len(seqs), "i8")
        at = np.minimum(np.searchsorted(calls, seqs), len(calls) - 1)
        return np.where(calls[at] == seqs, times[at], 0)

    def _stream_spans(
        self, records: Array, begins: Array, ends: Array, submits: Array, call_times: CallTimes
    ) -> tuple[tuple[Array, Array], Waits]:
        """Returns begin and end of the work in lanes of streams: as the GPU did it or, if unknown,
        in the order of submission and after the captures that it waited for.

        Without a timeline it writes these waits too.
        """
        lanes = (records["context"].astype("u8") << np.uint64(32)) ^ records["stream"]
        known = call_times.state > UNKNOWN
        first, last = (
            np.where(known, call_times.begins, begins),
            np.where(known, call_times.ends, ends),
        )
        through = np.zeros(len(records), "i8")
        if not self._work.known:
            through = capture_ends(self._process.captures, records)
        open_ = np.flatnonzero((submits & ~known) | (through > 0))
        waits = []
        for lane, some in groups(lanes[open_]):
            rows = open_[some]
            took = np.where(submits[rows], ends[rows] - begins[rows], 0)
            sums = np.cumsum(took)
            before = self._stream_ended.get(lane, 0)
            earliest = np.maximum(begins[rows], through[rows])
            earliest[0] = max(earliest[0], before)
            # Each begins when the one before ends, or as early as it can, whichever is later.
            ended = np.maximum.accumulate(earliest - (sums - took)) + sums
            first[rows] = np.minimum(ended - took, LATEST)
            last[rows] = ended = np.minimum(ended, LATEST).astype("i8")
            free = np.maximum(np.append(before, ended[:-1]), begins[rows])
            self._stream_ended[lane] = int(ended[-1])
            held = through[rows] > free
            waits.append(np.stack([rows[held], free[held], through[rows][held]]))
        found = np.concatenate([np.empty((3, 0), "i8"), *waits], axis=1)
        span = (first, last)
        if (first == begins).all() and (last == ends).all():
            span = (begins, ends)  # which writers need not look at twice
        return span, Waits(*found)

    # ---- templates ----

    def _templates_of(
        self, records: Array, regions: Array, call_times: CallTimes
    ) -> list[Template]:
        keys = np.zeros(len(records), KEY)
        for name in COMMON:
            keys[name] = records[name]
        launches = records["kind"] == KIND["launch"]
        for name in LAUNCH:
            keys[name][launches] = records[name][launches]
        keys["id"] = np.where(np.isin(records["kind"], event_kinds.NAMED), records["id"], NO_ID)
        keys["id"] = np.where(regions >= 0, 0, keys["id"])  # their numbers have a column
        keys["dst"], keys["src"] = self._regions.labels(records, regions)
        keys["state"], keys["layer"] = call_times.state, call_times.layer
        return self._templates.for_keys(keys)

    def _parts(self, key: Any) -> list[Part]:
        """Returns the parts of calls with a key: in the lane of the thread and, if they submit
        work, of the stream.
        """
        kind = layout.EVENT_KINDS[int(key["kind"])]
        call = self._process.call(int(key["call"]))
        what, args = self._description(kind, key)
        common: dict[str, Any] = {"context": int(key["context"]), **args}
        if key["stream"]:
            common["stream"] = int(key["stream"])
        if call is not None:
            common = {"call": call, **common}
        flags = int(key["flags"])
        for bit, name in ((IN_GRAPH, "recorded into a graph"), (COOPERATIVE, "cooperative")):
            if flags & bit:
                common[name] = True
        if key["result"]:
            common["result"] = int(key["result"])
        stack = self._stack(int(key["stack"]))
        if stack:
            common["caller"] = stack[0]
            common["stack"] = stack
        numbers = ("seq", *_numbers(kind))
        if key["kind"] in event_kinds.REGION and int(key["id"]) != NO_ID:
            numbers = (*numbers, "region")
        submits = bool(_submits(np.array([key]))[0])
        thread = self._lanes.thread(int(key["thread"]))
        named = what if kind in ("launch", "epoch", "control") else call or what
        flow = "out" if submits else ""
        parts = [Part(thread, named, kind, common, numbers=numbers, flow=flow)]
        if submits:
            place, state = (int(key["context"]), int(key["stream"])), int(key["state"])
            more: dict[str, Any]
            if state == UNKNOWN:
                lane = self._lanes.untimed(*place)
                more = {"GPU time": "unknown"} if key["kind"] in event_kinds.TIMED else {}
            else:
                lane = self._lanes.stream(*place, int(key["layer"]))
                more = {"coarse": True} if state == INEXACT else {}
            shown = {**common, **more}
            parts.append(Part(lane, what, kind, shown, span=1, numbers=numbers, flow="in"))
        return parts

    def _description(self, kind: str, key: Any) -> tuple[str, dict[str, Any]]:
        """Returns what a call does in a word, and further details."""
        number = int(key["id"])
        if kind == "launch":
            mangled = self._process.kernel(number) or "unknown kernel"
            full = self._names.get(mangled, mangled)
            args: dict[str, Any] = {"kernel": full}
            args |= {n: key[n].tolist() for n in ("grid", "block")}
            args |= {"cluster": key["cluster"].tolist()} if key["cluster"].any() else {}
            return demangle.short(full), {**args, "shared": int(key["shared"])}
        args = {}
        for side, label in (("label", key["dst"]), ("source_label", key["src"])):
            name = self._process.strings.get(int(label))
            args |= {} if name is None else {side: name}
        if kind == "epoch" and number != NO_ID:
            return f"epoch {number}", {"epoch": number}
        if kind == "control" and number:
            return kind, {"controls": self._process.strings.get(number) or ""}
        if key["kind"] in event_kinds.MODULE and number != NO_ID:
            args["module"] = number
        if key["kind"] in event_kinds.GRAPH and number != NO_ID:
            return f"graph {number}" if kind == "graph-launch" else kind, {"graph": number}
        if kind == "copy":
            return _copy(int(key["flags"])), args
        return kind, args

    def _stack(self, number: int) -> list[str]:
        if number and number not in self._stacks:
            frames = self._process.stack(number)
            texts = [_frame(*frame) for frame in frames[:FRAMES]]
            texts += [f"… {len(frames) - FRAMES} more"] if len(frames) > FRAMES else []
            self._stacks[number] = texts
        return self._stacks.get(number, [])


def _frame(function: str, file: str, line: int) -> str:
    return f"{function} ({file}:{line})" if line else f"{function} ({file})"


def _numbers(kind: str) -> tuple[str, ...]:
    return {
        "copy": ("bytes", "dst", "src"),
        "set": ("bytes", "dst"),
        "alloc": ("bytes", "dst"),
        "free": ("dst",),
        "mem-op": ("dst",),
        "event-record": ("src",),
        "event-wait": ("src",),
    }.get(kind, ())


def _copy(flags: int) -> str:
    sides = [name for bit, name in ((FROM_HOST, "from host"), (TO_HOST, "to host")) if flags & bit]
    sides += ["between devices"] if flags & PEER else []
    return " ".join(["copy", *sides])


def _submits(records: Array) -> Array:
    """Returns whether each call put work into a stream: not if it failed or was captured."""
    kinds = np.isin(records["kind"], event_kinds.STREAM)
    return np.asarray(kinds & (records["result"] == 0) & (records["flags"] & IN_GRAPH == 0))


def _between(
    process: Process, bounds: tuple[int, int], advance: Callable[[int], None]
) -> Iterator[Array]:
    after, until = bounds
    for records in process.events_by_seq(PIECE):
        advance(len(records))
        seqs = records["seq"]
        if len(seqs) and int(seqs[0]) > until:
            break
        inside = (seqs > after) & (seqs <= until) & ~is_annotation(records["kind"])
        yield records if inside.all() else layout.take(records, inside)


def _held_back(pieces: Iterator[Array]) -> Iterator[tuple[Array, int]]:
    """Yields calls, and how many of the first are meant. The others come again; the first ones end
    where they begin.
    """
    rest = np.empty(0, layout.EVENT)
    for records in pieces:
        records = np.concatenate([rest, records]) if len(rest) else records
        if not len(records):
            continue
        late = records["time_ns"] + np.uint64(LENGTH) > records["time_ns"].max()
        count = max(int(late.argmax()), len(records) - HELD, 0)
        yield records, count
        rest = records[count:].copy()
    yield rest, len(rest)


def _kernel_names(process: Process) -> dict[str, str]:
    """Returns demangled names of kernels by mangled ones."""
    offsets = layout.distinct(process.functions["name"]).tolist()
    names = [name for name in map(process.strings.get, offsets) if name is not None]
    return dict(zip(names, demangle.demangle(names), strict=True))


def _cuts(process: Process) -> tuple[Array, Array]:
    """Returns waiting calls at which epochs were cut: their seq, and the time of the cut."""
    epochs = process.epochs
    waits = epochs[epochs["trigger"] == layout.TRIGGERS.index("sync")]
    waits = waits[np.argsort(waits["seq"], kind="stable")]
    return waits["seq"], np.minimum(waits["time_ns"], LATEST).astype("i8")


class _Regions:
    """The regions that calls name, and their labels as offsets of strings."""

    def __init__(self, process: Process) -> None:
        regions = process.regions
        self._label = np.append(regions.label, np.uint32(NO_ID))  # the last: of no region
        self._calls = {
            KIND["alloc"]: _by_value(regions.birth["seq"]),
            KIND["free"]: _by_value(regions.death_seq),
        }
        rows = np.flatnonzero(regions.label != NO_ID)
        rows = rows[np.lexsort([regions.birth["seq"][rows], regions.birth["base"][rows]])]
        self._labelled = rows
        self._base, self._size = regions.birth["base"][rows], regions.size[rows]
        self._born = regions.birth["seq"][rows]
        alive = regions.died[rows] == layout.NO_EPOCH
        self._died = np.where(alive, ~np.uint64(0), regions.death_seq[rows])

    def rows(self, records: Array) -> Array:
        """Returns the rows of regions that calls allocate or free, -1 if there is none."""
        out = np.full(len(records), -1, "i8")
        for kind, (seqs, rows) in self._calls.items():
            at = np.flatnonzero(records["kind"] == kind)
            if len(seqs) and len(at):
                place = np.minimum(np.searchsorted(seqs, records["seq"][at]), len(seqs) - 1)
                out[at] = np.where(seqs[place] == records["seq"][at], rows[place], -1)
        return out

    def labels(self, records: Array, rows: Array) -> tuple[Array, Array]:
        """Returns the labels of regions that calls allocate, free or write, and of those that they
        read.
        """
        to, source = self._label[rows], np.full(len(records), NO_ID, "u4")
        moving = np.flatnonzero(np.isin(records["kind"], event_kinds.MOVE))
        if len(self._labelled) and len(moving):
            seqs = records["seq"][moving]
            to[moving] = self._label_at(records["dst"][moving], seqs)
            source[moving] = self._label_at(records["src"][moving], seqs)
        return to, source

    def _label_at(self, addresses: Array, seqs: Array) -> Array:
        """Returns the labels of regions that contain addresses at calls: of several at one base,
        the live one.
        """
        at = np.searchsorted(self._base, addresses, "right") - 1
        out = np.full(len(addresses), NO_ID, "u4")
        open_ = np.flatnonzero(at >= 0)
        while len(open_):
            row = at[open_]
            inside = addresses[open_] - self._base[row] < self._size[row]
            lived = (self._born[row] <= seqs[open_]) & (seqs[open_] < self._died[row])
            found = inside & lived
            out[open_[found]] = self._label[self._labelled[row[found]]]
            again = ~found & (row > 0) & (self._base[row] == self._base[row - 1])
            open_ = open_[again]
            at[open_] -= 1
        return out


def _by_value(values: Array) -> tuple[Array, Array]:
    """Returns sorted values, and the index of each."""
    order = np.argsort(values, kind="stable")
    return values[order], order
