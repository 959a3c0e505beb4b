"""The executable graphs that a run used: their nodes and edges, how they changed, as pictures."""

from ttanalyze.graphs.dot import dot
from ttanalyze.graphs.show import graph_text, graphs_text, rows, to_object
from ttanalyze.graphs.tables import Graph, graph
from ttanalyze.model.graph_frames import edges, graphs, nodes

__all__ = [
    "Graph",
    "dot",
    "edges",
    "graph",
    "graph_text",
    "graphs",
    "graphs_text",
    "nodes",
    "rows",
    "to_object",
]
