/*
 * A copy of a graph of the program, for nodes of ours, and which node of it is whose.
 *
 * Invariant: the program's graph stays as it is, with all that the driver keeps of it but does not
 * tell, as the order in which nodes became the last ones, by which it pairs those of two graphs.
 */
#ifndef TT_CAPTURE_GRAPH_CLONE_H
#define TT_CAPTURE_GRAPH_CLONE_H

#include <stdbool.h>
#include <stddef.h>

#include "driver/driver.h"

struct twin_node {
	CUgraphNode of, node;
};

struct twin {
	CUgraph graph; /* NULL: there is none */
	struct twin_node *nodes; /* by `of`; those of graphs inside, too */
	size_t count, room;
};

/* False: the driver does not copy it, or has a copy do something else. Either is followed by twin_free. */
bool twin_make(struct twin *t, CUgraph of);
void twin_free(struct twin *t);
/* The node that stands for one of the program's, whose graph may be gone; NULL: there is none. */
CUgraphNode twin_of(const struct twin *t, CUgraphNode of);

#endif
