/*
 * Asks the driver for the nodes of a graph.
 *
 * Invariant: nothing here changes a graph. What cannot be read is marked (TT_GRAPHF_UNREAD), never
 * guessed.
 */
#ifndef TT_INSPECT_GRAPHS_H
#define TT_INSPECT_GRAPHS_H

#include "track/graphs.h"

/* c: the context of kernels without one. `failed`: why the graph could not be read, or only in part. */
struct node_list graph_read(struct thread *t, struct context *c, CUgraph graph);
/* As nodes_add_kernel; also makes its function's parameters known. */
bool graph_add_kernel(struct node_list *l, struct thread *t, struct context *c, const CUDA_KERNEL_NODE_PARAMS *p);
/* Called for each kernel that graph_read finds, unless NULL. */
extern void (*graph_kernel_found)(const char *name, CUfunction f, const uint32_t cluster[3]);

/* Whether the driver says that a node of an executable graph is enabled. */
bool graph_node_runs(CUgraphExec exec, CUgraphNode node);

/* A conditional node was added: only now does the driver report its bodies. */
void conditional_added(CUgraphNode handle, const CUDA_CONDITIONAL_NODE_PARAMS *p);
/* The bodies of a conditional node, if at most `most`; 0: unknown. */
uint32_t graph_bodies(CUgraphNode node, CUgraph *bodies, uint32_t most);
#define BODIES_MOST 16
void conditionals_forget(void); /* in a forked child */

#endif
