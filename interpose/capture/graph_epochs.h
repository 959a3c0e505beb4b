/*
 * Epochs inside graphs, and times of their nodes: kernels of ours as nodes of a graph, around
 * kernels that were chosen.
 *
 * They are in an executable graph of ours, which is made of a copy of the program's graph and is
 * launched in place of the program's. Whatever changes that one is done to it first, so that the
 * program is told what it would be without us; then ours follows. Of graphs that can't be copied, as
 * those with conditions, there is but one: our nodes are put into the program's graph for as long
 * as the driver makes an executable graph of it, and taken out again.
 *
 * Before each launch the host writes what they are to do, in a place of its own for each of the
 * launches that may be queued; while the graph runs, the host has no part in it.
 *
 * Invariant: ours does what the program's would, or is not launched; launched past us it captures
 * nothing.
 */
#ifndef TT_CAPTURE_GRAPH_EPOCHS_H
#define TT_CAPTURE_GRAPH_EPOCHS_H

#include <stdbool.h>
#include <stdint.h>

#include "track/graphs.h"

struct points;

/* Before a call that makes an executable graph. NULL: no kernel of it was chosen, or it can't be done. */
struct points *points_insert(struct thread *t, struct context *c, CUgraph graph, uint64_t flags);

/* Whether our nodes are in an executable graph of ours; else they are in the program's. */
bool points_apart(const struct points *q);
/* Makes that, once the program's was made. False: the driver refuses it. */
bool points_make_own(struct thread *t, struct points *q, uint64_t flags);
/* What stands for a node of the program's in it; NULL: there is none, or it can't be told. */
CUgraphNode points_own_node(const struct points *q, CUgraphNode node);
/* After the program's was updated from this graph: so is ours. */
void points_follow(struct thread *t, struct points *q, CUgraph graph);
/* It could not follow: from here on the program's is launched. */
void points_astray(struct points *q);
/* What is launched in place of the program's, and follows it; NULL: nothing. */
CUgraphExec points_own(const struct points *q);

/* Where they are in the program's: around a call that updates the program's from this graph. False: it has other nodes. */
bool points_insert_again(struct points *q, CUgraph graph);
/* After it, and after the one that made it. */
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
