"""Graphs as text for a screen and as Graphviz pictures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from ttanalyze.core.graph_dot import drawing, node_text
from ttanalyze.output import text
from ttanalyze.output.tables import as_records, frame_text
from ttanalyze.util.arguments import checked
from ttanalyze.verbs.graphs.tables import Graph

SIZES = ("grid", "block")
LISTED = (
    *("graph", "nodes", "kernels", "copies", "sets", "edges", "launches", "changes"),
    *("seq", "ended"),
)
AFTER = 6  # edges of a node that are named


def graphs_text(found: pd.DataFrame, processes: int, width: int = 0) -> str:
    """Returns the graphs of a run as a table for a screen.

    Args:
        found: The result of `graphs`.
        processes: The number of processes. With more than one the table names them.
        width: The width of the screen in characters, 0 for no limit.
    """
    if not len(found):
        return "no graphs"
    names = LISTED if processes < 2 else ("process", *LISTED)
    out = frame_text(found[list(names)], width)
    if found["device"].any():
        count = text.count(int(found["device"].sum()), "graph")
        out += f"\n{count} may also have been launched by kernels; such launches are not recorded"
    return out


def graph_text(graph: Graph, width: int = 0) -> str:
    """Returns one graph for a screen: a summary and a table of its nodes.

    Args:
        graph: The graph.
        width: The width of the screen in characters, 0 for no limit.
    """
    return "\n\n".join([_head(graph), *([_nodes(graph, width)] if len(graph.nodes) else [])])


def _head(graph: Graph) -> str:
    made, *changed = graph.changes
    how = "after" if graph.seq in graph.changes else "before"
    when = "at the end of the run" if graph.seq is None else f"{how} call {graph.seq:,}"
    if changed:
        when += f", after {graph.state} of {text.count(len(changed), 'change')}"
    pairs = [("graph", f"{graph.number} {when}"), ("made", f"by call {made:,}")]
    if changed:
        some = ", ".join(f"{seq:,}" for seq in changed[:8]) + (" …" if len(changed) > 8 else "")
        pairs.append(("changed", f"by {text.count(len(changed), 'call')}: {some}"))
    if not graph.known:
        pairs.append(("nodes", "unknown; see the warnings of the run"))
    else:
        edges = text.count(len(graph.edges), "edge")
        pairs.append(("nodes", f"{len(graph.nodes):,}, {edges}"))
    return text.rows(pairs)


def _nodes(graph: Graph, width: int) -> str:
    after: dict[int, list[int]] = {}
    for begin, end in zip(graph.edges["from"].tolist(), graph.edges["to"].tolist(), strict=True):
        after.setdefault(end, []).append(begin)
    timed = bool(graph.nodes["gpu_time"].notna().any())
    head = ["node", "kind", "what", "grid", "block", "regions", "after", "in", "time", ""]
    lines = [head]
    for node in as_records(graph.nodes):
        parent = node["parent"]
        before = after.get(node["node"], [])
        more = " …" if len(before) > AFTER else ""
        lines.append(
            [
                str(node["node"]),
                node["kind"],
                node_text(node),
                *_shape(node),
                _numbers(node["regions"]),
                _numbers(before[:AFTER]) + more,
                "" if parent is None else str(parent),
                "" if node["gpu_time"] is None else text.duration(node["gpu_time"]),
                ", ".join(_remarks(node)),
            ]
        )
    if not timed:
        lines = [line[:-2] + line[-1:] for line in lines]
    return text.table(lines, {0, len(head) - 2} if timed else {0}, width)


def _numbers(values: list[int]) -> str:
    return " ".join(map(str, values))


def _shape(node: dict[str, Any]) -> tuple[str, str]:
    if node["kind"] != "kernel":
        return "", ""
    grid, block = (",".join(str(node[f"{size}_{axis}"]) for axis in "xyz") for size in SIZES)
    return grid, block


def _remarks(node: dict[str, Any]) -> list[str]:
    answer = {
        "off": not node["enabled"],
        "cooperative": node["cooperative"],
        "maybe": node["conditional"],
        "device": node["device"],
        "unknown": not node["known"],
    }
    return [name for name, holds in answer.items() if holds]


@checked
def dot(found: Iterable[Graph]) -> str:
    """Returns graphs as one picture in Graphviz's DOT language, each in its own box.

    Args:
        found: The graphs.

    Example:
        >>> text = tt.graphs.dot([tt.graphs.graph(tt.open("graphed"), 0)])
        >>> text.splitlines()[0]
        'digraph run {'
    """
    return drawing(
        (f"p{graph.process}_g{graph.number}", _title(graph), graph.nodes, graph.edges)
        for graph in found
    )


def _title(graph: Graph) -> str:
    title = f"graph {graph.number}" + ("" if graph.known else ": unknown")
    return title if not graph.process else f"process {graph.process}, {title}"
