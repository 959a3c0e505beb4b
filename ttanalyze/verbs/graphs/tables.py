"""A graph of a run, whole."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ttanalyze.errors import Error
from ttanalyze.format.graph_tables import edges, nodes
from ttanalyze.format.run import Run


@dataclass(frozen=True)
class Graph:
    """A graph as a call found it. seq: of that call, None: as it was in the end. state: which one
    of its states that is, from 0. changes: the seqs of the calls that made and changed it.
    nodes, edges: as in graph_tables, with gpu_time.
    """

    process: int
    number: int
    seq: int | None
    state: int
    changes: list[int]
    known: bool
    nodes: pd.DataFrame
    edges: pd.DataFrame


def graph(run: Run, number: int, process: int = 0, seq: int | None = None) -> Graph:
    """A graph as the call with this seq found it, by default as it was in the end. Raises Error
    where there is no such graph, or none at that call.
    """
    of = run.process(process)
    found = of.graphs
    if not 0 <= number < len(found):
        there = f"graphs 0 to {len(found) - 1}" if len(found) else "no graphs"
        raise Error(f"no graph {number} in process {process}: it has {there}")
    made, ended = int(found.made[number]["seq"]), int(found.ended[number])
    if seq is not None and seq < made:
        raise Error(f"graph {number} was made by call {made}, after call {seq}")
    if seq is not None and ended and seq > ended:
        raise Error(f"graph {number} was destroyed by call {ended}, before call {seq}")
    return Graph(
        process,
        number,
        seq,
        found.state(number, seq),
        [int(change) for change in found.changes(number)],
        found.known(number, seq),
        nodes(of, number, seq, times=True),
        edges(of, number, seq),
    )
