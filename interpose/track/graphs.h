/*
 * Executable graphs: their numbers, their nodes, and the memory that they reach.
 *
 * Invariant: the run describes what the driver's executable graph does. The graph is read when it
 * is made, and follows all successful changes. If a change cannot be followed, the run marks the
 * graph as unknown. Records are on disk before the launch that they apply to. An executable graph
 * stays a valid pointer for the life of the process.
 */
#ifndef TT_TRACK_GRAPHS_H
#define TT_TRACK_GRAPHS_H

#include "track/nodes.h"
#include "track/regions.h"

struct exec;

/* The one with this handle; NULL where it is not known. Takes no lock. */
struct exec *graphs_find(CUgraphExec handle);
uint32_t graph_number(const struct exec *x);
struct context *graph_context(const struct exec *x);
/* Of the epochs that its launches are an occasion for; string offset. */
uint32_t graph_label(const struct exec *x);

/* One was made of a graph of these nodes, which it takes. Its number, TT_NO_ID where there is no memory. */
uint32_t graph_made(struct context *c, CUgraphExec handle, struct node_list *nodes, uint64_t flags, uint64_t seq);
/* Is about to be destroyed: before the call, since the handle may come back at once. graph_restored: it was not. */
void graph_ended(CUgraphExec handle);
void graph_restored(CUgraphExec handle, struct exec *x);
void graph_gone(struct exec *x, uint64_t seq);

/* The program takes edges out of some graph: of what is updated from here on it can't be told which node took whose place. */
void graphs_edges_removed(void);
bool graphs_pairs_known(void);

/* Each gives how many nodes changed. */
/* A node does what the only one in `change` does. */
size_t graph_node_changed(struct exec *x, CUgraphNode node, struct node_list *change, uint64_t seq);
size_t graph_node_enabled(struct exec *x, CUgraphNode node, bool enabled, uint64_t seq);
/* Whether a node of an executable graph is switched on. */
typedef bool node_runs_fn(CUgraphExec exec, CUgraphNode node);
/* The graph of a child node (NULL: all of it) does what these nodes do, which it takes. */
size_t graph_updated(struct exec *x, CUgraphNode child, struct node_list *from, node_runs_fn *runs, uint64_t seq);

/* What was recorded of graphs so far goes to the files. Takes no lock where there is nothing. */
void graphs_write(void);
/* The same at the end, when a thread may never give the lock back. */
void graphs_close(void);

/* Marks the regions that a launch of it may write to; false where they can't be told. */
bool graph_touch(struct exec *x);
/* Whether any of them is read by a capture after number `seen`; true where they can't be told. */
bool graph_may_write_captured(struct exec *x, uint32_t seen, uint64_t *base);

/* context_bit of the contexts to whose memory its nodes write. */
uint64_t graph_spread(struct exec *x);

/* Epochs inside it: what the capture keeps of it. The number of a node of the graph that it was made of, or updated from last. */
struct instrumentation;
struct instrumentation *graph_instrumentation(const struct exec *x);
void graph_set_instrumentation(struct exec *x, struct instrumentation *instrumentation);
uint32_t graph_changes(const struct exec *x); /* counts what changes it */
uint32_t graph_node_number(struct exec *x, CUgraphNode handle);
/* The name of the kernel that this node runs now, as a string offset; TT_NO_ID where it is not known. */
uint32_t graph_node_name(struct exec *x, uint32_t number);
/* The regions that one node is given pointers to. */
void graph_gather_node(struct exec *x, uint32_t number, struct region_gathering *g);
void graph_gather(struct exec *x, struct region_gathering *g); /* that all are */

void graphs_forget(void); /* in a fork's child */

#endif
