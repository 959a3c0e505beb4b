/*
 * Times by driver events around calls, if CUPTI is not available.
 *
 * Invariant: a call is timed with two events that were created before, or not at all.
 */
#ifndef TT_TIMELINE_EVENT_PAIRS_H
#define TT_TIMELINE_EVENT_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

struct context;
struct stream;
struct timing;
struct tt_event;

/* Call before and after a call that submits work to the stream. NULL: not timed. */
struct timing *timing_begin(struct stream *s, uint64_t seq);
void timing_end(struct timing *t, const struct stream *s, const struct tt_event *e, bool submitted);

/* Writes the times of complete calls without waiting. Returns their number. */
unsigned timing_poll(void);
/* The context is about to be destroyed. */
void timing_context_gone(const struct context *c);
/* Writes complete times; the rest is counted as missed. */
void timing_close(void);
void timing_forget(void); /* in a forked child */

#endif
