/*
 * Executable graphs: their numbers, their nodes, and the memory that they reach.
 *
 * Invariant: the run describes what the driver's executable graph does. The graph is read when it is instantiated,
 * and follows all successful changes. If a change cannot be followed, the run marks the graph as unknown. Records
 * are on disk before the launch that they apply to. An executable graph stays a valid pointer for the life of the
 * process.
 */
#ifndef TT_TRACK_GRAPHS_H
#define TT_TRACK_GRAPHS_H

#include "track/nodes.h"
#include "track/regions.h"

struct exec;

/* The executable graph with this handle; NULL: unknown. Takes no lock. */
struct exec *graphs_find(CUgraphExec handle);
uint32_t graph_number(const struct exec *x);
struct context *graph_context(const struct exec *x);
/* Label of the epochs that its launches trigger; string offset. */
uint32_t graph_label(const struct exec *x);

/* A graph with these nodes was instantiated; takes the nodes. Returns its number; TT_NO_ID: no memory. */
uint32_t graph_made(struct context *c, CUgraphExec handle, struct node_list *nodes, uint64_t flags, uint64_t seq);
/*
 * Call before a graph is destroyed, because the driver may reuse the handle at once. graph_restored: it was not
 * destroyed.
 */
void graph_ended(CUgraphExec handle);
void graph_restored(CUgraphExec handle, struct exec *x);
void graph_gone(struct exec *x, uint64_t seq);

/* The program removes edges of some graph: later updates may pair nodes in an unknown way. */
void graphs_edges_removed(void);
bool graphs_pairs_known(void);

/* Each returns the number of changed nodes. */
/* The node now does what the only node in `change` does. */
size_t graph_node_changed(struct exec *x, CUgraphNode node, struct node_list *change, uint64_t seq);
size_t graph_node_enabled(struct exec *x, CUgraphNode node, bool enabled, uint64_t seq);
/* Whether a node of an executable graph is enabled. */
typedef bool node_runs_fn(CUgraphExec exec, CUgraphNode node);
/* The graph of a child node (NULL: the whole graph) now has these nodes; takes them. */
size_t graph_updated(struct exec *x, CUgraphNode child, struct node_list *from, node_runs_fn *runs, uint64_t seq);

/* A kernel node, as it is now. */
struct graph_kernel {
	CUgraphNode handle; /* in the graph that the executable graph was made of, which may be destroyed; NULL: unknown */
	struct tt_graph_record record;
	const void *params; /* record.data_size bytes */
};
/* Those that are enabled, to be freed at once; NULL: none, or no memory. */
struct graph_kernel *graph_kernels(struct exec *x, size_t *count);
/* Whether its nodes allocate or free memory. */
bool graph_allocates(struct exec *x);

/* Writes pending records of graphs. Takes no lock if there are none. */
void graphs_write(void);
/* The same at the end, when a thread may never release the lock. */
void graphs_close(void);

/* Marks the regions that a launch of it may write; false: unknown. */
bool graph_touch(struct exec *x);
/* Whether a capture after number `awaited` reads one of them; true if unknown. */
bool graph_may_write_captured(struct exec *x, uint32_t awaited, uint64_t *base);

/* Whether a launch leaves memory that it allocated, or frees other memory. */
bool graph_keeps_memory(const struct exec *x);
/*
 * After such a launch: memory that its nodes allocated and left, on the device of the context, are regions now; those that
 * it freed have ended. Returns whether there are new regions.
 */
bool graph_memory_launched(struct exec *x, struct context *c, const struct region_origin *origin);

/* context_bit of the contexts whose memory its nodes write. */
uint64_t graph_spread(struct exec *x);

/*
 * Epochs inside it. graph_node_number: the number of a node of the graph from which it was instantiated or last
 * updated.
 */
struct instrumentation;
struct instrumentation *graph_instrumentation(const struct exec *x);
void graph_set_instrumentation(struct exec *x, struct instrumentation *instrumentation);
uint32_t graph_changes(const struct exec *x); /* number of changes of the graph */
uint32_t graph_node_number(struct exec *x, CUgraphNode handle);
/* The name of the kernel that this node runs, as a string offset; TT_NO_ID: unknown. */
uint32_t graph_node_name(struct exec *x, uint32_t number);
/* Gathers the regions that one node gets pointers to. */
void graph_gather_node(struct exec *x, uint32_t number, struct region_gathering *g);
void graph_gather(struct exec *x, struct region_gathering *g); /* those of all nodes */

void graphs_forget(void); /* in a forked child */

#endif
