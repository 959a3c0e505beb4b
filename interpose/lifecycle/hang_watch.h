/*
 * Finds hangs while the program runs: launches over the limit of their kernel, and times without progress.
 *
 * Invariant: without these limits there is no thread, and nothing is asked of the driver.
 */
#ifndef TT_LIFECYCLE_HANG_WATCH_H
#define TT_LIFECYCLE_HANG_WATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Starts the thread, if the options have a limit. It ends the process as the time limit does. */
void hang_watch_open(void);
/* Why the thread ended the process: "the limit of 5 s for launches of spin (call 14)". False: it did not. */
bool hang_found(char *why, size_t size);

#endif
