/*
 * Threads that write contents of blocks, one for each data file of a segment, because a file system
 * lets one thread at a time append to a file.
 *
 * Invariant: a writer does its work in order. The data of a piece of work stays unchanged until it is done.
 */
#ifndef TT_CAPTURE_WRITERS_H
#define TT_CAPTURE_WRITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WRITERS_QUEUE 3 /* pieces of work of a writer: the current one and the next two */

struct tt_block;

/* Only the drain's thread calls these. */

/* Starts the threads at its first call. False: no threads are available. */
bool writers_start(void);
/*
 * The lane's writer will call store_blocks. It must have fewer than WRITERS_QUEUE pieces of work. Returns the
 * number for writers_have.
 */
uint64_t writers_put(unsigned lane, struct tt_block *blocks, size_t count, const void *contents);
/* Whether this piece of work of the lane is done. */
bool writers_have(unsigned lane, uint64_t piece);
/* Waits for all work of the lane. True: all of it succeeded since the last wait. */
bool writers_wait(unsigned lane);
void writers_forget(void); /* in a forked child */

#endif
