/*
 * Times of graph nodes by the device's clock, from stamps around them.
 *
 * Invariant: a time on the recorder's clock is between two readings of it. Its possible error is
 * reported with timeline_clock_error.
 */
#ifndef TT_TIMELINE_STAMPS_H
#define TT_TIMELINE_STAMPS_H

struct context;

/* c is current, and one of its graphs will have stamps: allocates memory now. */
void stamps_prepare(const struct context *c);
/* Writes the times of complete launches without waiting. Returns their number. */
unsigned stamps_poll(void);
/* The context is current, and about to be destroyed. */
void stamps_context_gone(const struct context *c);
/* Writes complete times; the rest is counted as missed. */
void stamps_close(void);
void stamps_forget(void); /* in a forked child */

#endif
