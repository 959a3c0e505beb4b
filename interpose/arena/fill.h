/*
 * The contents of new memory: zeros in the arena, and the pattern of --fill everywhere.
 *
 * Invariant: after the program has got the memory, nothing is written to it, except in the order of
 * the stream in which it was allocated.
 */
#ifndef TT_ARENA_FILL_H
#define TT_ARENA_FILL_H

#include "options/options.h"
#include "track/streams.h"

enum fill_result {
	FILL_DONE,
	FILL_NONE, /* nothing was submitted */
	FILL_LATE, /* the memory is still being written: the program may not have it */
};

static inline bool fill_asked(void)
{
	return unlikely(options.fill.kind != FILL_OFF);
}

/* Without a stream of the program; filled when it returns FILL_DONE. */
enum fill_result fill_now(struct context *c, CUdeviceptr p, uint64_t size);
/* In a stream of the context that is not being captured. */
CUresult fill_in_stream(struct context *c, CUstream stream, CUdeviceptr p, uint64_t size);
/* Memory that the program mapped nowhere so far. */
enum fill_result fill_unmapped(struct context *c, CUmemGenericAllocationHandle memory, uint64_t size);

#endif
