"""Nodes of one graph that reach the same memory, and that no edges order."""

from __future__ import annotations

from collections.abc import Sequence

from ttanalyze.core.reach import WRITES, Access, certain, conflict
from ttanalyze.format import layout
from ttanalyze.format.layout import Array


def unordered_nodes(
    nodes: Array, edges: Array, order: Array, accesses: Sequence[Access]
) -> list[tuple[Access, Access]]:
    """Two accesses each, of two nodes that may run at the same time, where one of both may write.
    nodes: tt_graph_record; edges: tt_graph_edge; order: numbers of nodes, each behind those it
    comes after.
    """
    before = NodeOrder(nodes["parent"].tolist(), edges, order.tolist())
    branches = nodes["branch"].tolist()
    by_row: dict[int, list[Access]] = {}
    out: dict[tuple[int, int], tuple[Access, Access]] = {}
    for access in sorted(set(accesses), key=lambda a: (before.position[a.node], a.low)):
        others = by_row.setdefault(access.row, [])
        for other in others:
            pair = other.node, access.node
            sure = certain(other, access)
            if not conflict(other, access) or (pair in out and (not sure or certain(*out[pair]))):
                continue
            overlap = access.low < other.end and other.low < access.end
            if overlap and not before.ordered(*pair) and not before.excluded(*pair, branches):
                out[pair] = other, access
        if access.mode == WRITES and access.end == access.high:
            by_row[access.row] = [o for o in others if not _covers(access, o, before)]
        by_row[access.row].append(access)
    return list(out.values())


def _covers(access: Access, other: Access, before: NodeOrder) -> bool:
    """Whether who has no order with the other has none with this one either."""
    inside = access.low <= other.low and other.end <= access.high
    return inside and before.ordered(other.node, access.node)


class NodeOrder:
    """Which nodes of a graph come before others. position: by number, in an order that holds."""

    def __init__(self, parents: list[int], edges: Array, order: list[int]) -> None:
        self._parents = parents
        self.position = {node: at for at, node in enumerate(order)}
        inside = [1 << node for node in range(len(parents))]  # it and the nodes in it
        for node in range(len(parents) - 1, -1, -1):
            if parents[node] != layout.NO_ID:
                inside[parents[node]] |= inside[node]
        follows: list[list[int]] = [[] for _ in parents]
        for edge in edges:
            follows[int(edge["to"])].append(int(edge["from"]))
        self._before = [0] * len(parents)
        for node in order:
            parent = parents[node]
            known = 0 if parent == layout.NO_ID else self._before[parent]
            for earlier in follows[node]:
                known |= self._before[earlier] | inside[earlier]
            self._before[node] = known

    def precedes(self, one: int, other: int) -> bool:
        """Whether one node ends before the other begins."""
        return bool(self._before[other] >> one & 1)

    def ordered(self, one: int, other: int) -> bool:
        return one == other or self.precedes(one, other) or self.precedes(other, one)

    def excluded(self, one: int, other: int, branches: Sequence[int]) -> bool:
        """Whether they are in different bodies of a conditional node, of which one runs."""
        bodies = dict(self._ways(one, branches))
        return any(bodies.get(parent, way) != way for parent, way in self._ways(other, branches))

    def _ways(self, node: int, branches: Sequence[int]) -> list[tuple[int, int]]:
        out = []
        while (parent := self._parents[node]) != layout.NO_ID:
            out.append((parent, branches[node]))
            node = parent
        return out
