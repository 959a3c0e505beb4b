"""Epochs inside graph launches: after which node each was cut, and which nodes ran in between."""

from __future__ import annotations

import numpy as np

from ttanalyze.core.unordered_nodes import NodeOrder
from ttanalyze.format import graphs, layout
from ttanalyze.format.epoch_coverage import INSIDE
from ttanalyze.format.process import Process


def node_after_which(process: Process, epoch: int) -> int | None:
    """Returns the number of the node after which an epoch was cut; None if it is not known.

    Args:
        process: The process.
        epoch: The number of the epoch.
    """
    record = process.epochs[epoch]
    return _points(process, int(record["context"]), int(record["seq"])).get(epoch)


def nodes_between(process: Process, seq: int, before: int | None, epoch: int) -> list[int]:
    """Returns the nodes of a graph launch that may have run since one epoch and until another.

    Args:
        process: The process.
        seq: The sequence number of the launch.
        before: The number of the earlier epoch; None if there is none.
        epoch: The number of the later epoch.
    """
    graph = _graph(process, seq)
    nodes, edges = process.graphs.nodes(graph, seq), process.graphs.edges(graph, seq)
    order = NodeOrder(nodes["parent"].tolist(), edges, process.graphs.order(graph, seq).tolist())
    points = _points(process, int(process.epochs["context"][epoch]), seq)
    # The epochs of a launch are cut one after the other.
    done = [n for at, n in points.items() if before is not None and at <= before]
    ahead = [n for at, n in points.items() if at >= epoch]

    def between(node: int) -> bool:
        over = any(node == n or order.precedes(node, n) for n in done)
        return not over and not any(order.precedes(n, node) for n in ahead)

    return [node for node in range(len(nodes)) if between(node)]


def _graph(process: Process, seq: int) -> int:
    return int(process.events_between(seq - 1, seq)["id"][0])


def _points(process: Process, context: int, seq: int) -> dict[int, int]:
    """The nodes after which the epochs of a launch were cut, by epoch."""
    epochs = process.epochs
    inside = (epochs["trigger"] == INSIDE) & (epochs["seq"] == seq) & (epochs["context"] == context)
    rows = np.flatnonzero(inside).tolist()
    if not rows:
        return {}
    labels = [process.strings.get(int(label)) for label in epochs["label"][rows]]
    graph = _graph(process, seq)
    nodes = process.graphs.nodes(graph, seq)
    found = [
        (number, name)
        for number in process.graphs.order(graph, seq).tolist()
        if nodes["kind"][number] == graphs.KERNEL
        and nodes["parent"][number] == layout.NO_ID
        and (name := process.kernel(int(nodes["function"][number]))) in labels
    ]
    # One epoch for each kernel that was chosen, in this order, up to a number of them.
    if [name for _, name in found[: len(rows)]] == labels:
        return {row: number for row, (number, _) in zip(rows, found, strict=False)}
    named = [[n for n, name in found if name == label] for label in labels]
    return {row: own[0] for row, own in zip(rows, named, strict=True) if len(own) == 1}
