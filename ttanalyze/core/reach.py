"""Which memory calls reach, and what they do there.

A copy or a fill names its bytes. A launch is given pointers: it reaches the byte that each points
to, and what lies behind that in the tensor, where the program named one; otherwise how far it goes
is not known. Whether it reads or writes there its code says, where that is known. Memory that a
kernel finds by pointers in memory, or as a variable of its module, is not in this.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ttanalyze.code.pointers import ANYTHING, WRITE, pointer_uses
from ttanalyze.code.pointers import ATOMIC as USES_ATOMIC
from ttanalyze.core.order import ALLOC, COPY, FREE, GRAPH_LAUNCH, HOST_DST, MEM_OP, Event
from ttanalyze.format import graphs, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.kernel_checksums import image_of
from ttanalyze.format.labels import Labels
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.regions import Regions

# What a call does to memory: MAY_WRITE where nothing says whether it reads, writes or both; ATOMIC
# where it does both with atomic instructions only.
READS, MAY_WRITE, WRITES, ATOMIC = range(4)
LAUNCH, SET = KIND["launch"], KIND["set"]
NODE_COPY, NODE_SET, NODE_MEM_OP = (graphs.KIND[name] for name in ("copy", "set", "mem-op"))
HOST_KINDS = tuple(layout.REGION_KINDS.index(name) for name in ("host", "host-registered"))
ARRAY = layout.REGION_KINDS.index("array")
ROWS = 256  # rows of a copy with separate ranges
WORD = 8
KEPT = 4096  # launches and graphs whose memory is remembered

# Of a kernel, by its tt_function.id: what it does through the word at an offset of its parameters;
# words that are missing are not used as pointers. None where its code does not say.
Uses = Callable[[int], "dict[int, int] | None"]


def uses_of(process: Process) -> Uses:
    """What the kernels of a process do, as the PTX says that the run has of them."""
    images = dict(
        zip(process.modules["id"].tolist(), process.modules["image"].tolist(), strict=True)
    )
    by_image: dict[int, list[int]] = {}
    for number, module in zip(
        process.functions["id"].tolist(), process.functions["module"].tolist(), strict=True
    ):
        by_image.setdefault(images.get(module, 0), []).append(number)
    of = {number: image for image, numbers in by_image.items() for number in numbers}
    known: dict[int, dict[int, int] | None] = {}

    def get(function: int) -> dict[int, int] | None:
        if function not in known:
            numbers = by_image.get(of.get(function, 0), [])
            contents = image_of(process, of[function]) if of.get(function) else None
            names = [process.kernel(number) or "" for number in numbers]
            found = pointer_uses(contents, names) if contents else [None] * len(names)
            known.update({function: None} | dict(zip(numbers, map(modes_of, found), strict=True)))
        return known[function]

    return get


def modes_of(uses: dict[int, int] | None) -> dict[int, int] | None:
    """What code does through words of parameters, as READS, WRITES and so on."""
    return None if uses is None else {word: _mode(use) for word, use in uses.items()}


def _mode(use: int) -> int:
    if use & WRITE:
        return WRITES
    if use & ANYTHING:
        return MAY_WRITE
    return ATOMIC if use & USES_ATOMIC else READS


class Access(NamedTuple):
    """Bytes [low, high) of a region, for certain, and perhaps more up to `end`. row: of
    process.regions. node: of a graph, else -1.
    """

    row: int
    low: int
    high: int
    end: int
    mode: int
    node: int = -1


def conflict(one: Access, other: Access) -> bool:
    """Whether two calls can't both reach the same bytes at any time, if they do."""
    return {one.mode, other.mode} not in ({READS}, {ATOMIC})


def certain(one: Access, other: Access) -> bool:
    """Whether two calls that are in conflict surely reach the same bytes, and one writes there."""
    overlap = one.low < other.high and other.low < one.high
    return overlap and not {one.mode, other.mode} <= {READS, MAY_WRITE}


