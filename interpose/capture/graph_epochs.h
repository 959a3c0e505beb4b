/*
 * Epochs inside graphs and times of nodes: the recorder's kernels as nodes of a graph, around chosen kernels.
 *
 * The nodes are in an executable graph of the recorder, the shadow. It is made from a copy of the program's graph
 * and launched in its place. A change is made to the program's executable graph first, so that the program gets the
 * driver's answer, and then to the shadow. Some graphs cannot be copied, such as those with conditional nodes. For
 * these there is one executable graph: the recorder's nodes are in the program's graph only while the driver
 * instantiates it.
 *
 * Before each launch the host writes the work of the nodes. Each launch that may be queued has its own slot. The
 * host takes no part while the graph runs.
 *
 * Invariant: the shadow does what the program's graph would do, or is not launched. If it is launched without the
 * recorder's preparation, it captures nothing.
 */
#ifndef TT_CAPTURE_GRAPH_EPOCHS_H
#define TT_CAPTURE_GRAPH_EPOCHS_H

#include <stdbool.h>
#include <stdint.h>

#include "track/graphs.h"

struct instrumentation;

/*
 * tt_epoch in a stream that is being captured: adds a kernel to the program's graph. Each launch of the graph then has
 * an epoch there, of the memory that the graph is given. False: not possible; a message says why.
 */
bool instrumentation_mark(struct thread *t, struct context *c, CUstream stream, uint32_t label);
/* Call before a graph is instantiated. NULL: none of its kernels was chosen, or it cannot be instrumented. */
struct instrumentation *instrumentation_insert(struct thread *t, struct context *c, CUgraph graph, uint64_t flags);

/* Whether the recorder's nodes are in a shadow; else they are in the program's graph. */
bool instrumentation_has_shadow(const struct instrumentation *q);
/* Creates the shadow, after the program's executable graph. False: the driver refuses it. */
bool instrumentation_make_shadow(struct thread *t, struct instrumentation *q, uint64_t flags);
/* The node of the shadow for a node of the program; NULL: none, or unknown. */
CUgraphNode instrumentation_shadow_node(const struct instrumentation *q, CUgraphNode node);
/* Updates the shadow, after the program's executable graph was updated from `graph`. */
void instrumentation_follow(struct thread *t, struct instrumentation *q, CUgraph graph);
/* The shadow could not be updated: from now on the program's executable graph is launched. */
void instrumentation_diverged(struct instrumentation *q);
/* The executable graph to launch instead of the program's, and to change after it; NULL: none. */
CUgraphExec instrumentation_shadow(const struct instrumentation *q);

/*
 * Without a shadow: call before the program's executable graph is updated from `graph`. False: it has other nodes.
 */
bool instrumentation_insert_again(struct instrumentation *q, CUgraph graph);
/* Removes the nodes after that update, and after the instantiation. */
void instrumentation_withdraw(struct instrumentation *q);
/* Call before instrumentation_withdraw: replaces a node of the recorder by the program's kernel node, or NULL. */
void instrumentation_disown(const struct instrumentation *q, CUgraphNode *node);
/* The executable graph was updated, and x too: nodes may have other numbers. */
void instrumentation_renumber(struct instrumentation *q, struct exec *x);
/* The executable graph was created as x; if it was not, call instrumentation_free. */
void instrumentation_attach(struct instrumentation *q, struct exec *x);
void instrumentation_free(struct instrumentation *q);
/* The recorder no longer sees all launches: ends epochs inside the graph. */
void instrumentation_give_up(struct instrumentation *q);

/* Call around a launch, inside the gate. False: do not call instrumentation_end. */
bool instrumentation_begin(struct thread *t, struct instrumentation *q, struct exec *x, struct stream *s, uint64_t seq);
void instrumentation_end(struct thread *t, struct instrumentation *q, struct stream *s, bool launched);

/* The memory that captures write to is about to be freed. */
void instrumentation_switch_off(const struct context *c);
void instrumentation_context_ends(struct context *c);
void instrumentation_forget(void); /* in a forked child */

#endif
