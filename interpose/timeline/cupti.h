/*
 * CUPTI's activity records. CUPTI has one user at a time. If the program uses it, the recorder does not.
 */
#ifndef TT_TIMELINE_CUPTI_H
#define TT_TIMELINE_CUPTI_H

#include <stdbool.h>
#include <stdint.h>

/* Finds the library and enables records. NULL, or the reason why there are none. */
const char *cupti_open(void);
struct context;
/* Submits work in the current context, to compare CUPTI's clock with the recorder's. */
void cupti_probe(const struct context *c);
/* The same for the last time in this context. */
void cupti_context_ends(const struct context *c);
/* Writes complete records. */
void cupti_flush(void);
/* Compares CUPTI's clock with the recorder's again, for later records. */
void cupti_set_clock(void);
/* Writes complete records and disables CUPTI. */
void cupti_close(void);
void cupti_forget(void); /* in a forked child */

#endif
