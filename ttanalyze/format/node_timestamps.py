"""The times of graph nodes: matches the driver's numbers of nodes with ours.

The driver numbers nodes in the order in which they were made, as we do. But it may leave gaps, and
numbers child graphs separately. So the activities of a launch, sorted by the driver's numbers,
follow the order of the nodes that do work, or one of few orders if there are child graphs. A match
must be exact in number, kinds and kernel names, and the only one. Otherwise the times are unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ttanalyze.format import graphs, layout
from ttanalyze.format.activities import OWN, STAMPED, nodes_of
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import NO_ID, Array

if TYPE_CHECKING:
    from ttanalyze.format.process import Process

# What a node that does work shows up as.
WORK = {
    graphs.KIND[node]: KIND[activity]
    for node, activity in (("kernel", "launch"), ("copy", "copy"), ("set", "set"))
}
GRAPH_LAUNCH = KIND["graph-launch"]
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
KEPT = 256  # matches that are remembered
LAUNCHES = 1 << 12  # of a graph, the last ones, that are looked at for a mean


@dataclass(frozen=True)
class Times:
    """The times of the nodes of a launch, by node number.

    begins, ends: of the first and of the last time that a node ran. took: the sum of all its times
    in nanoseconds.
    """

    nodes: Array
    begins: Array
    ends: Array
    took: Array

    def rows(self, nodes: Array) -> Array:
        """Returns the index of nodes in these arrays, -1 if their times are unknown."""
        if not len(self.nodes):
            return np.full(len(nodes), -1, "i8")
        at = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
        return np.where(self.nodes[at] == nodes, at, -1)


NO_SEQS = np.empty(0, "u8")
NONE = Times(*(np.empty(0, "i8") for _ in range(4)))


class NodeTimes:
    """The times of graph nodes of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._graphs, self._activities = process.graphs, process.activities
        self._matches: dict[tuple[int, int, bytes], Array | None] = {}

    @property
    def there(self) -> bool:
        """Whether any times may be known."""
        return len(self._graphs) > 0 and self._activities.there

    def of(self, graph: int, seq: int) -> Times:
        """Returns the times of the nodes of a graph launch, the call with this seq."""
        if not self.there:
            return NONE
        records = self._activities.between(seq - 1, seq)
        records = records[(records["node"] != 0) & (records["flags"] & OWN == 0)]
        numbers, first, which = np.unique(records["node"], return_index=True, return_inverse=True)
        nodes = self._nodes(graph, seq, records[first]) if len(numbers) else None
        if nodes is None:
            return NONE
        begins, ends = records["begin_ns"].astype("i8"), records["end_ns"].astype("i8")
        since = np.full(len(numbers), np.iinfo("i8").max)
        until, took = np.zeros(len(numbers), "i8"), np.zeros(len(numbers), "i8")
        np.minimum.at(since, which, begins)
        np.maximum.at(until, which, ends)
        np.add.at(took, which, ends - begins)
        order = np.argsort(nodes)
        return Times(nodes[order], since[order], until[order], took[order])

    def means(self, graph: int, seq: int | None = None) -> Times:
        """Returns the mean time of each node over the last LAUNCHES launches with the same nodes.

        seq: the call whose nodes are meant, by default the last state. begins, ends: of the first
        and of the last of these launches.
        """
        first, last = self._graphs.numbered(graph, seq)
        launches = self._launches.get(graph, NO_SEQS).tolist() if self.there else []
        found: dict[int, list[int]] = {}
        for launch in [s for s in launches if first <= s < last][-LAUNCHES:]:
            times = self.of(graph, launch)
            columns = (a.tolist() for a in vars(times).values())
            for node, begin, end, took in zip(*columns, strict=True):
                seen = found.setdefault(node, [begin, end, 0, 0])
                seen[:] = min(seen[0], begin), max(seen[1], end), seen[2] + took, seen[3] + 1
        nodes = sorted(found)
        rows = [(n, found[n][0], found[n][1], round(found[n][2] / found[n][3])) for n in nodes]
        return Times(*np.array(rows, "i8").reshape(-1, 4).T)

    @functools.cached_property
    def _launches(self) -> dict[int, Array]:
        """The seqs of the launches of each graph, ascending."""
        ids, seqs = [np.empty(0, "u4")], [NO_SEQS]
        for events in self._process.event_pieces():
            ran = (events["kind"] == GRAPH_LAUNCH) & (events["result"] == 0)
            ran &= events["flags"] & CAPTURING == 0
            ids.append(events["id"][ran])
            seqs.append(events["seq"][ran])
        every, of = np.concatenate(seqs), np.concatenate(ids)
        return {graph: np.sort(every[of == graph]) for graph in layout.distinct(of).tolist()}

    # ---- matching ----

    def _nodes(self, graph: int, seq: int, records: Array) -> Array | None:
        """Returns what _match returns. The nodes of stamped activities are known."""
        stamped = records["flags"] & STAMPED != 0
        if stamped.all():
            return nodes_of(records)[0].astype("i8")
        return None if stamped.any() else self._match(graph, seq, records)

    def _match(self, graph: int, seq: int, records: Array) -> Array | None:
        """Returns the number of the node of each activity, from the driver's numbers."""
        what = np.stack([records[name].astype("u8") for name in ("node", "kind", "name")])
        key = graph, self._graphs.state(graph, seq), what.tobytes()
        if key not in self._matches:
            if len(self._matches) >= KEPT:
                self._matches.pop(next(iter(self._matches)))
            self._matches[key] = self._find(self._graphs.nodes(graph, seq), records)
        return self._matches[key]

    def _find(self, nodes: Array, records: Array) -> Array | None:
        working = _working(nodes)
        always = working[nodes["flags"][working] & graphs.CONDITIONAL == 0]
        if len(records) == len(always):  # of the bodies of conditional nodes none ran
            working = always
        elif len(records) != len(working):
            return None
        text = self._process.strings.get
        seen = [(kind, text(name)) for kind, name in records[["kind", "name"]].tolist()]
        fitting: dict[bytes, Array] = {}
        for order in _orders(nodes, working):
            if self._fits(nodes[order], records["node"], seen):
                fitting[order.tobytes()] = order
        return next(iter(fitting.values())) if len(fitting) == 1 else None

    def _fits(self, nodes: Array, numbers: Array, seen: list[tuple[int, str | None]]) -> bool:
        for node, (kind, name) in zip(nodes, seen, strict=True):
            if WORK[int(node["kind"])] != kind:
                return False
            if node["kind"] == graphs.KERNEL:
                kernel = self._process.kernel(int(node["function"]))
                if kernel is None or kernel != name:
                    return False
        # Where graphs inside are numbered for themselves, each has a number.
        outer = layout.distinct(numbers >> np.uint64(32))
        if len(outer) == 1:
            return True
        inside = list(zip(nodes["parent"].tolist(), nodes["branch"].tolist(), strict=True))
        pairs = set(zip((numbers >> np.uint64(32)).tolist(), inside, strict=True))
        return len(pairs) == len(outer) == len(set(inside))


