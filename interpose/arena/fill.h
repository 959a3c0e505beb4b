/*
 * The contents of new memory: zeros in the arena, and the pattern of --fill everywhere.
 *
 * Invariant: after the program has got the memory, nothing fills it, except in the order of the stream that
 * allocated it.
 */
#ifndef TT_ARENA_FILL_H
#define TT_ARENA_FILL_H

#include "options/options.h"
#include "track/streams.h"

enum fill_result {
	FILL_DONE,
	FILL_NONE, /* nothing was submitted */
	FILL_LATE, /* the fill is still running: the program may not have the memory */
};

static inline bool fill_asked(void)
{
	return unlikely(options.fill.kind > FILL_KEEP);
}

/* Uses no stream of the program; FILL_DONE: the memory is filled. */
enum fill_result fill_now(struct context *c, CUdeviceptr p, uint64_t size);
/* In a stream of the context that is not being captured. */
CUresult fill_in_stream(struct context *c, CUstream stream, CUdeviceptr p, uint64_t size);
/* Fills memory that the program has not mapped yet. */
enum fill_result fill_unmapped(struct context *c, CUmemGenericAllocationHandle memory, uint64_t size);

#endif
