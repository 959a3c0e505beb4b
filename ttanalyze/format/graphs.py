"""graphs.bin and graphdata.bin: executable graphs, and their nodes at each call.

A graph changes by calls that update it. Each of its states holds from one such call to the next.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import xxhash

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout
from ttanalyze.format.files import (
    Folder,
    RecordFile,
    Records,
    check_values,
    read_checked,
    require,
)
from ttanalyze.format.layout import Array

OPS = layout.enum("graph_op")
MADE, REMADE, NODE, ENDED = (OPS[f"TT_GRAPH_{n}"] for n in ("MADE", "REMADE", "NODE", "ENDED"))
KINDS = layout.names("node_kind", "TT_NODE_")
KIND = {name: number for number, name in enumerate(KINDS)}
FLAGS = {
    name: layout.constant(f"TT_GRAPHF_{name.upper()}")
    for name in (
        *("disabled", "cooperative", "unread", "host_dst", "host_src"),
        *("conditional", "device"),
    )
}
DISABLED, UNREAD, HOST_DST, CONDITIONAL = (
    FLAGS[name] for name in ("disabled", "unread", "host_dst", "conditional")
)
KERNEL = KIND["kernel"]
STATES = 64  # of a process's graphs that are kept


class Graphs:
    """The executable graphs of a process, numbered from 0 in order of instantiation.

    made: the tt_graph_record of each graph. ended: the seq of the call that destroyed each, or 0.
    """

    def __init__(self, folder: Folder) -> None:
        self._data_file = folder.open("graphdata.bin")
        self._data_path = folder.path / "graphdata.bin"
        file = folder.open("graphs.bin")
        self._records = _read(file) if file else np.empty(0, layout.GRAPH_RECORD)
        ops, graphs = self._records["op"], self._records["graph"]
        self.made = self._records[ops == MADE]
        self.ended = np.zeros(len(self.made), "u8")
        self.ended[graphs[ops == ENDED]] = self._records["seq"][ops == ENDED]
        order = np.argsort(graphs, kind="stable")
        bounds = np.searchsorted(graphs[order], np.arange(len(self.made) + 1))
        self._rows = [order[a:b] for a, b in itertools.pairwise(bounds)]
        self._changes: dict[int, Array] = {}
        self._states: dict[tuple[int, int], _State] = {}

    def __len__(self) -> int:
        return len(self.made)

    def changes(self, graph: int) -> Array:
        """Returns the seqs of the calls that made and changed a graph, ascending. State N begins at
        call N.

        Raises Error if the graph does not exist.
        """
        if not 0 <= graph < len(self.made):
            raise Error(f"no graph {graph} (there are {len(self.made)})")
        if graph not in self._changes:
            records = self._records[self._rows[graph]]
            self._changes[graph] = layout.distinct(records["seq"][records["op"] != ENDED])
        return self._changes[graph]

    def state(self, graph: int, seq: int | None = None) -> int:
        """Returns the number of the state that a call finds, by default the last."""
        changes = self.changes(graph)
        if seq is None:
            return len(changes) - 1
        return max(0, int(np.searchsorted(changes, np.uint64(seq), "right")) - 1)

    def numbered(self, graph: int, seq: int | None = None) -> tuple[int, int]:
        """Returns the calls [first, last) during which the nodes of a graph have the same numbers
        as at this call.
        """
        now = int(self.changes(graph)[self.state(graph, seq)])
        records = self._records[self._rows[graph]]
        whole = records["seq"][np.isin(records["op"], (MADE, REMADE))]
        at = int(np.searchsorted(whole, np.uint64(now), "right"))
        return int(whole[at - 1]), int(whole[at]) if at < len(whole) else 1 << 64

    def known(self, graph: int, seq: int | None = None) -> bool:
        """Returns whether the nodes of a graph are known at a call."""
        return not self._state_at(graph, seq).head["flags"] & UNREAD

    def nodes(self, graph: int, seq: int | None = None) -> Array:
        """Returns the tt_graph_record of each node, by number, at a call, by default in the last
        state.

        Returns nothing if the nodes are unknown.
        """
        return self._state_at(graph, seq).nodes

    def edges(self, graph: int, seq: int | None = None) -> Array:
        """Returns the tt_graph_edge records of a graph and its child graphs, as nodes() does."""
        return self._state_at(graph, seq).edges

    def order(self, graph: int, seq: int | None = None) -> Array:
        """Returns the numbers of nodes in an order in which each comes after those that it waits
        for.

        Nodes of a child graph come right behind the node that contains it. Raises FormatError if
        edges form a cycle.
        """
        return self._state_at(graph, seq).order

    def _state_at(self, graph: int, seq: int | None) -> _State:
        key = graph, self.state(graph, seq)
        if key not in self._states:
            if len(self._states) >= STATES:
                self._states.pop(next(iter(self._states)))
            self._states[key] = self._make(*key)
        return self._states[key]

    def _make(self, graph: int, state: int) -> _State:
        until = self.changes(graph)[state]
        rows = self._rows[graph][self._records["seq"][self._rows[graph]] <= until]
        head = int(rows[np.isin(self._records["op"][rows], (MADE, REMADE))][-1])
        behind = head + 1 + int(self._records["node"][head])
        nodes = self._records[head + 1 : behind].copy()
        changed = self._records[rows[rows >= behind]]
        changed = changed[changed["op"] == NODE]
        nodes[changed["node"]] = changed  # of a node the last one stays
        nodes.setflags(write=False)
        return _State(self, self._records[head], nodes)

    @functools.cached_property
    def _bytes(self) -> Records:
        return self._data_file.map() if self._data_file else np.empty(0, "u1")

    def data(self, record: Any) -> bytes:
        """Returns the data of a record: parameters of a kernel, addresses that a memory operation
        writes to, or edges.

        Raises FormatError if they are not what was written.
        """
        if not record["data_size"]:
            return b""
        begin = int(record["data"]) - layout.HEADER_SIZE
        end = begin + int(record["data_size"])
        if not 0 <= begin <= end <= len(self._bytes):
            raise self.error(record, "do not lie in the file")
        out = self._bytes[begin:end].tobytes()
        if xxhash.xxh3_64_intdigest(out) != int(record["data_check"]):
            raise self.error(record, "do not match their check")
        return out

    def error(self, record: Any, reason: str) -> FormatError:
        """Returns the error for wrong data of a record."""
        graph, data = int(record["graph"]), int(record["data"])
        return FormatError(self._data_path, data, f"data of graph {graph} {reason}")


class _State:
    """The nodes and edges of a graph from one change to the next."""

    def __init__(self, graphs: Graphs, head: Any, nodes: Array) -> None:
        self._graphs = graphs
        self.head = head
        self.nodes = nodes

    @functools.cached_property
    def edges(self) -> Array:
        edges = np.frombuffer(self._graphs.data(self.head), layout.GRAPH_EDGE)
        parents = self.nodes["parent"]
        good = (edges["from"] < len(parents)) & (edges["to"] < len(parents))
        if not good.all() or (parents[edges["from"]] != parents[edges["to"]]).any():
            raise self._graphs.error(self.head, "are not edges between nodes of one graph")
        return edges

    @functools.cached_property
    def order(self) -> Array:
        follows: list[list[int]] = [[] for _ in self.nodes]
        for begin, end in zip(self.edges["from"].tolist(), self.edges["to"].tolist(), strict=True):
            follows[begin].append(end)
        waits = np.bincount(self.edges["to"], minlength=len(self.nodes)).tolist()
        inside: dict[int, list[int]] = {}
        for number, parent in enumerate(self.nodes["parent"].tolist()):
            inside.setdefault(parent, []).append(number)
        out: list[int] = []
        levels = [self._level(inside.get(layout.NO_ID, []), follows, waits)]
        while levels:
            if not levels[-1]:
                levels.pop()
                continue
            number = levels[-1].pop()
            out.append(number)
            if number in inside:
                levels.append(self._level(inside[number], follows, waits))
        return np.array(out, "i8")

    def _level(self, numbers: list[int], follows: list[list[int]], waits: list[int]) -> list[int]:
        """Returns the nodes of one graph in reverse order."""
        known = [number for number in numbers if not waits[number]]
        for number in known:
            for after in follows[number]:
                waits[after] -= 1
                if not waits[after]:
                    known.append(after)
        if len(known) != len(numbers):
            raise self._graphs.error(self.head, "are edges that form a cycle")
        return known[::-1]


def _read(file: RecordFile) -> Array:
    """Returns all checked records, without those of an incomplete last graph."""
    records = read_checked(file)
    check_values(file, records, "op", list(OPS.values()))
    of_nodes = records["op"] == NODE
    good = (records["kind"] < len(KINDS)) & ((records["kind"] != 0) == of_nodes)
    require(file, good, "kind", "not a kind of node")
    before = of_nodes & (records["parent"] < records["node"])
    require(file, before | (records["parent"] == layout.NO_ID), "parent", "not a node before it")
    whole = np.isin(records["op"], (MADE, REMADE))
    known = records["flags"] & UNREAD == 0
    require(file, ~whole | known | (records["node"] == 0), "node", "nodes of an unknown graph")
    edges = records["data_size"] % layout.GRAPH_EDGE.itemsize == 0
    require(file, ~whole | edges, "data_size", "not a number of edges")
    made = np.cumsum(records["op"] == MADE)
    new = ~(records["op"] == MADE) | (records["graph"] == made - 1)
    require(file, new, "graph", "graphs are not numbered in order")
    require(file, records["graph"] < made, "graph", "a graph that was not made")
    since = records["seq"][records["op"] == MADE][records["graph"]]
    require(file, records["seq"] >= since, "seq", "a graph that was made later")
    require(
        file, records["seq"] <= np.uint64(np.iinfo("i8").max), "seq", "not the number of a call"
    )
    return _in_sequence(file, records)


def _in_sequence(file: RecordFile, records: Array) -> Array:
    """Checks that nodes follow their graph, and that changes name nodes that exist."""
    described = np.zeros(len(records), bool)  # nodes that follow their graph
    for head in np.flatnonzero(np.isin(records["op"], (MADE, REMADE))).tolist():
        count = int(records["node"][head])
        nodes = records[head + 1 : head + 1 + count]
        good = (nodes["op"] == NODE) & (nodes["graph"] == records["graph"][head])
        good &= nodes["node"] == np.arange(len(nodes))
        require(file, good, "node", "a graph's nodes do not follow it in order", head + 1)
        described[head + 1 : head + 1 + count] = True
        if len(nodes) < count:
            records = records[:head]
            break
    sizes: dict[int, int] = {}  # of the graphs that are there
    for row in np.flatnonzero(~described[: len(records)]).tolist():
        op, graph, node = (int(records[name][row]) for name in ("op", "graph", "node"))
        if op == MADE:
            sizes[graph] = node
        elif graph not in sizes:
            raise file.error(row, "graph", "a graph that was destroyed")
        elif op == REMADE:
            sizes[graph] = node
        elif op == ENDED:
            del sizes[graph]
        elif node >= sizes[graph]:
            raise file.error(row, "node", "a node that the graph does not have")
    return records
