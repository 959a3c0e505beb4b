/*
 * A copy of the program's graph for the recorder's nodes, with the pairs of corresponding nodes.
 *
 * Invariant: the program's graph stays unchanged, together with the hidden state that the driver keeps about it.
 * For example, the driver pairs the nodes of two graphs by the order in which they became last nodes.
 */
#ifndef TT_CAPTURE_GRAPH_CLONE_H
#define TT_CAPTURE_GRAPH_CLONE_H

#include <stdbool.h>
#include <stddef.h>

#include "driver/driver.h"

struct cloned_node {
	CUgraphNode of, node;
};

struct graph_clone {
	CUgraph graph; /* NULL: no copy */
	struct cloned_node *nodes; /* sorted by `of`; includes child graphs */
	size_t count, room;
};

/*
 * False: the driver does not copy the graph, or a copy would behave differently. Call graph_clone_free in any case.
 */
bool graph_clone_make(struct graph_clone *t, CUgraph of);
void graph_clone_free(struct graph_clone *t);
/* Brings an executable graph that was made of a copy up to date with another graph. False: the driver refuses. */
bool graph_clone_update(CUgraphExec exec, CUgraph with);
/* The copy of a node of the program's graph, which may be destroyed; NULL: there is none. */
CUgraphNode graph_clone_node(const struct graph_clone *t, CUgraphNode of);

#endif
