"""Shows the executable graphs of a run: nodes, edges, changes, pictures."""

from ttanalyze.verbs.graphs.show import dot
from ttanalyze.verbs.graphs.tables import Graph, graph, graphs

__all__ = [
    "Graph",
    "dot",
    "graph",
    "graphs",
]
