/*
 * Device memory of zeros, which launches get one after the other.
 *
 * Invariant: what is given back is cleared by the thread that looks after launches, so a launch that finds some of its size
 * waits for nothing. It is cleared when no launch runs, which that would slow down, or when a launch has found none.
 */
#ifndef TT_INSTRUMENT_ZEROS_H
#define TT_INSTRUMENT_ZEROS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "instrument/ring.h"

struct zeros {
	struct zeros_piece *clean;    /* the newest first; under the lock of launches */
	struct zeros_piece *dirty, *cleaning; /* of the thread */
	uint64_t bytes;               /* of the clean ones */
	_Atomic bool wanted;          /* a launch has found none */
};

/* In the current context; the caller holds the lock of launches. False: no memory. */
bool zeros_take(struct zeros *z, struct ring *r, struct memory *m, uint64_t bytes);
/* By the thread, without the lock. The memory will be cleared, or is freed. */
void zeros_give(struct zeros *z, struct ring *r, struct memory *m);
/* By the thread, without the lock: clears the memory that was given back, and waits for that. idle: no launch runs. */
void zeros_clear(struct zeros *z, struct ring *r, bool idle);
/* Caller holds the lock. What was waited for can be taken. */
void zeros_cleared(struct zeros *z, struct ring *r);
/* Nobody uses it any more. gone: so does its context. */
void zeros_end(struct zeros *z, struct ring *r, bool gone);

#endif
