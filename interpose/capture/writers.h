/*
 * Threads that write contents of blocks, one for each data file of a segment, because a file system
 * lets one thread at a time append to a file.
 *
 * Invariant: a writer does its work in order. The data of a piece of work stays unchanged until
 * writers_wait says that it is done.
 */
#ifndef TT_CAPTURE_WRITERS_H
#define TT_CAPTURE_WRITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WRITERS_QUEUE 2 /* pieces of work of a writer: the one it does and the next */

struct tt_block;

/* All of these are called by the drain's thread alone. */

/* Starts the threads at its first call. False: there are none, and there will be none. */
bool writers_start(void);
/*
 * Has the lane's writer call store_blocks; it must have fewer than WRITERS_QUEUE pieces of work. Gives
 * what to wait for.
 */
uint64_t writers_put(unsigned lane, struct tt_block *blocks, size_t count, const void *contents);
#define WRITERS_ALL UINT64_MAX
/* Waits until the lane's writer has done this piece of work, or all: whether all it did so far went well. */
bool writers_wait(unsigned lane, uint64_t piece);
void writers_forget(void); /* in a fork's child */

#endif
