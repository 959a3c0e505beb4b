"""The launches of a process, with the kernels of each graph launch behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ttanalyze.format import graphs, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

CAPTURED = layout.constant("TT_EVENTF_CAPTURING")
COOPERATIVE = layout.constant("TT_EVENTF_COOPERATIVE")
LAUNCH = KIND["launch"]
GRAPH_LAUNCH = KIND["graph-launch"]
PIECE = 1 << 13  # rows
KEPT = 256  # states of graphs whose kernels are at hand


@dataclass(frozen=True)
class Rows:
    """Launches as arrays, one row each.

    events: tt_event; for kernels of a graph, what their event would be. graph: for graph launches
    and their kernels, else NO_ID. node: for such kernels, else -1. maybe: a conditional node
    decided how often the kernel ran. given: the parameters of a node, or None.
    """

    events: Array
    graph: Array
    node: Array
    maybe: Array
    given: Array

    def take(self, rows: Array) -> Rows:
        """Returns some rows."""
        some = (self.graph, self.node, self.maybe, self.given)
        return Rows(layout.take(self.events, rows), *(a[rows] for a in some))

    def params(self, process: Process) -> list[bytes | None]:
        """Returns the parameters of each kernel, None if they were not recorded."""
        out: list[bytes | None] = self.given.tolist()
        for i in np.flatnonzero(self.events["params"]).tolist():
            out[i] = process.params(self.events[i])
        return out


def as_they_are(events: Array) -> Rows:
    """Returns rows of tt_event records without kernels of graphs."""
    graph = np.where(events["kind"] == GRAPH_LAUNCH, events["id"], layout.NO_ID)
    count = len(events)
    given = np.full(count, None, object)
    return Rows(events, graph, np.full(count, -1, "i8"), np.zeros(count, bool), given)


NONE = as_they_are(np.empty(0, layout.EVENT))


class Launches:
    """Finds the launches among the events of a process."""

    def __init__(self, process: Process) -> None:
        self._graphs = process.graphs
        self._known: dict[tuple[int, int], Rows] = {}

    def among(self, events: Array) -> Iterator[Rows]:
        """Yields launches in the order of events, about PIECE rows at a time.

        Raises FormatError if the recorded graphs are damaged.
        """
        launches = np.isin(events["kind"], (LAUNCH, GRAPH_LAUNCH))
        rows = as_they_are(layout.take(events, launches))
        found = rows.events
        ran = (found["result"] == 0) & (found["flags"] & CAPTURED == 0)
        ran &= (found["kind"] == GRAPH_LAUNCH) & (found["id"] < len(self._graphs))
        parts, count, at = [], 0, 0
        for i in np.flatnonzero(ran).tolist():
            parts += [rows.take(np.arange(at, i + 1)), self._kernels_of(found[i])]
            count += i + 1 - at + len(parts[-1].events)
            at = i + 1
            if count >= PIECE:
                yield _joined(parts)
                parts, count = [], 0
        yield _joined([*parts, rows.take(np.arange(at, len(found)))])

    def _kernels_of(self, launch: Any) -> Rows:
        """Returns the kernels that a graph launch ran."""
        graph, seq = int(launch["id"]), int(launch["seq"])
        key = graph, self._graphs.state(graph, seq)
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = self._kernels(graph, seq)
        rows = self._known[key]
        events = rows.events.copy()
        for name in ("seq", "time_ns", "thread", "call", "stream", "stack"):
            events[name] = launch[name]
        events["context"][events["context"] == layout.NO_ID] = launch["context"]
        return replace(rows, events=events)

    def _kernels(self, graph: int, seq: int) -> Rows:
        nodes = self._graphs.nodes(graph, seq)
        nodes = nodes[self._graphs.order(graph, seq)]
        nodes = nodes[(nodes["kind"] == graphs.KERNEL) & (nodes["flags"] & graphs.DISABLED == 0)]
        events = np.zeros(len(nodes), layout.EVENT)
        events["kind"] = LAUNCH
        events["id"] = nodes["function"]
        events["flags"] = nodes["flags"] & COOPERATIVE
        for name in ("context", "shared", "grid", "block", "cluster"):
            events[name] = nodes[name]
        given = np.full(len(nodes), None, object)
        for i in np.flatnonzero(nodes["data_size"]).tolist():
            given[i] = self._graphs.data(nodes[i])
        maybe = nodes["flags"] & graphs.CONDITIONAL != 0
        number = np.full(len(nodes), graph, "u4")
        return Rows(events, number, nodes["node"].astype("i8"), maybe, given)


def graph_launches_of_kernels(process: Process) -> tuple[dict[int, int], bool]:
    """Returns how often graph launches ran each function, and whether conditional nodes decided how
    often. Kernels of conditional nodes count once for each launch.
    """
    known, counts, maybe = process.graphs, dict[int, int](), False
    found = [np.empty(0, layout.EVENT)]
    for events in process.event_pieces() if len(known) else ():
        ran = (events["kind"] == GRAPH_LAUNCH) & (events["flags"] & CAPTURED == 0)
        found.append(events[ran & (events["result"] == 0) & (events["id"] < len(known))])
    launches = np.concatenate(found)
    for graph in layout.distinct(launches["id"]).tolist():
        seqs = np.sort(launches["seq"][launches["id"] == graph])
        states = np.searchsorted(known.changes(graph), seqs, "right")
        for first, count in zip(
            *np.unique(states, return_index=True, return_counts=True)[1:], strict=True
        ):
            nodes = known.nodes(graph, int(seqs[first]))
            run = (nodes["kind"] == graphs.KERNEL) & (nodes["flags"] & graphs.DISABLED == 0)
            maybe |= bool((nodes["flags"][run] & graphs.CONDITIONAL).any())
            for function in nodes["function"][run].tolist():
                counts[function] = counts.get(function, 0) + int(count)
    return counts, maybe


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    events = layout.joined([part.events for part in parts])
    names = ("graph", "node", "maybe", "given")
    return Rows(events, *(np.concatenate([getattr(p, name) for p in parts]) for name in names))
