/*
 * The recorder as a whole: when it starts and how it ends.
 *
 * Invariant: recording starts at the first call that works in a usable context, never in cuInit and
 * never in a constructor.
 */
#ifndef TT_LIFECYCLE_RECORDER_H
#define TT_LIFECYCLE_RECORDER_H

#include <stdbool.h>

/* At the first call in a usable context; returns whether recording is on. */
bool recorder_start(void);
/*
 * Writes the last epochs and all files. Called at exit, by signals, or when the last context ends; may be repeated.
 */
void recorder_finish(const char *status, const char *reason);
void recorder_forget(void); /* in a forked child */

#endif