class Living:
    """The regions that live at a call: an address may be used again and again. Calls are asked for
    in their order. version: changes where the regions do.
    """

    def __init__(self, regions: Regions) -> None:
        changes, birth = regions.changes, regions.birth
        changes = changes[birth["kind"][changes["row"]] != ARRAY]
        self._seqs: list[int] = changes["seq"].tolist()
        self._changes: list[tuple[bool, int]] = changes[["birth", "row"]].tolist()
        self._birth = birth
        self._host = np.isin(birth["kind"], HOST_KINDS)
        self._bases: list[int] = []
        self._rows: list[int] = []
        self._ends: list[int] = []
        self.version = 0
        self.lowest, self.highest = 0, 0

    def go_to(self, seq: int) -> None:
        """To the regions that a call finds; those that it frees are still there."""
        until = bisect.bisect_left(self._seqs, seq, self.version)
        if until == self.version:
            return
        for birth, row in self._changes[self.version : until]:
            base = int(self._birth["base"][row])
            at = bisect.bisect_left(self._bases, base)
            if birth:
                self._bases.insert(at, base)
                self._rows.insert(at, row)
                self._ends.insert(at, base + int(self._birth["size"][row]))
                continue
            while at < len(self._rows) and self._rows[at] != row:
                at += 1
            if at < len(self._rows):
                del self._bases[at], self._rows[at], self._ends[at]
        self.version = until
        self.lowest = self._bases[0] if self._bases else 0
        self.highest = self._ends[-1] if self._ends else 0

    def at(self, address: int) -> tuple[int, int, int] | None:
        """Row, first address and end of the region that a byte lies in."""
        i = bisect.bisect_right(self._bases, address) - 1
        if i < 0 or address >= self._ends[i]:
            return None
        return self._rows[i], self._bases[i], self._ends[i]

    def within(self, address: int, size: int, host: bool = False) -> Iterator[tuple[int, int, int]]:
        """Rows, and which of their bytes lie in [address, address + size). host: only those in
        memory of the host.
        """
        size = max(size, 1)
        i = max(bisect.bisect_right(self._bases, address) - 1, 0)
        while i < len(self._bases) and self._bases[i] < address + size:
            base, end, row = self._bases[i], self._ends[i], self._rows[i]
            if end > address and (not host or self._host[row]):
                yield row, max(address - base, 0), min(address + size, end) - base
            i += 1


