/*
 * The times of the GPU's work: from CUPTI's records, or from events around each call.
 *
 * Invariant: the program's calls and their results are the same as without a timeline. Work that
 * cannot be timed, or not in time, is left out and counted.
 */
#ifndef TT_TIMELINE_TIMELINE_H
#define TT_TIMELINE_TIMELINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/folder.h"
#include "options/options.h"

extern _Atomic int timeline_source; /* enum timeline: the current source; the option has the requested one */

/* At the start of recording. False: recording is impossible; error has the reason. */
bool timeline_open(const struct folder *folder, char *error, size_t error_size);
/* Writes what is complete, in bounded time. */
void timeline_close(void);
void timeline_forget(void); /* in a forked child */

struct json;
void timeline_json(struct json *j);

struct context;
/* The context is current, and about to be destroyed. */
void timeline_context_ends(const struct context *c);

/* The program is about to use CUPTI: times come from events from now on. */
void timeline_give_way(void);

/* For the sources of times. */
void timeline_wake(void); /* looks for complete records now */
void timeline_missed(uint64_t count);
void timeline_clock_error(uint64_t ns); /* possible error of times; the largest counts */

#endif
