"""The work between two epochs as steps with their dependencies. Uses no driver.

Invariant: every order in which each step comes after the steps in its `after` is one in which the
device may have run them. Work that cannot be repeated is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from ttanalyze.core.writers import HOW, POSSIBLE, WRITES, writers
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, layout, modules
from ttanalyze.format import graphs as model
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.gpu.rebuild.epochs import (
    check_epochs,
    check_first,
    check_recorded,
    good_epochs,
    known_of,
)
from ttanalyze.gpu.rebuild.live_regions import LiveRegions
from ttanalyze.gpu.rebuild.steps import (
    Fill,
    Launch,
    Move,
    Rows,
    Span,
    Step,
    Upload,
    Used,
    cut,
    rows_of,
    three,
)
from ttanalyze.output import text

REGION = {name: number for number, name in enumerate(layout.REGION_KINDS) if name}
FLAGS = {
    name: layout.constant(f"TT_EVENTF_{name.upper()}")
    for name in ("capturing", "cooperative", "sync_copy", "host_dst")
}
ORDERS = ("streams", "serial")
LEGACY, PER_THREAD = 1, 2  # numbers of streams
HOST = (REGION["host"], REGION["host-registered"])
ELSEWHERE = (0, 2, 4)  # CU_LAUNCH_ATTRIBUTE_IGNORE, and those that the event has
LAST_ATTRIBUTE = 1 << 16  # numbers of launch attributes are smaller
JOIN = 4  # steps that all others come after, from which on one stands for them


def span(process: Process, first: int, last: int, order: str = "streams") -> Span:
    """Returns the steps from epoch first to last; raises Error if one cannot be repeated.

    order: "streams" or "serial".
    """
    if order not in ORDERS:
        raise Error(f"order {order!r}: must be one of {', '.join(ORDERS)}")
    check_epochs(process, first, last)
    check_recorded(process)
    return _Reader(process, first, cut(process, last), last, order).read()


def span_to(process: Process, first: int, seq: int) -> Span:
    """Returns the serial steps from an epoch to a call; raises Error if one cannot be repeated."""
    check_first(process, first)
    check_recorded(process)
    return _Reader(process, first, seq, None, "serial").read()


class _Reader:
    """Reads the calls in order, up to the call `until`."""

    def __init__(
        self, process: Process, first: int, until: int, last: int | None, order: str
    ) -> None:
        self._process = process
        self._first, self._until, self._last = first, until, last
        self._serial = order == "serial"
        self._context = int(process.epochs[first]["context"])
        self._begin = cut(process, first)
        self._good = good_epochs(process, self._context)
        if last is not None:
            self._good = self._good[self._good <= last]
        self._alive = LiveRegions(process, self._begin + 1)
        self._lived = dict.fromkeys(self._alive.rows)
        self._used: Used | None = None
        self._steps: list[Step] = []
        self._tails: dict[Any, tuple[int, ...]] = {}  # by stream, what its next step comes after
        self._floor: tuple[int, ...] = ()  # what every later step comes after
        self._events: dict[int, tuple[int, ...]] = {}
        self._values: dict[int, tuple[int, ...]] = {}  # by address, what a wait comes after
        self._left_out: Counter[tuple[str, str]] = Counter()

    def read(self) -> Span:
        for event in self._process.events_between(self._begin, self._until):
            self._lives(int(event["seq"]))
            if event["result"] or event["flags"] & FLAGS["capturing"]:
                continue
            if int(event["context"]) == self._context:
                self._event(event)
            elif event["kind"] in event_kinds.MOVE and self._is_ours(
                self._alive.find(int(event["dst"]))
            ):
                other = int(event["context"])
                raise self._refuse(event, f"it writes to memory of this context in context {other}")
        self._lives(self._until + 1)
        rows = np.array(list(self._lived), "i8")
        rows = rows[self._process.regions.birth["context"][rows] == self._context]
        out = [text.count(n, *what) for what, n in self._left_out.items()]
        return Span(self._process, self._first, self._last, self._steps, rows, out)

    # ---- what lives ----

    def _lives(self, seq: int) -> None:
        born = self._alive.advance(seq)
        if born and self._used is None:
            self._used = Used()
            for row in self._lived:
                self._is_used(row)
        for row in born:
            used = self._is_used(row)
            self._lived.setdefault(row)
            birth = self._process.regions.birth[row]
            if int(birth["context"]) != self._context:
                continue
            if birth["kind"] == REGION["arena"]:  # which is zero when it is given out
                self._barrier()
                size = int(birth["size"])
                if size:
                    fill = Fill(int(birth["base"]), size, 0, 1)
                    self._floor = (self._step(int(birth["seq"]), fill, self._floor),)
            elif used:
                self._barrier()

    def _is_used(self, row: int) -> bool:
        """Returns whether the memory of a region belonged to another one within the span."""
        birth = self._process.regions.birth
        assert self._used is not None
        return self._used.add(int(birth["base"][row]), int(birth["size"][row]))

    # ---- order ----

    def _step(self, seq: int, what: Any, after: Iterable[int]) -> int:
        self._steps.append(Step(seq, what, tuple(sorted(set(after)))))
        return len(self._steps) - 1

    def _stream(self, event: Any) -> Any:
        number = int(event["stream"])
        return (number, int(event["thread"])) if number == PER_THREAD else number

    def _everything(self) -> tuple[int, ...]:
        return self._joined([self._floor, *self._tails.values()])

    def _joined(self, parts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        """Returns the steps that no other one follows directly, as one step if more than JOIN."""
        steps = {step for part in parts for step in part}
        for step in list(steps):
            steps -= set(self._steps[step].after)
        if len(steps) > JOIN:
            last = max(self._steps[step].seq for step in steps)
            return (self._step(last, None, steps),)
        return tuple(steps)

    def _barrier(self) -> None:
        """Makes all later work depend on all earlier work."""
        self._floor = self._everything()
        self._tails.clear()

    def _waited(self, steps: tuple[int, ...]) -> None:
        """Notes that the host waited for steps."""
        self._floor = self._joined([self._floor, steps])

    def _tail(self, event: Any) -> tuple[int, ...]:
        """Returns the steps that a call in its stream depends on."""
        stream = self._stream(event)
        if self._serial or stream == LEGACY:
            return self._everything()
        return self._joined([self._tails.get(stream, ()), self._floor])

    def _submit(self, event: Any, what: Any) -> None:
        step = self._step(int(event["seq"]), what, self._tail(event))
        self._follows(event, (step,))

    def _follows(self, event: Any, steps: tuple[int, ...]) -> None:
        """Makes later calls of the stream (of all streams for the default one) depend on steps."""
        if self._serial or self._stream(event) == LEGACY:
            self._tails.clear()
            self._floor = steps
        else:
            self._tails[self._stream(event)] = steps

    # ---- calls ----

    def _event(self, event: Any) -> None:
        handler = HANDLERS.get(int(event["kind"]))
        if handler is not None:
            handler(self, event)

    def _refuse(self, event: Any, why: str) -> Error:
        call = self._process.call(int(event["call"])) or "a call"
        return Error(f"call {int(event['seq'])} ({call}) can't be replayed: {why}")

    def _launch(self, event: Any) -> None:
        function = int(event["id"])
        if function == layout.NO_ID:
            raise self._refuse(event, "its kernel is unknown")
        params, cooperative = self._process.params(event), event["flags"] & FLAGS["cooperative"]
        launch = self._launch_of(event, event, params, bool(cooperative))
        self._submit(event, self._in_force(event, launch))

    def _in_force(self, event: Any, launch: Launch) -> Launch:
        """Returns a launch with its recorded attributes and settings."""
        launches = self._process.launches
        at = int(np.searchsorted(launches["seq"], event["seq"]))
        if at == len(launches) or launches["seq"][at] != event["seq"]:
            return launch
        param_records, record = self._process.kept, launches[at]
        given = param_records.attributes(record)
        attributes = zip(given["id"].tolist(), given["value"], strict=True)
        settings = param_records.settings(record)
        if (given["id"] > LAST_ATTRIBUTE).any():
            raise self._refuse(event, f"it has launch attribute {given['id'].max()}")
        names = (layout.SETTING_KINDS[what] for what in settings["what"].tolist())
        found = zip(names, settings["number"].tolist(), settings["value"].tolist(), strict=True)
        return replace(
            launch,
            attributes=tuple((n, bytes(value)) for n, value in attributes if n not in ELSEWHERE),
            settings=tuple(found),
        )

    def _launch_of(self, event: Any, record: Any, params: bytes, cooperative: bool) -> Launch:
        """Returns a launch. record: the event, or a node of a graph."""
        function = int(record["function" if "function" in record.dtype.names else "id"])
        kernel = modules.function(self._process, function)
        if kernel is None:
            raise self._refuse(event, "its kernel is unknown")
        if kernel["param_count"] and not params:
            name = self._process.kernel(function)
            raise self._refuse(event, f"the parameters of {name} were not recorded")
        grid, block, cluster = (three(record[of]) for of in ("grid", "block", "cluster"))
        shared = int(record["shared"])
        return Launch(function, grid, block, cluster, shared, cooperative, params)

    def _copy(self, event: Any) -> None:
        dst, src, size = (int(event[name]) for name in ("dst", "src", "bytes"))
        what = None
        if not event["flags"] & FLAGS["host_dst"]:
            if dst and src and self._is_vague(event):
                raise self._refuse(event, "the pitch of the rows that it copies is unknown")
            what = self._copied(event, dst, src, size, rows_of(event), True)
        if what is not None:
            self._submit(event, what)
        if event["flags"] & FLAGS["sync_copy"]:
            self._waited(self._tail(event))

    def _is_vague(self, event: Any) -> bool:
        """Returns whether a copy has rows at unknown distances."""
        name = self._process.call(int(event["call"])) or ""
        return any(part in name for part in ("2D", "3D")) and not event["grid"].any()

    def _copied(
        self, event: Any, dst: int, src: int, size: int, rows: Rows | None, alone: bool
    ) -> Move | Upload | None:
        """Returns what a copy does to the context's memory. alone: the call did nothing else."""
        to, source = self._alive.find(dst), self._alive.find(src)
        if not dst or not src:
            raise self._refuse(event, "it copies from or to an array, or a list of places")
        if not self._is_ours(to) or not size:
            return None
        if rows is not None:
            size //= rows.rows * rows.slices
        reach = size if rows is None else rows.reach(size)
        if not size or reach > self._process.regions.size.sum():
            raise self._refuse(event, "it copies more than there is: its record is damaged")
        if not self._is_ours(source):
            return self._upload(event, to, dst, size, rows, alone)
        return Move(dst, src, size, rows)

    def _is_ours(self, row: int | None) -> TypeGuard[int]:
        """Returns whether a region is memory of the context."""
        if row is None:
            return False
        birth = self._process.regions.birth[row]
        return int(birth["context"]) == self._context and int(birth["kind"]) not in HOST

    def _upload(
        self, event: Any, row: int, dst: int, size: int, rows: Rows | None, alone: bool
    ) -> Upload:
        """Returns a copy from elsewhere. Its bytes come from the next epoch."""
        region = int(self._process.regions.id[row])
        seq = int(event["seq"])
        epoch = self._next_epoch(seq, row)
        if epoch is None:
            raise self._refuse(event, "no epoch has the bytes that it copied")
        others = writers(self._process, region, seq, cut(self._process, epoch))
        reach = size if rows is None else rows.reach(size)
        doubt = "" if alone else "other nodes of the graph may write there"
        for other, how in zip(others.events, others.how.tolist(), strict=True):
            what = self._process.kernel(int(other["id"])) if other["kind"] == KIND["launch"] else ""
            what = what or self._process.call(int(other["call"]))
            begin = int(other["dst"])
            if how == WRITES and other["kind"] in REACH:
                if begin < dst + reach and dst < begin + REACH[int(other["kind"])](other):
                    after = f"call {int(other['seq'])} ({what}) wrote there before epoch {epoch}"
                    raise self._refuse(
                        event,
                        f"the bytes that it copied from the host are unknown: {after}; "
                        "record with --epoch memcpy",
                    )
                if not self._is_vague(other):
                    continue
            if how <= POSSIBLE and not doubt:
                doubt = f"{what} (call {int(other['seq'])}) {HOW[how]}"
        base = int(self._process.regions.birth["base"][row])
        return Upload(dst, size, region, dst - base, epoch, doubt, rows)

    def _next_epoch(self, seq: int, row: int) -> int | None:
        """Returns the first epoch of the context from a call on that may have a region's
        contents.
        """
        regions = self._process.regions
        good, number = self._good, int(regions.id[row])
        at = np.searchsorted(self._process.coverage.whole[good], seq)
        at = max(at, np.searchsorted(good, regions.born[row]))
        for epoch in good[at : np.searchsorted(good, regions.died[row])].tolist():
            known = known_of(self._process, epoch - 1, epoch)
            if known is None or number in known:
                return int(epoch)
        return None

    def _set(self, event: Any) -> None:
        dst, size, item = (int(event[name]) for name in ("dst", "bytes", "shared"))
        if not item:
            raise self._refuse(event, "its value was not recorded")
        if not self._is_ours(self._alive.find(dst)):
            return
        width, rows = int(event["grid"][0]), int(event["grid"][1])
        if not size or (rows and not width):
            return
        fill = Fill(dst, size, int(event["src"]), item)
        if rows:
            fill = Fill(dst, width * item, int(event["src"]), item, rows, size // rows)
        self._submit(event, self._possible(event, fill))
        if event["flags"] & FLAGS["sync_copy"]:
            self._waited(self._tail(event))

    def _possible(self, event: Any, fill: Fill) -> Fill:
        """Returns a set. Raises Error for one that no driver accepts."""
        if fill.item not in (1, 2, 4) or fill.size % fill.item or fill.value >> 8 * fill.item:
            raise self._refuse(event, "its destination can't be set: its record is damaged")
        if fill.rows > 1 and fill.pitch < fill.size:
            raise self._refuse(event, "its rows overlap: its record is damaged")
        return fill

    def _launch_host(self, event: Any) -> None:
        self._left_out["host function", "host functions"] += 1

    def _mem_op(self, event: Any) -> None:
        name = self._process.call(int(event["call"])) or ""
        if "WriteValue" in name and event["shared"]:
            return self._write_value(event)
        if "WaitValue" not in name:
            raise self._refuse(event, "the values that it writes are unknown")
        written = self._values.get(int(event["src"]), ())
        if written:
            self._follows(event, self._joined([self._tail(event), written]))
        else:
            self._left_out["wait for a value", "waits for values"] += 1

    def _write_value(self, event: Any) -> None:
        """Notes a write of a value. A wait for a value depends on the last write."""
        dst, size = int(event["dst"]), int(event["shared"])
        words = int(event["src"]).to_bytes(8, "little")
        if self._is_ours(self._alive.find(dst)):
            for at in range(0, size, 4):
                value = int.from_bytes(words[at : at + 4], "little")
                self._submit(event, self._possible(event, Fill(dst + at, 4, value, 4)))
        self._values[dst] = self._tail(event)

    def _event_record(self, event: Any) -> None:
        self._events[int(event["src"])] = self._tail(event)

    def _event_wait(self, event: Any) -> None:
        steps = self._events.get(int(event["src"]), ())
        if steps:
            self._follows(event, self._joined([self._tail(event), steps]))

    def _sync(self, event: Any) -> None:
        if event["src"]:
            self._waited(self._events.get(int(event["src"]), ()))
        elif not event["stream"]:
            self._barrier()
        else:
            self._waited(self._tail(event))

    def _free(self, event: Any) -> None:
        if "Async" not in (self._process.call(int(event["call"])) or ""):
            self._barrier()  # it waits for the device

    # ---- graphs ----

    def _graph_launch(self, event: Any) -> None:
        graphs, number, seq = self._process.graphs, int(event["id"]), int(event["seq"])
        if number >= len(graphs) or not graphs.known(number, seq):
            raise self._refuse(event, "the graph's nodes are unknown")
        nodes, before = graphs.nodes(number, seq), self._tail(event)
        follows: dict[int, list[int]] = {}
        edges = graphs.edges(number, seq)
        for begin, end in zip(edges["from"].tolist(), edges["to"].tolist(), strict=True):
            follows.setdefault(end, []).append(begin)
        starts: dict[int, tuple[int, ...]] = {layout.NO_ID: before}  # of the graph in a node
        ends: dict[int, tuple[int, ...]] = {}  # by node, what comes after it comes after
        top: list[int] = []
        for node in graphs.order(number, seq).tolist():
            record = nodes[node]
            parent = int(record["parent"])
            begins = [ends[other] for other in follows.get(node, [])] or [starts[parent]]
            if record["kind"] == model.KIND["event-wait"]:
                begins.append(self._events.get(int(record["src"]), ()))
            after = starts[node] = self._joined(begins)
            what = None
            if not record["flags"] & model.DISABLED:
                what = self._node(event, record, after)
            ends[node] = after if what is None else (self._step(seq, what, after),)
            holder = parent  # work after a graph comes after all its nodes
            while holder != layout.NO_ID:
                ends[holder] = tuple({*ends[holder], *ends[node]})
                holder = int(nodes["parent"][holder])
            if parent == layout.NO_ID:
                top.append(node)
        last = self._joined([before, *(ends[node] for node in top)])
        self._follows(event, last)

    def _node(
        self, event: Any, record: Any, after: tuple[int, ...]
    ) -> Launch | Move | Upload | Fill | None:
        kind = model.KINDS[int(record["kind"])]
        where = f"node {int(record['node'])} of graph {int(record['graph'])}"
        if record["flags"] & (model.UNREAD | model.FLAGS["conditional"] | model.FLAGS["device"]):
            raise self._refuse(event, f"the work of {where} is unknown")
        if kind == "event-record":
            self._events[int(record["src"])] = after
        if kind in ("graph", "empty", "event-wait", "event-record"):
            return None
        if kind == "host":
            self._launch_host(event)
            return None
        if kind == "kernel":
            cooperative = bool(record["flags"] & model.FLAGS["cooperative"])
            params = self._process.graphs.data(record)
            return self._launch_of(event, record, params, cooperative)
        dst, src, size = (int(record[name]) for name in ("dst", "src", "bytes"))
        flat, rows = int(record["reach"]) == size, rows_of(record)
        if kind in ("copy", "set") and not flat and not record["grid"].any():
            raise self._refuse(event, f"the pitch of the rows of {where} is unknown")
        if kind == "copy":
            if record["flags"] & model.HOST_DST:
                return None
            return self._copied(event, dst, src, size, rows, False)
        if kind == "set":
            item, count = int(record["shared"]), int(record["grid"][1])
            fill = Fill(dst, size, src, item)
            if not flat and count:
                fill = Fill(dst, size // count, src, item, count, int(record["block"][0]))
            return self._possible(event, fill)
        raise self._refuse(event, f"{where} is of kind {kind}")


def _reach(event: Any) -> int:
    """Returns the number of bytes from the first to the last that a copy writes."""
    rows, size = rows_of(event), int(event["bytes"])
    return size if rows is None else rows.reach(size // (rows.rows * rows.slices))


REACH: dict[int, Callable[[Any], int]] = {  # of calls that say where they write
    KIND["copy"]: _reach,
    KIND["set"]: lambda event: int(event["bytes"]),
    KIND["mem-op"]: lambda event: int(event["shared"]),
}
HANDLERS = {
    KIND["launch"]: _Reader._launch,
    KIND["launch-host"]: _Reader._launch_host,
    KIND["graph-launch"]: _Reader._graph_launch,
    KIND["copy"]: _Reader._copy,
    KIND["set"]: _Reader._set,
    KIND["free"]: _Reader._free,
    KIND["event-record"]: _Reader._event_record,
    KIND["event-wait"]: _Reader._event_wait,
    KIND["sync"]: _Reader._sync,
    KIND["query"]: _Reader._sync,
    KIND["mem-op"]: _Reader._mem_op,
}
