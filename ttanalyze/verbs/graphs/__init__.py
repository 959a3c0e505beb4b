"""Shows the executable graphs of a run: nodes, edges, changes, pictures."""

from ttanalyze.format.graph_tables import edges, nodes
from ttanalyze.verbs.graphs.show import dot, graph_text, graphs_text
from ttanalyze.verbs.graphs.tables import Graph, graph, graphs

__all__ = [
    "Graph",
    "dot",
    "edges",
    "graph",
    "graph_text",
    "graphs",
    "graphs_text",
    "nodes",
]
