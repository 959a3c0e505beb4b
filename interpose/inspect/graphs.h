/*
 * Asks the driver for the nodes of a graph.
 *
 * Invariant: nothing here changes a graph. What cannot be read is marked (TT_GRAPHF_UNREAD), never
 * guessed.
 */
#ifndef TT_INSPECT_GRAPHS_H
#define TT_INSPECT_GRAPHS_H

#include "track/graphs.h"

/* c: the context of kernels whose own is not told. Where it can't be read, or only in part, `failed` says why. */
struct node_list graph_read(struct thread *t, struct context *c, CUgraph graph);
/* As nodes_add_kernel: its function's parameters are known from here on. */
bool graph_add_kernel(struct node_list *l, struct thread *t, struct context *c, const CUDA_KERNEL_NODE_PARAMS *p);
/* Called for each kernel that graph_read finds, where it is not NULL. */
extern void (*graph_kernel_found)(const char *name, CUfunction f, const uint32_t cluster[3]);

/* Whether the driver says that a node of an executable graph is switched on. */
bool graph_node_runs(CUgraphExec exec, CUgraphNode node);

/* A conditional node was added: the driver tells its bodies then, and never again. */
void conditional_added(CUgraphNode handle, const CUDA_CONDITIONAL_NODE_PARAMS *p);
void conditionals_forget(void); /* in a fork's child */

#endif
