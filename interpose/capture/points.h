/*
 * Epochs inside graphs, and times of their nodes: kernels of ours as nodes of a graph, around
 * kernels that were chosen.
 *
 * They are put into the program's graph for as long as the driver makes an executable graph of it,
 * and taken out again, so that only that has them. Before each launch the host writes what they are
 * to do, in a place of its own for each of the launches that may be queued; while the graph runs,
 * the host has no part in it.
 *
 * Invariant: the program's graph is as it was when the call returns; an executable graph that is
 * launched past us captures nothing.
 */
#ifndef TT_CAPTURE_POINTS_H
#define TT_CAPTURE_POINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "../state/graphs.h"

struct points;

/* Around a call that makes an executable graph. NULL: no kernel of it was chosen, or it can't be done. */
struct points *points_insert(struct thread *t, struct context *c, CUgraph graph, uint64_t flags);
/* The same again around one that updates the executable graph from this graph. False: it has other nodes. */
bool points_insert_again(struct points *q, CUgraph graph);
void points_withdraw(struct points *q);
/* Before they are withdrawn: a node that the driver names, if it is one of ours, becomes the kernel that it belongs to, or NULL. */
void points_disown(const struct points *q, CUgraphNode *node);
/* It was updated, and x follows that: nodes may have other numbers. */
void points_updated(struct points *q, struct exec *x);
/* The executable graph was made, and is x; else there is no more of them. */
void points_attach(struct points *q, struct exec *x);
void points_free(struct points *q);
/* Launches of it are not seen any more, or not all. */
void points_give_up(struct points *q);

/* Around a launch, by a thread within the gate. False: there is no points_end. */
bool points_begin(struct thread *t, struct points *q, struct exec *x, struct stream *s, uint64_t seq);
void points_end(struct thread *t, struct points *q, struct stream *s, bool launched);

/* What they would write to is about to be freed. */
void points_switch_off(const struct context *c);
void points_context_ends(struct context *c);
void points_forget(void); /* in a fork's child */

#endif
