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

/* Whether calls are delayed at all: options.launch_delay_ns, where the launch path finds it. */
extern _Atomic bool delays_in_calls;

#define DELAYS (TT_EVENTF_DELAYED | TT_EVENTF_DELAYED_STREAM)

/*
 * Counts a call. The thread sleeps if the call was chosen for that; the caller must hold no lock. Returns which of
 * `may` were chosen, and the delay and number of the call.
 */
uint32_t delay_call(struct thread *t, struct stream *s, uint32_t may, uint32_t *ns, uint64_t *number);
/* The stream pauses when it reaches this point. False: it does not. */
bool delay_stream(struct stream *s, uint32_t ns);

/*
 * Warns if a delay of one block in each cluster finds no clusters. A kernel has clusters by its launch or by its
 * code.
 */
void delays_look_for_clusters(const char *kernel, CUfunction f, const uint32_t cluster[3]);

/* Call before the context is destroyed. */
void delays_context_ends(struct context *c);
/* Releases all streams. */
void delays_close(void);
void delays_forget(void); /* in a forked child */

#endif
