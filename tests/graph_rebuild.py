"""Does again what was recorded between epochs: `python -m tests.graph_rebuild RUN [FIRST LAST]`.

Runs in a process of its own, on the simulator or on a GPU. Prints one JSON object: the error, or
what came of the graph, with memory where it was and, made again beside it, elsewhere.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ttanalyze as tt
from ttanalyze.errors import Error
from ttanalyze.gpu import Graph, Rebuilt


def outcome(graph: Rebuilt) -> dict[str, Any]:
    graph.restore()
    before = graph.check(graph.span.first)
    graph.launch()
    once = graph.check()
    graph.restore()
    graph.launch()
    return {
        "nodes": graph.node_count(),
        "restored": before.same,
        "same": once.same,
        "again": graph.check().same,
        "differences": [f.region for f in once.differences],
        "new": [f.region for f in once.differences if f.new],
        "text": str(once),
        "moved": graph.moved,
        "notes": graph.notes,
    }


def rebuilt(path: str, first: int, last: int) -> dict[str, Any]:
    run = tt.open(path)
    count = len(run.processes[0].epochs)
    bounds = (first, last + count) if last < 0 else (first, last)
    try:
        here = Graph.from_run(run, bounds)
        elsewhere = Graph.from_run(run, bounds, order="serial")
        return {"here": outcome(here), "elsewhere": outcome(elsewhere)}
    except Error as e:
        return {"error": str(e)}


if __name__ == "__main__":
    path, *bounds = sys.argv[1:]
    first, last = map(int, bounds or ("0", "-1"))
    print(json.dumps(rebuilt(path, first, last)))
