/*
 * The recorder as a whole: when it starts and how it ends.
 *
 * Invariant: recording starts at the first call that works in a usable context, never in cuInit and
 * never in a constructor.
 */
#ifndef TT_LIFECYCLE_RECORDER_H
#define TT_LIFECYCLE_RECORDER_H

#include <stdbool.h>

/* At the first call in a usable context; returns whether we record. */
bool recorder_start(void);
/* Last epochs, drain, files. From exit, signals, or when the last context goes; safe to repeat. */
void recorder_finish(const char *status, const char *reason);
void recorder_forget(void); /* in a fork's child */

#endif
