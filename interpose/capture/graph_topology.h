/*
 * The nodes and edges of a graph and of its child graphs, for inserting capture kernels.
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

/* A graph of a tree: the first is the whole graph, the others are child graphs and bodies of its conditional nodes. */
struct subgraph {
	struct topology g;
	CUgraph handle;
	uint32_t parent, owner; /* the graph that contains its node, and that node's position there */
	bool body;
};

struct graph_tree {
	struct subgraph *graphs; /* parents first */
	size_t count, room;
	uint64_t form; /* of all graphs */
	bool conditional; /* there are conditional nodes */
};

/* False: the driver does not describe the graph, or no memory. Call graph_tree_free in any case. */
bool graph_tree_read(struct graph_tree *t, CUgraph graph);
void graph_tree_free(struct graph_tree *t);
/* The graph after `before` (0: the first) that belongs to the node at a position; 0: none. */
uint32_t graph_tree_child(const struct graph_tree *t, uint32_t parent, uint32_t position, uint32_t before);
/* Positions in a possible execution order; the caller frees it. NULL: no memory. */
uint32_t *topology_order(const struct topology *g);
/* Whether nodes allocate or free memory; true if unknown. */
bool graph_tree_allocates(const struct graph_tree *t);

#endif
