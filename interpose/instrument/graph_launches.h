/*
 * Traces kernels of executable graphs: a traced launch of a graph launches a copy, in which kernels that record are in
 * place of the program's.
 *
 * Invariant: the program's graphs stay as they are. A copy follows each change, or is not launched any more. A launch of
 * one of the two begins when that before it has ended.
 */
#ifndef TT_INSTRUMENT_GRAPH_LAUNCHES_H
#define TT_INSTRUMENT_GRAPH_LAUNCHES_H

#include "instrument/instrument.h"
#include "track/graphs.h"

struct traced_graph;

/* An executable graph was made: copies it, if functions of it were chosen. */
void traced_graph_made(struct thread *t, struct exec *x, CUgraph graph, uint64_t flags);
void traced_graph_gone(const struct exec *x);
/* NULL: it has no copy, or that is not launched any more. */
struct traced_graph *traced_graph_of(const struct exec *x);

/* For changes of one node, which the program names by its own. */
CUgraphExec traced_graph_copy(const struct traced_graph *g);
CUgraphNode traced_graph_node(const struct traced_graph *g, CUgraphNode node);
/* The whole graph was changed. */
void traced_graph_follow(struct thread *t, struct traced_graph *g, CUgraph graph);
void traced_graph_diverged(struct traced_graph *g);

/* A launch, with the context current. */
struct graph_launch {
	struct context *context;
	struct exec *exec;
	uint64_t seq;
	CUstream stream;
	struct traced_graph *graph; /* NULL: no function of it was chosen */
};
/* Right before the driver's call. Returns what is launched in place of the program's; NULL: the launch is not traced. */
CUgraphExec traced_graph_begin(struct graph_launch *l);
/* The driver's answer for what traced_graph_begin returned; then the program's is launched. */
void traced_graph_refused(struct graph_launch *l, CUresult r);
/* Something was launched, or the driver refused all. */
void traced_graph_end(struct graph_launch *l, bool failed);

void traced_graphs_context_ends(const struct context *c);
void traced_graphs_forget(void); /* in a forked child */

#endif
