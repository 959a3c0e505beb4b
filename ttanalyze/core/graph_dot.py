"""Draws graphs in Graphviz's DOT language, and describes nodes in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from ttanalyze.output import text
from ttanalyze.output.tables import as_records

SHAPES = {
    "kernel": "box",
    "copy": "cds",
    "set": "cds",
    "host": "component",
    "conditional": "diamond",
    "graph": "tab",
    "empty": "point",
}


def drawing(parts: Iterable[tuple[str, str, pd.DataFrame, pd.DataFrame]]) -> str:
    """Returns one picture of graphs, each in its own box.

    Args:
        parts: For each graph a unique prefix, a title, and its nodes and edges as in graph_tables.
    """
    lines = ["digraph run {", "  rankdir=TB;", '  node [fontname="sans-serif", fontsize=10];']
    for part in parts:
        lines += (f"  {line}" for line in _box(*part))
    return "\n".join([*lines, "}"])


def _box(prefix: str, title: str, nodes: pd.DataFrame, edges: pd.DataFrame) -> Iterator[str]:
    yield f"subgraph cluster_{prefix} {{"
    yield f"  label={_quoted(title)};"
    inside: dict[int, list[dict[str, Any]]] = {}
    for node in as_records(nodes.sort_values("node")):
        inside.setdefault(-1 if node["parent"] is None else node["parent"], []).append(node)
    levels = [iter(inside.get(-1, []))]
    while levels:
        indent = "  " * len(levels)
        node = next(levels[-1], {})
        if not node:
            levels.pop()
            if levels:
                yield "  " * len(levels) + "}"
            continue
        yield f"{indent}{prefix}_{node['node']} [{_attributes(node)}];"
        if node["node"] in inside:
            yield f"{indent}subgraph cluster_{prefix}_{node['node']} {{"
            yield f"{indent}  label={_quoted('in node ' + str(node['node']))};"
            levels.append(iter(inside[node["node"]]))
    for edge in as_records(edges):
        dashed = " [style=dashed]" if edge["type"] else ""
        yield f"  {prefix}_{edge['from']} -> {prefix}_{edge['to']}{dashed};"
    # What a node holds hangs on it.
    for holder, held in inside.items():
        if holder >= 0:
            first = held[0]["node"]
            yield f"  {prefix}_{holder} -> {prefix}_{first} [style=dotted, arrowhead=none];"
    yield "}"


def _attributes(node: dict[str, Any]) -> str:
    words = [f"{node['node']} {node['kind']}", node_text(node)]
    if node["kind"] == "kernel":
        sizes = (
            ",".join(str(node[f"{size}_{axis}"]) for axis in "xyz") for size in ("grid", "block")
        )
        words.append(" by ".join(sizes))
    if node["regions"]:
        words.append("regions " + " ".join(map(str, node["regions"])))
    label = "\n".join(word for word in words if word)
    style = [name for name, holds in (("dashed", not node["enabled"]),) if holds]
    style += ["dotted"] if node["conditional"] else []
    made = [f"label={_quoted(label)}", f"shape={SHAPES.get(node['kind'], 'ellipse')}"]
    if style:
        made.append(f'style="{",".join(style)}"')
    return ", ".join(made)


def _quoted(value: str) -> str:
    """Returns a DOT string, in which \\n begins a new line."""
    lines = (text.printable(line) for line in value.split("\n"))
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


def node_text(node: dict[str, Any]) -> str:
    """Returns in a few words what a node does. node: a row of graph_tables.nodes."""
    kind = node["kind"]
    if kind == "kernel":
        return str(node["short"] or "?")
    if kind == "copy":
        return f"{node['bytes']:,} bytes to {node['dst']:#x} from {node['src']:#x}"
    if kind == "set":
        return f"{node['bytes']:,} bytes at {node['dst']:#x} to {node['src']:#x}"
    if kind == "alloc":
        return f"{node['bytes']:,} bytes at {node['dst']:#x}"
    if kind == "free":
        return f"{node['dst']:#x}"
    if kind in ("host", "event-wait", "event-record"):
        return f"{node['src']:#x}"
    if kind == "conditional":
        return {0: "if", 1: "while", 2: "switch"}.get(node["dst"], "?")
    return ""
