/*
 * Delays between calls: some calls that submit work are delayed, so that unordered work runs in
 * another order.
 *
 * Invariant: only time is added. A stream waits for a word that a thread of the recorder writes, so
 * the delay needs no room on the GPU. The word is written within a bounded time, whatever the
 * program does. The choice of delayed calls depends only on the seed or a file, the stream, and the
 * number of such calls before it in the stream.
 */
#ifndef TT_DELAY_CALLS_H
#define TT_DELAY_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "format.h"
#include "track/streams.h"

#define DELAYS (TT_EVENTF_DELAYED | TT_EVENTF_DELAYED_STREAM)

/*
 * Counts a call, and lets the thread sleep if it was chosen for that. Holding nothing that another
 * thread may wait for. Returns for which of `may` it was chosen, its delay and its number.
 */
uint32_t delay_call(struct thread *t, struct stream *s, uint32_t may, uint32_t *ns, uint64_t *number);
/* The stream stands still for a while when it gets here. False: it does not. */
bool delay_stream(struct stream *s, uint32_t ns);

/* A kernel has clusters by its launch or by its code; a delay of one block in each cluster must know if there are none. */
void delays_look_for_clusters(const char *kernel, CUfunction f, const uint32_t cluster[3]);

/* Before the context goes. */
void delays_context_ends(struct context *c);
/* Nothing is held up any more. */
void delays_close(void);
void delays_forget(void); /* in a fork's child */

#endif
