"""Random calls as a program makes them, and a plain model of what orders them on the device."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.rundir import Writer
from ttanalyze.format import layout

LEGACY, PER_THREAD, STREAMS, FREE = 1, 2, (16, 17, 18), 18  # FREE does not wait for LEGACY
THREADS, HANDLES, WORDS = (1, 2), (7, 8), (0x5000, 0x6000)
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
HOST_DST = layout.constant("TT_EVENTF_HOST_DST")
HOST_SRC = layout.constant("TT_EVENTF_HOST_SRC")
SYNC_COPY = layout.constant("TT_EVENTF_SYNC_COPY")
CONTEXTS = (0, 0, 0, 1)
Lane = tuple[int, int, int]  # context, stream, and thread of a per-thread default stream
NOTHING: frozenset[int] = frozenset()


class Device:
    """A graph of calls: what each comes right after. Reachability is the order."""

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        self.last: dict[Lane, int] = {}
        self.recorded: dict[int, int] = {}
        self.written: dict[int, set[int]] = {}
        self.waiting: dict[int, dict[Lane, int]] = {}
        self.graphs: dict[int, int] = {}
        self.host = self.node(set())

    def node(self, after: set[int]) -> int:
        self.before.append(after)
        return len(self.before) - 1

    def ready(self, lane: Lane) -> set[int]:
        """What the next call of a lane comes right after."""
        out = {self.host} | ({self.last[lane]} if lane in self.last else set())
        context, stream, _ = lane
        if stream == LEGACY:
            out |= {n for other, n in self.last.items() if other[0] == context and other[1] != FREE}
        elif stream != FREE and (context, LEGACY, 0) in self.last:
            out.add(self.last[context, LEGACY, 0])
        return out

    def all_of(self, context: int) -> set[int]:
        return {last for lane, last in self.last.items() if lane[0] == context}

    def submit(self, lane: Lane, more: set[int] | frozenset[int] = NOTHING) -> int:
        self.last[lane] = self.node(self.ready(lane) | more)
        return self.last[lane]

    def events(self, handles: list[int]) -> set[int]:
        return {self.recorded[handle] for handle in handles if handle in self.recorded}

    def learn(self, calls: set[int]) -> None:
        self.host = self.node({self.host} | calls)

    def all_before(self, node: int) -> set[int]:
        out: set[int] = set()
        left = [node]
        while left:
            for one in self.before[left.pop()] - out:
                out.add(one)
                left.append(one)
        return out


class Program:
    """Writes calls in several streams of several threads. nodes: of each piece of work by seq, its
    node in the device's graph.
    """

    def __init__(
        self,
        writer: Writer,
        choose: random.Random,
        streams: Sequence[int] = (*STREAMS, *STREAMS, LEGACY, PER_THREAD),
    ) -> None:
        self.w, self.choose, self.device = writer, choose, Device()
        self.streams = streams
        self.nodes: dict[int, int] = {}
        self.waits: set[int] = set()  # for values
        for stream in STREAMS:
            writer.event("stream-create", stream=stream, bytes=3 * (stream == FREE))
            writer.event("stream-create", stream=stream, bytes=1, result=1)
            writer.event("stream-create", stream=stream, bytes=2 * (stream != FREE))
        writer.event("alloc", stream=16, bytes=1)

    def place(self) -> tuple[dict[str, Any], Lane]:
        """A stream, a thread and a context, and their lane."""
        stream = self.choose.choice(self.streams)
        thread, context = self.choose.choice(THREADS), self.choose.choice(CONTEXTS)
        lane = context, stream, thread if stream == PER_THREAD else 0
        return {"stream": stream, "thread": thread, "context": context}, lane

    def work(self, kind: str, **members: Any) -> int:
        """A piece of work; gives its seq."""
        given, lane = self.place()
        seq = self.w.event(kind, **members, **given)
        self.nodes[seq] = self.device.submit(lane)
        return seq

    def copy(self, **members: Any) -> tuple[int, int]:
        """Gives its flags and its seq."""
        flags = self.choose.choice((0, HOST_SRC, HOST_DST))
        flags |= self.choose.choice((0, SYNC_COPY))
        seq = self.work("copy", flags=flags, **members)
        if flags & SYNC_COPY and flags != SYNC_COPY:
            self.device.learn({self.nodes[seq]})
        return flags, seq

    def launch_graph(self, graph: int, waits: list[int], records: list[int], **members: Any) -> int:
        """A number behind those of all graphs is one that was not recorded."""
        given, lane = self.place()
        known = graph < self.w.graphs
        number = graph if known else self.choose.choice((graph, layout.NO_ID))
        seq = self.w.event("graph-launch", id=number, **members, **given)
        before = self.device.events(waits)
        if number in self.device.graphs:  # it does not overlap itself
            before.add(self.device.graphs[number])
        self.nodes[seq] = node = self.device.submit(lane, before)
        if number != layout.NO_ID:
            self.device.graphs[number] = node
        self.device.recorded |= dict.fromkeys(records, node)
        return seq

    def write_value(self, address: int) -> int:
        given, lane = self.place()
        seq = self.w.event("mem-op", "cuStreamWriteValue32_v2", dst=address, bytes=4, **given)
        self.nodes[seq] = node = self.device.submit(lane)
        self.device.written.setdefault(address, set()).add(node)
        for other, wait in self.device.waiting.get(address, {}).items():  # it may be for this
            if other != lane and wait not in self.device.all_before(self.device.host):
                self.device.last[other] = self.device.node({self.device.last[other], node})
        return seq

    def wait_for_value(self, address: int) -> None:
        given, lane = self.place()
        self.w.event("mem-op", "cuStreamWaitValue32_v2", src=address, **given)
        node = self.device.submit(lane, self.device.written.get(address, set()))
        self.device.waiting.setdefault(address, {})[lane] = node
        self.waits.add(node)

    def event(self, kind: str) -> None:
        """Records an event, or has a stream wait for one."""
        given, lane = self.place()
        handle = self.choose.choice(HANDLES)
        self.w.event(kind, src=handle, **given)
        if kind == "event-record":
            self.device.recorded[handle] = self.device.submit(lane)
        else:
            self.device.submit(lane, self.device.events([handle]))

    def sync(self) -> None:
        given, lane = self.place()
        what = self.choose.choice(("context", "stream", "event"))
        handle = self.choose.choice(HANDLES) if what == "event" else 0
        self.w.event("sync", src=handle, **(given | ({} if what == "stream" else {"stream": 0})))
        if what == "context":
            self.device.learn(self.device.all_of(given["context"]))
        elif what == "stream":
            self.device.learn(self.device.ready(lane))
        else:
            self.device.learn(self.device.events([handle]))

    def free(self, call: str | None, region: int | None = None) -> None:
        """Frees a region, or memory that nobody recorded."""
        if region is None:
            self.w.event("free", call)
        else:
            self.w.died(region, call)
        if call is not None and "Async" not in call:
            self.device.learn(self.device.all_of(0))
        else:
            self.device.submit((0, LEGACY, 0))

    def ignored(self) -> None:
        """What orders nothing: calls that failed or were captured."""
        given, _ = self.place()
        handle = self.choose.choice(HANDLES)
        kinds = ("launch", "event-record", "event-wait", "sync", "copy")
        odd = self.choose.choice(({"result": 1}, {"flags": CAPTURING}))
        self.w.event(self.choose.choice(kinds), **(given | {"src": handle} | odd))
        self.w.event("sync", **(given | {"stream": 0} | odd))
        self.w.event(self.choose.choice(("alloc", "epoch", "module-load")), stream=0)

    def orders(self) -> None:
        """Something random that may order others."""
        choose = self.choose
        kind = choose.choices(
            ("record", "wait", "sync", "value", "for value", "free", "ignored"),
            (5, 5, 1, 1, 2, 1, 2),
        )[0]
        if kind in ("record", "wait"):
            self.event(f"event-{kind}")
        elif kind == "sync":
            self.sync()
        elif kind == "value":
            self.write_value(choose.choice(WORDS))
        elif kind == "for value":
            self.wait_for_value(choose.choice(WORDS))
        elif kind == "free":
            self.free(choose.choice((None, "cuMemFreeAsync", "cuMemFreeAsync", "cuMemFree_v2")))
        else:
            self.ignored()

    def before(self) -> dict[int, set[int]]:
        """Of each piece of work by seq, the nodes that come before it."""
        return {seq: self.device.all_before(node) for seq, node in self.nodes.items()}
