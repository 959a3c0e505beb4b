/*
 * Epochs inside graphs and times of nodes: our kernels as nodes of a graph, around chosen kernels.
 *
 * The nodes are in an executable graph of ours. It is made from a copy of the program's graph and
 * launched in its place. A change is made to the program's executable graph first, so that the
 * program gets the driver's answer, and then to ours. Some graphs cannot be copied, such as those
 * with conditional nodes. For these there is one executable graph: our nodes are in the program's
 * graph only while the driver instantiates it.
 *
 * Before each launch the host writes what the nodes are to do. Each launch that may be queued has
 * its own place. The host takes no part while the graph runs.
 *
 * Invariant: our graph does what the program's graph would do, or is not launched. If it is
 * launched past us, it captures nothing.
 */
#ifndef TT_CAPTURE_GRAPH_EPOCHS_H
#define TT_CAPTURE_GRAPH_EPOCHS_H

#include <stdbool.h>
#include <stdint.h>

#include "track/graphs.h"

struct instrumentation;

/* Before a call that makes an executable graph. NULL: no kernel of it was chosen, or it can't be done. */
struct instrumentation *instrumentation_insert(struct thread *t, struct context *c, CUgraph graph, uint64_t flags);

/* Whether our nodes are in an executable graph of ours; else they are in the program's. */
bool instrumentation_has_shadow(const struct instrumentation *q);
/* Makes that, once the program's was made. False: the driver refuses it. */
bool instrumentation_make_shadow(struct thread *t, struct instrumentation *q, uint64_t flags);
/* What stands for a node of the program's in it; NULL: there is none, or it can't be told. */
CUgraphNode instrumentation_shadow_node(const struct instrumentation *q, CUgraphNode node);
/* After the program's was updated from this graph: so is ours. */
void instrumentation_follow(struct thread *t, struct instrumentation *q, CUgraph graph);
/* It could not follow: from here on the program's is launched. */
void instrumentation_diverged(struct instrumentation *q);
/* What is launched in place of the program's, and follows it; NULL: nothing. */
CUgraphExec instrumentation_shadow(const struct instrumentation *q);

/* Where they are in the program's: around a call that updates the program's from this graph. False: it has other nodes. */
bool instrumentation_insert_again(struct instrumentation *q, CUgraph graph);
/* After it, and after the one that made it. */
void instrumentation_withdraw(struct instrumentation *q);
/* Before they are withdrawn: a node that the driver names, if it is one of ours, becomes the kernel that it belongs to, or NULL. */
void instrumentation_disown(const struct instrumentation *q, CUgraphNode *node);
/* It was updated, and x follows that: nodes may have other numbers. */
void instrumentation_renumber(struct instrumentation *q, struct exec *x);
/* The executable graph was made, and is x; else there is no more of them. */
void instrumentation_attach(struct instrumentation *q, struct exec *x);
void instrumentation_free(struct instrumentation *q);
/* Launches of it are not seen any more, or not all. */
void instrumentation_give_up(struct instrumentation *q);

/* Around a launch, by a thread within the gate. False: there is no instrumentation_end. */
bool instrumentation_begin(struct thread *t, struct instrumentation *q, struct exec *x, struct stream *s, uint64_t seq);
void instrumentation_end(struct thread *t, struct instrumentation *q, struct stream *s, bool launched);

/* What they would write to is about to be freed. */
void instrumentation_switch_off(const struct context *c);
void instrumentation_context_ends(struct context *c);
void instrumentation_forget(void); /* in a fork's child */

#endif
