"""Flame graphs: launches and GPU time by call stack and kernel, and memory by allocation stack.

Each tree has a bounded number of nodes, those with the largest values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ttanalyze.core import stacks
from ttanalyze.core.allocating_calls import allocating_calls
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.report.usage import OTHERS

DEEPEST = 64  # frames of a stack, the innermost ones
LEVEL = 4000  # nodes of a tree
UNKNOWN = "no recorded stack"
LINKS = "…"


@dataclass
class _Node:
    values: list[float]
    inner: dict[str, _Node] = field(default_factory=dict)


Weighted = Iterable[tuple[list[str], list[float]]]


def tree(paths: Weighted, names: list[str], limit: int = LEVEL) -> dict[str, Any]:
    """Returns a tree as columns, the parents before their children.

    Args:
        paths: Texts from the outermost frame on, and the values of each path.
        names: The names of the values.
        limit: The maximal number of nodes.

    Returns:
        parent, text (an index into texts), a column for each name, and `left_out`, the number of
        nodes that are missing. Row 0 is the root, its own parent.
    """
    root = _Node([0.0] * len(names))
    for path, values in paths:
        node = root
        for part in (None, *path):
            if part is not None:
                node = node.inner.setdefault(part, _Node([0.0] * len(names)))
            node.values = [a + b for a, b in zip(node.values, values, strict=True)]
    rows: list[tuple[int, str, list[float]]] = [(0, "all", root.values)]
    share = [1 / total if total else 0.0 for total in root.values]
    # A parent weighs no less than its children, so a level at a time keeps the heaviest of all.
    level, left_out = [(0, root)], 0
    while level:
        found = [(i, name, node) for i, one in level for name, node in one.inner.items()]
        found.sort(key=lambda item: -max(v * s for v, s in zip(item[2].values, share, strict=True)))
        room = max(0, min(limit - len(rows), max(16, (limit - len(rows)) // 2)))
        left_out += len(found) - len(found[:room])
        level = []
        for i, name, node in found[:room]:
            level.append((len(rows), node))
            rows.append((i, name, node.values))
    texts = {name: i for i, name in enumerate(dict.fromkeys(name for _, name, _ in rows))}
    columns = {name: np.array([r[2][i] for r in rows]) for i, name in enumerate(names)}
    return {
        "parent": np.array([parent for parent, _, _ in rows], "u4"),
        "text": np.array([texts[name] for _, name, _ in rows], "u4"),
        "texts": [text.printable(name) for name in texts],
        "values": columns,
        "left_out": left_out,
    }


def _frames(process: Process, stack: int) -> list[str]:
    """Returns the frames of a stack, the outermost first."""
    frames = process.stack(stack) if stack else []
    if not frames:
        return [UNKNOWN]
    shown = [stacks.frame_text(frame) for frame in frames[:DEEPEST]][::-1]
    return shown if len(frames) <= DEEPEST else [LINKS, *shown]


def work(process: Process, launches: Array, took: Array, names: dict[int, str]) -> dict[str, Any]:
    """Returns the tree of launches. launches: tt_event. took: GPU time of each, 0 if unknown."""
    key = launches["stack"].astype("u8") << np.uint64(32) | launches["id"]
    different, which, counts = np.unique(key, return_inverse=True, return_counts=True)
    times = np.bincount(which, took, len(different))
    known: dict[int, list[str]] = {}
    paths = []
    for both, count, time in zip(different.tolist(), counts.tolist(), times.tolist(), strict=True):
        stack, function = both >> 32, both & 0xFFFFFFFF
        if stack not in known:
            known[stack] = _frames(process, stack)
        kernel = names.get(function, f"function {function}")
        paths.append(([*known[stack], kernel], [time, count]))
    return tree(paths, ["GPU time", "launches"])


def memory(process: Process, peak: int) -> dict[str, Any]:
    """Returns the tree of allocated device memory. peak: the call with the highest use."""
    regions = process.regions
    _, made_by = allocating_calls(process)
    kinds = [layout.REGION_KINDS.index(kind) for kind in OTHERS]
    device = ~np.isin(regions.birth["kind"], kinds)
    at_peak = (regions.birth["seq"] <= peak) & (
        (regions.died == layout.NO_EPOCH) | (regions.death_seq > peak)
    )
    sizes = regions.size.astype("f8") * device
    different, which = np.unique(made_by, return_inverse=True)
    total = np.bincount(which, sizes, len(different)).tolist()
    most = np.bincount(which, sizes * at_peak, len(different)).tolist()
    paths = [
        (_frames(process, stack), [peaked, whole])
        for stack, peaked, whole in zip(different.tolist(), most, total, strict=True)
        if whole
    ]
    return tree(paths, ["bytes at the peak", "bytes of the whole run"])
