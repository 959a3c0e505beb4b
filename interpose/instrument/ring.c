/*
 * Empties rings. See ring.h for the invariant.
 *
 * A copy may read a record's payload before it reads its tag. So records that are seen to be complete are copied a
 * second time, unless their kernels have ended.
 */
#include "instrument/ring.h"

#include <string.h>

#include "format.h"
#include "inspect/contexts.h"
#include "session/session.h"

static struct tt_trace_ring *words(const struct ring *r)
{
	return (struct tt_trace_ring *)((char *)r->staging.host + RING_PIECE);
}

static bool works(struct ring *r, CUresult result)
{
	if (result != CUDA_SUCCESS)
		r->broken = true;
	return result == CUDA_SUCCESS;
}

static bool wait(struct ring *r, CUresult submitted)
{
	return works(r, submitted) && works(r, real.cuStreamSynchronize(r->stream));
}

bool ring_make(struct ring *r, struct context *c, uint64_t bytes)
{
	*r = (struct ring){.context = c, .bytes = bytes};
	if (!memory_mirrored(c, &r->memory, bytes) || !memory_on_device(c, &r->control, sizeof(struct tt_trace_ring)) ||
	    !memory_on_host(&r->staging, RING_PIECE + sizeof(struct tt_trace_ring)) ||
	    real.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		return false;
	return wait(r, real.cuMemsetD8Async(r->memory.device, 0, bytes, r->stream)) &&
	       wait(r, real.cuMemsetD8Async(r->control.device, 0, sizeof(struct tt_trace_ring), r->stream));
}

void ring_free(struct ring *r)
{
	if (r->stream)
		real.cuStreamDestroy_v2(r->stream);
	memory_free(r->context, &r->memory);
	memory_free(r->context, &r->control);
	memory_free(r->context, &r->staging);
	*r = (struct ring){0};
}

bool ring_read(struct ring *r, struct tt_trace_ring *out)
{
	if (r->broken || !wait(r, real.cuMemcpyDtoHAsync_v2(words(r), r->control.device, sizeof(*out), r->stream)))
		return false;
	*out = *words(r);
	return true;
}

static bool write_word(struct ring *r, size_t at, uint64_t value)
{
	uint64_t *word = (uint64_t *)words(r);

	*word = value;
	return wait(r, real.cuMemcpyHtoDAsync_v2(r->control.device + at, word, sizeof(*word), r->stream));
}

void ring_discard(struct ring *r)
{
	if (!r->broken)
		write_word(r, offsetof(struct tt_trace_ring, discard), 1);
}

bool ring_copy(struct ring *r, void *to, CUdeviceptr from, uint64_t size)
{
	for (uint64_t at = 0; at < size; at += RING_PIECE) {
		uint64_t piece = size - at < RING_PIECE ? size - at : RING_PIECE;
		if (r->broken || !wait(r, real.cuMemcpyDtoHAsync_v2(r->staging.host, from + at, piece, r->stream)))
			return false;
		memcpy((char *)to + at, r->staging.host, piece);
	}
	return true;
}

/* Bytes of complete records at the beginning. */
static uint32_t complete_bytes(const void *records, uint64_t size)
{
	uint64_t at = 0;
	uint32_t tag;

	while (at + sizeof(struct tt_trace_record) <= size) {
		memcpy(&tag, (const char *)records + at, sizeof(tag));
		uint64_t bytes = (uint64_t)(tag >> 16) * 8;
		if (bytes < sizeof(struct tt_trace_record) || at + bytes > size)
			break;
		at += bytes;
	}
	return (uint32_t)at;
}

/* Copies from a position, in two parts where the ring ends. */
static bool copy_from(struct ring *r, uint64_t position, uint64_t size)
{
	uint64_t at = position % r->bytes, first = r->bytes - at < size ? r->bytes - at : size;

	return works(r, real.cuMemcpyDtoHAsync_v2(r->staging.host, r->memory.device + at, first, r->stream)) &&
	       (first == size || works(r, real.cuMemcpyDtoHAsync_v2((char *)r->staging.host + first, r->memory.device,
								    size - first, r->stream))) &&
	       wait(r, CUDA_SUCCESS);
}

static bool clear(struct ring *r, uint64_t position, uint64_t size)
{
	uint64_t at = position % r->bytes, first = r->bytes - at < size ? r->bytes - at : size;

	return works(r, real.cuMemsetD8Async(r->memory.device + at, 0, first, r->stream)) &&
	       (first == size || works(r, real.cuMemsetD8Async(r->memory.device, 0, size - first, r->stream))) &&
	       wait(r, CUDA_SUCCESS);
}

uint64_t ring_take(struct ring *r, uint64_t head, bool complete, ring_take_fn *take, void *user)
{
	uint64_t began = r->tail;

	if (head - r->tail > r->bytes) /* those behind wait for room */
		head = r->tail + r->bytes;
	while (r->tail < head && !r->broken) {
		uint64_t size = head - r->tail < RING_PIECE ? head - r->tail : RING_PIECE;
		if (!copy_from(r, r->tail, size))
			break;
		uint32_t bytes = complete_bytes(r->staging.host, size);
		if (!bytes || (!complete && !copy_from(r, r->tail, bytes)))
			break;
		take(user, r->staging.host, bytes);
		if (!clear(r, r->tail, bytes) || !write_word(r, offsetof(struct tt_trace_ring, tail), r->tail + bytes))
			break;
		r->tail += bytes;
	}
	return r->tail - began;
}

void ring_reset(struct ring *r)
{
	if (r->broken)
		return;
	r->tail = 0;
	wait(r, real.cuMemsetD8Async(r->memory.device, 0, r->bytes, r->stream));
	wait(r, real.cuMemsetD8Async(r->control.device, 0, sizeof(struct tt_trace_ring), r->stream));
}
