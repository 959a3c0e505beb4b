/*
 * A copy of the program's graph that gets nodes of ours, with the pairs of corresponding nodes.
 *
 * Invariant: the program's graph stays unchanged, with the hidden state that the driver keeps about
 * it. One example is the order in which nodes became the last ones, by which the driver pairs the
 * nodes of two graphs.
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
	CUgraph graph; /* NULL: there is none */
	struct cloned_node *nodes; /* by `of`; those of graphs inside, too */
	size_t count, room;
};

/* False: the driver does not copy it, or has a copy do something else. Either is followed by graph_clone_free. */
bool graph_clone_make(struct graph_clone *t, CUgraph of);
void graph_clone_free(struct graph_clone *t);
/* The node that stands for one of the program's, whose graph may be gone; NULL: there is none. */
CUgraphNode graph_clone_node(const struct graph_clone *t, CUgraphNode of);

#endif
