/*
 * The nodes of a graph, as needed to insert capture kernels.
 *
 * Invariant: the position of a node is the one in which the driver pairs it with nodes of other
 * graphs in a whole-graph update, whatever the order in which nodes were added.
 */
#ifndef TT_CAPTURE_GRAPH_TOPOLOGY_H
#define TT_CAPTURE_GRAPH_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver.h"

/* A graph as it is read: nodes by position, and by handle, and what leads where. */
struct topology {
	CUgraphNode *nodes, *from, *to;
	struct topology_node *sorted;
	size_t count, edges;
	uint64_t form; /* the same where each position has what it comes after at the same positions */
};

/* False: the driver does not tell its nodes, or there is no memory. Either is followed by topology_free. */
bool topology_read(struct topology *g, CUgraph graph);
void topology_free(struct topology *g);
/* Positions in an order in which the nodes may run; to be freed. NULL: no memory. */
uint32_t *topology_order(const struct topology *g);
/* Whether nodes of it allocate or free memory; true where it can't be told. */
bool topology_allocates(const struct topology *g);

#endif
