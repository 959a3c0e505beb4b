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

extern _Atomic int timeline_source; /* enum timeline, as it is now; the option is what was asked for */

/* As the recording starts. False: with a reason why there can be no recording. */
bool timeline_open(const struct folder *folder, char *error, size_t error_size);
/* Writes what there is, within a bound. */
void timeline_close(void);
void timeline_forget(void); /* in a fork's child */

struct json;
void timeline_json(struct json *j);

struct context;
/* It is the current one, and about to go. */
void timeline_context_ends(const struct context *c);

/* The program is about to use CUPTI itself: from here on there are events. */
void timeline_give_way(void);

/* For what makes the times. */
void timeline_missed(uint64_t count);
void timeline_clock_error(uint64_t ns); /* times may be off by so much; the largest counts */

#endif
