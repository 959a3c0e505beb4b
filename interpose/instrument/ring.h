/*
 * The rings in device memory that traced kernels of a context write records into. include/trace_ring.h has their
 * protocol.
 *
 * Invariant: one thread empties them. A tail moves only over records that were stored or counted as lost.
 */
#ifndef TT_INSTRUMENT_RING_H
#define TT_INSTRUMENT_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/memory.h"
#include "driver/driver.h"
#include "trace_ring.h"

#define RINGS_MOST 32u
#define RING_PIECE ((uint64_t)4 << 20)

struct ring {
	struct context *context;
	unsigned count;
	struct memory memory[RINGS_MOST], control; /* control: a struct tt_trace_ring for each */
	struct memory staging;                     /* pinned: RING_PIECE bytes, then the control words */
	uint64_t bytes;                            /* of each */
	CUstream stream;
	uint64_t tail[RINGS_MOST];
	bool broken; /* the context is lost */
};

/* Takes the records from `records` on, which it may change. */
typedef void ring_take_fn(void *user, void *records, uint32_t bytes);

/* In the current context: `count` rings, a power of two, of `bytes` together. False: no memory. */
bool ring_make(struct ring *r, struct context *c, unsigned count, uint64_t bytes);
void ring_free(struct ring *r);
/* The control words of all as they are now. False: the context is lost. */
bool ring_read(struct ring *r, struct tt_trace_ring out[RINGS_MOST]);
/*
 * Takes complete records up to the heads. complete: the kernels that wrote them have ended, so what has no tag up to there
 * was given up. Returns how many bytes it took.
 */
uint64_t ring_take(struct ring *r, const struct tt_trace_ring *control, bool complete, ring_take_fn *take, void *user);
/* Whether all up to the heads was taken. */
bool ring_is_empty(const struct ring *r, const struct tt_trace_ring *control);
/* No kernel writes: drops what has no tag, and clears `discard`. */
void ring_reset(struct ring *r);
/* Kernels write no more records. */
void ring_discard(struct ring *r);
/* Copies from the device, in pieces, with the ring's stream. */
bool ring_copy(struct ring *r, void *to, CUdeviceptr from, uint64_t size);

#endif
