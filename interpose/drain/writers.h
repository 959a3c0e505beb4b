/*
 * Threads that write block contents, one to each of a segment's data files: a file system lets
 * one thread at a time append to a file.
 *
 * Invariant: a writer has at most one piece of work, and what that refers to stays as it is until
 * writers_wait says that it is done.
 */
#ifndef TT_DRAIN_WRITERS_H
#define TT_DRAIN_WRITERS_H

#include <stdbool.h>
#include <stddef.h>

struct tt_block;

/* All of these are called by the drain's thread alone. */

/* Starts the threads at its first call. False: there are none, and there will be none. */
bool writers_start(void);
/* Has the lane's writer call store_blocks; it must be idle. */
void writers_put(unsigned lane, struct tt_block *blocks, size_t count, const void *contents);
/* Waits until the lane's writer is idle: whether its last piece of work was done. */
bool writers_wait(unsigned lane);
void writers_forget(void); /* in a fork's child */

#endif
