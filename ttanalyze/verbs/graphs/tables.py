"""Reads one graph of a run."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import pandas as pd

from ttanalyze.errors import Error
from ttanalyze.format import graph_tables
from ttanalyze.format.graph_tables import edges, nodes
from ttanalyze.format.run import Run
from ttanalyze.output.tables import as_records
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress


@dataclass(frozen=True)
class Graph:
    """A graph at one call.

    Attributes:
        process: The number of the process.
        number: The number of the graph.
        seq: The sequence number of the call, None for the end of the run.
        state: The number of the state of the graph, from 0.
        changes: The sequence numbers of the calls that made and changed it.
        known: Whether the nodes are known.
        nodes: The table `graph_nodes` with the column gpu_time.
        edges: The table `graph_edges`.
    """

    process: int
    number: int
    seq: int | None
    state: int
    changes: list[int]
    known: bool
    nodes: pd.DataFrame
    edges: pd.DataFrame

    def to_json(self) -> str:
        """Returns the attributes as a JSON object. Parameters of kernels are hexadecimal."""
        made = vars(self) | {"nodes": as_records(self.nodes), "edges": as_records(self.edges)}
        made = {{"number": "graph"}.get(name, name): value for name, value in made.items()}
        return orjson.dumps(made, lambda params: params.hex(), orjson.OPT_INDENT_2).decode()


def graphs(run: Run, progress: Progress = None) -> pd.DataFrame:
    """Lists the executable graphs of a run.

    Args:
        run: The run.
        progress: Called with the finished and the total number of events.

    Returns:
        One row per graph: the table `graphs`.

    Raises:
        FormatError: A file does not follow the format.

    Example:
        >>> len(tt.graphs.graphs(tt.open("run1")))
        0
    """
    return graph_tables.graphs(run.processes, progress)


@checked
def graph(
    run: Run, number: int, process: int = 0, seq: int | None = None, rank: int | None = None
) -> Graph:
    """Returns a graph with its nodes and edges.

    Args:
        run: The run.
        number: The number of the graph.
        process: The number of the process.
        seq: The sequence number of the call at which to look. Default: the last state.
        rank: The rank of the process, instead of its number.

    Raises:
        Error: The process has no such graph, or not at this call.

    Example:
        >>> graph = tt.graphs.graph(tt.open("graphed"), 0)
        >>> graph.nodes["kind"].tolist()
        ['set', 'kernel', 'kernel', 'kernel', 'copy']
        >>> graph.edges[["from", "to"]].values.tolist()
        [[0, 1], [1, 2], [2, 3], [3, 4]]
    """
    of = run.process(process, rank)
    found = of.graphs
    if not 0 <= number < len(found):
        there = f"graphs 0 to {len(found) - 1}" if len(found) else "no graphs"
        raise Error(f"no graph {number} in {of.name}: it has {there}")
    made, ended = int(found.made[number]["seq"]), int(found.ended[number])
    if seq is not None and seq < made:
        raise Error(f"graph {number} was made by call {made}, after call {seq}")
    if seq is not None and ended and seq > ended:
        raise Error(f"graph {number} was destroyed by call {ended}, before call {seq}")
    return Graph(
        of.index,
        number,
        seq,
        found.state(number, seq),
        [int(change) for change in found.changes(number)],
        found.known(number, seq),
        nodes(of, number, seq, times=True),
        edges(of, number, seq),
    )
