/*
 * What graphs.c and graph_reach.c share of an executable graph.
 */
#ifndef TT_TRACK_GRAPHS_INTERNAL_H
#define TT_TRACK_GRAPHS_INTERNAL_H

#include "track/graphs.h"

struct exec {
	void *_Atomic handle; /* a CUgraphExec; lock-free readers may see it change */
	uint32_t number, label;
	struct context *context;
	bool unread;  /* its nodes are unknown */
	bool foreign; /* its nodes are known by handles of another graph than the one that it was made of */
	struct node_list nodes;
	struct node_list source; /* the graph of the last update: the driver also accepts its nodes' handles */
	_Atomic bool busy;     /* a thread is reading its regions */
	_Atomic bool outdated; /* its nodes may reach other regions now */
	_Atomic uint32_t changes;
	bool reaches_all;
	struct region_gathering regions;
	struct instrumentation *instrumentation;
	struct kept_memory *_Atomic memory; /* by address; NULL: none */
	size_t memory_count;
	_Atomic bool spread_outdated;
	_Atomic uint64_t spread; /* context_bit of the contexts whose memory its nodes write */
	struct exec *next_spare;
};

/* Makes x->memory that of x->nodes; false: no host memory. The caller holds the lock. */
bool graph_memory_read(struct exec *x);

/* The lock guards all except what readers of the table use. */
void graphs_lock(void);
void graphs_unlock(void);

#endif
