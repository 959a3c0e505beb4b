/*
 * The nodes and edges of a graph, for inserting capture kernels.
 *
 * Invariant: the position of a node is the one by which the driver pairs nodes of two graphs in an update, whatever
 * the order in which nodes were added.
 */
#ifndef TT_CAPTURE_GRAPH_TOPOLOGY_H
#define TT_CAPTURE_GRAPH_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver.h"

/* Nodes by position and by handle, and edges. */
struct topology {
	CUgraphNode *nodes, *from, *to;
	struct topology_node *sorted;
	size_t count, edges;
	uint64_t form; /* hash of the topology: equal if the nodes at each position have the same predecessors */
};

/* False: the driver does not describe the graph, or no memory. Call topology_free in any case. */
bool topology_read(struct topology *g, CUgraph graph);
void topology_free(struct topology *g);
/* Positions in a possible execution order; the caller frees it. NULL: no memory. */
uint32_t *topology_order(const struct topology *g);
/* Whether nodes allocate or free memory; true if unknown. */
bool topology_allocates(const struct topology *g);

#endif
