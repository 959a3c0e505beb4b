/*
 * The ring in device memory that traced kernels of a context write records into. include/trace_ring.h has its
 * protocol.
 *
 * Invariant: one thread empties a ring. The tail moves only over records that were stored or counted as lost.
 */
#ifndef TT_INSTRUMENT_RING_H
#define TT_INSTRUMENT_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/memory.h"
#include "driver/driver.h"
#include "trace_ring.h"

struct ring {
	struct context *context;
	struct memory memory, control; /* control: struct tt_trace_ring */
	struct memory staging;         /* pinned: RING_PIECE bytes, then a struct tt_trace_ring */
	uint64_t bytes;
	CUstream stream;
	uint64_t tail;
	bool broken; /* the context is lost */
};

#define RING_PIECE ((uint64_t)4 << 20)

/* Takes the records from `records` on, which it may change. */
typedef void ring_take_fn(void *user, void *records, uint32_t bytes);

/* In the current context. False: no memory. */
bool ring_make(struct ring *r, struct context *c, uint64_t bytes);
void ring_free(struct ring *r);
/* The control words as they are now. False: the context is lost. */
bool ring_read(struct ring *r, struct tt_trace_ring *out);
/*
 * Takes complete records up to the position `head`. complete: the kernels that wrote them have ended, so what has no tag
 * up to there was given up. Returns how many bytes it took.
 */
uint64_t ring_take(struct ring *r, uint64_t head, bool complete, ring_take_fn *take, void *user);
/* No kernel writes: drops what has no tag, and clears `discard`. */
void ring_reset(struct ring *r);
/* Kernels write no more records. */
void ring_discard(struct ring *r);
/* Copies from the device, in pieces, with the ring's stream. */
bool ring_copy(struct ring *r, void *to, CUdeviceptr from, uint64_t size);

#endif