def _working(nodes: Array) -> Array:
    """Returns the numbers of the nodes that do work, without disabled ones."""
    off = nodes["flags"] & graphs.DISABLED != 0
    for number in np.flatnonzero(nodes["parent"] != NO_ID).tolist():  # the holder is before it
        off[number] |= off[nodes["parent"][number]]
    return np.flatnonzero(np.isin(nodes["kind"], list(WORK)) & ~off)


def _orders(nodes: Array, working: Array) -> Iterator[Array]:
    """Yields the orders in which the driver may have numbered nodes.

    A child graph comes at the place of the node that contains it, behind or before its parent
    graph, or level by level.
    """
    yield working
    parents, branches = nodes["parent"], nodes["branch"]
    if (parents[working] == NO_ID).all():
        return
    holder = np.where(parents == NO_ID, -1, parents.astype("i8"))
    depth = np.zeros(len(nodes), "i8")
    for number in np.flatnonzero(holder >= 0).tolist():
        depth[number] = depth[holder[number]] + 1
    last = np.arange(len(nodes))  # the last node within each
    for number in reversed(np.flatnonzero(holder >= 0).tolist()):
        last[holder[number]] = max(last[holder[number]], last[number])
    end = np.where(holder < 0, len(nodes), last[holder])
    keys = (
        (working, branches[working], holder[working]),
        (working, branches[working], holder[working], depth[working]),
        (working, branches[working], -depth[working], end[working]),
    )
    for key in keys:
        yield working[np.lexsort(key)]