class Reach:
    """What calls of a process reach. Calls are asked for in their order."""

    def __init__(self, process: Process, uses: Uses = lambda function: None) -> None:
        self._process = process
        self._uses = uses
        self._labels: Labels | None = process.labels if len(process.labels) else None
        self._named = np.sort(process.labels.records["seq"]).tolist()
        self._known: dict[Any, list[Access]] = {}
        self._parts: dict[int, Array] = {}  # of regions, those that have names
        self._version = -1, -1
        self.living = Living(process.regions)

    def of(self, event: Event) -> list[Access]:
        """Where a call reads or writes, as far as that is known."""
        self.living.go_to(event.seq)
        version = self.living.version, bisect.bisect_right(self._named, event.seq)
        if self._version != version or len(self._known) > KEPT:
            self._known.clear()
            self._parts.clear()
            self._version = version
        if event.kind == LAUNCH:
            return self._launch(event)
        if event.kind == GRAPH_LAUNCH:
            return self._graph(event)
        if event.kind in (COPY, SET):
            to_host = bool(event.flags & HOST_DST)
            return list(self._moved(event.kind == COPY, event, event.bytes, to_host))
        if event.kind == MEM_OP:
            return list(self._bytes(event.dst, event.shared, WRITES))
        if event.kind in (ALLOC, FREE) and event.stream:
            return self._whole(event)
        return []

    def _whole(self, event: Event) -> list[Access]:
        """An allocation or a free in the order of a stream."""
        if event.kind == ALLOC:
            self.living.go_to(event.seq + 1)
        found = self.living.at(event.dst)
        if found is None or found[1] != event.dst:
            return []
        row, base, end = found
        return [Access(row, 0, end - base, end - base, WRITES)]

    # ---- kernels ----

    def _launch(self, event: Event) -> list[Access]:
        parameters = {"seq": event.seq, "params": event.params, "params_size": event.params_size}
        key = event.id, self._process.params(parameters)
        if key not in self._known:
            self._known[key] = list(self._given(event.id, key[1], -1, event.seq))
        return self._known[key]

    def _given(self, function: int, params: bytes, node: int, seq: int) -> Iterator[Access]:
        """By pointers in the parameters of a kernel."""
        living, uses = self.living, self._uses(function)
        words = np.frombuffer(params[: len(params) // WORD * WORD], "<u8")
        near = np.flatnonzero((words >= living.lowest) & (words < living.highest))
        for at in near.tolist():
            mode = MAY_WRITE if uses is None else uses.get(at * WORD)
            found = None if mode is None else living.at(int(words[at]))
            if found is not None and mode is not None:
                yield self._pointed(int(words[at]), found, mode, node, seq)

    def _pointed(
        self, address: int, found: tuple[int, int, int], mode: int, node: int, seq: int
    ) -> Access:
        row, base, end = found
        offset = address - base
        if self._labels is not None:
            region = int(self._process.regions.id[row])
            if row not in self._parts:
                self._parts[row] = self._labels.parts(region, seq=seq)
            part = self._labels.part_at(region, self._parts[row], offset)
            if part is not None:
                behind = part.offset + part.bytes
                return Access(row, offset, behind, behind, mode, node)
        return Access(row, offset, offset + 1, end - base, mode, node)

    # ---- copies and fills ----

    def _bytes(self, address: int, size: int, mode: int, node: int = -1) -> Iterator[Access]:
        for row, low, high in self.living.within(address, size):
            yield Access(row, low, high, high, mode, node)

    def _moved(
        self, copies: bool, of: Any, size: int, to_host: bool, node: int = -1
    ) -> Iterator[Access]:
        """What a copy, or a fill, from of.src to of.dst reaches."""
        if copies:
            for low, length in _rows(of.src, of, size, 1):
                yield from self._bytes(low, length, READS, node)
        for low, length in _rows(of.dst, of, size, 0) if copies else [(of.dst, size)]:
            for row, first, last in self.living.within(low, length, to_host):
                yield Access(row, first, last, last, WRITES, node)

    # ---- graphs ----

    def _graph(self, event: Event) -> list[Access]:
        known = self._process.graphs
        if event.id >= len(known) or not known.known(event.id, event.seq):
            return []
        key = "graph", event.id, known.state(event.id, event.seq)
        if key not in self._known:
            self._known[key] = list(self._nodes(event))
        return self._known[key]

    def _nodes(self, event: Event) -> Iterator[Access]:
        known = self._process.graphs
        for number, node in enumerate(known.nodes(event.id, event.seq)):
            if node["flags"] & graphs.DISABLED:
                continue
            for access in self._node(known, node, number, event.seq):
                unsure = node["flags"] & graphs.CONDITIONAL and access.mode == WRITES
                yield access._replace(mode=MAY_WRITE) if unsure else access

    def _node(self, known: graphs.Graphs, node: Any, number: int, seq: int) -> Iterator[Access]:
        kind = int(node["kind"])
        if kind == graphs.KERNEL:
            yield from self._given(int(node["function"]), known.data(node), number, seq)
        elif kind == NODE_MEM_OP:
            data = known.data(node)
            for address in np.frombuffer(data[: len(data) // WORD * WORD], "<u8").tolist():
                yield from self._bytes(address, 1, WRITES, number)
        elif kind in (NODE_COPY, NODE_SET):
            to_host = bool(node["flags"] & graphs.HOST_DST)
            size = int(node["reach"])
            yield from self._moved(kind == NODE_COPY, _Moved(node), size, to_host, number)


class _Moved:
    """A copy or a fill of a graph, as an event has it."""

    def __init__(self, node: Any) -> None:
        self.dst, self.src = int(node["dst"]), int(node["src"])
        self.grid, self.block, self.cluster = (
            node[name].tolist() for name in ("grid", "block", "cluster")
        )


def _rows(address: int, of: Any, size: int, side: int) -> list[tuple[int, int]]:
    """Where the rows of a copy are, and their bytes. side: 0 of the destination, 1 of the
    source."""
    length, rows, slices = of.grid
    pitch = of.block[side]
    if not length or not pitch or rows * max(slices, 1) <= 1:
        return [(address, size)]
    apart = pitch * of.cluster[side]
    slices = max(slices, 1)
    if rows * slices > ROWS or pitch == length:
        return [(address, (slices - 1) * apart + (rows - 1) * pitch + length)]
    return [(address + s * apart + r * pitch, length) for s in range(slices) for r in range(rows)]
