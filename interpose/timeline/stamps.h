/*
 * Times of graph nodes by the device's clock, from stamps around them.
 *
 * Invariant: a time on the recorder's clock is between two readings of it. Its possible error is
 * reported with timeline_clock_error.
 */
#ifndef TT_TIMELINE_STAMPS_H
#define TT_TIMELINE_STAMPS_H

struct context;

/* A graph of the context, which is the current one, is about to have stamps: what needs memory is done now. */
void stamps_prepare(const struct context *c);
/* Writes the times of finished launches without waiting. Returns their number. */
unsigned stamps_poll(void);
/* The context is the current one, and about to go. */
void stamps_context_gone(const struct context *c);
/* Writes what is complete; the rest is missed. */
void stamps_close(void);
void stamps_forget(void); /* in a fork's child */

#endif
