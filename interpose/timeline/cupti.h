/*
 * CUPTI's activity records. CUPTI has one user at a time. If the program uses it, we do not.
 */
#ifndef TT_TIMELINE_CUPTI_H
#define TT_TIMELINE_CUPTI_H

#include <stdbool.h>
#include <stdint.h>

/* The one that is loaded, or where the system finds it, or beside other libraries of CUDA, or with the toolkit; NULL: none. */
void *cupti_find_library(void);
/* Finds the library and turns records on. NULL, or why there are none. */
const char *cupti_open(void);
struct context;
/* Submits work in the current context, by which CUPTI's clock is compared with the recorder's. */
void cupti_probe(const struct context *c);
/* The same for the last time in it. */
void cupti_context_ends(const struct context *c);
/* Hands over what is complete. */
void cupti_flush(void);
/* Relates CUPTI's clock to the recorder's again, for later records. */
void cupti_set_clock(void);
/* No more records, once those that there are were handed over. */
void cupti_close(void);
void cupti_forget(void); /* in a fork's child */

#endif
