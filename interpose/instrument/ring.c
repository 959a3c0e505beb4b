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

static size_t control_bytes(const struct ring *r)
{
	return r->count * sizeof(struct tt_trace_ring);
}

/* Writes control words as they are at the beginning. */
static bool write_control(struct ring *r)
{
	struct tt_trace_ring *all = words(r);

	memset(all, 0, control_bytes(r));
	for (unsigned i = 0; i < r->count; i++)
		all[i].base = r->memory[i].device;
	return wait(r, real.cuMemcpyHtoDAsync_v2(r->control.device, all, control_bytes(r), r->stream));
}

static bool clear_all(struct ring *r)
{
	bool cleared = true;

	for (unsigned i = 0; i < r->count && cleared; i++)
		cleared = works(r, real.cuMemsetD8Async(r->memory[i].device, 0, r->bytes, r->stream));
	memset(r->tail, 0, sizeof(r->tail));
	return cleared && write_control(r);
}

bool ring_make(struct ring *r, struct context *c, unsigned count, uint64_t bytes)
{
	*r = (struct ring){.context = c, .count = count, .bytes = bytes / count};
	for (unsigned i = 0; i < count; i++)
		if (!memory_mirrored(c, &r->memory[i], r->bytes))
			return false;
	return memory_on_device(c, &r->control, control_bytes(r)) &&
	       memory_on_host(&r->staging, RING_PIECE + control_bytes(r)) &&
	       real.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && clear_all(r);
}

void ring_free(struct ring *r)
{
	if (r->stream)
		real.cuStreamDestroy_v2(r->stream);
	for (unsigned i = 0; i < r->count; i++)
		memory_free(r->context, &r->memory[i]);
	memory_free(r->context, &r->control);
	memory_free(r->context, &r->staging);
	*r = (struct ring){0};
}

bool ring_read(struct ring *r, struct tt_trace_ring out[RINGS_MOST])
{
	if (r->broken || !wait(r, real.cuMemcpyDtoHAsync_v2(words(r), r->control.device, control_bytes(r), r->stream)))
		return false;
	memcpy(out, words(r), control_bytes(r));
	return true;
}

static bool write_word(struct ring *r, unsigned which, size_t at, uint64_t value)
{
	uint64_t *word = (uint64_t *)words(r);

	*word = value;
	at += which * sizeof(struct tt_trace_ring);
	return wait(r, real.cuMemcpyHtoDAsync_v2(r->control.device + at, word, sizeof(*word), r->stream));
}

void ring_discard(struct ring *r)
{
	for (unsigned i = 0; i < r->count && !r->broken; i++)
		write_word(r, i, offsetof(struct tt_trace_ring, discard), 1);
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
static bool copy_from(struct ring *r, unsigned which, uint64_t position, uint64_t size)
{
	CUdeviceptr memory = r->memory[which].device;
	uint64_t at = position % r->bytes, first = r->bytes - at < size ? r->bytes - at : size;

	return works(r, real.cuMemcpyDtoHAsync_v2(r->staging.host, memory + at, first, r->stream)) &&
	       (first == size ||
		works(r, real.cuMemcpyDtoHAsync_v2((char *)r->staging.host + first, memory, size - first, r->stream))) &&
	       wait(r, CUDA_SUCCESS);
}

static bool clear(struct ring *r, unsigned which, uint64_t position, uint64_t size)
{
	CUdeviceptr memory = r->memory[which].device;
	uint64_t at = position % r->bytes, first = r->bytes - at < size ? r->bytes - at : size;

	return works(r, real.cuMemsetD8Async(memory + at, 0, first, r->stream)) &&
	       (first == size || works(r, real.cuMemsetD8Async(memory, 0, size - first, r->stream))) && wait(r, CUDA_SUCCESS);
}

static uint64_t take_one(struct ring *r, unsigned which, uint64_t head, bool complete, ring_take_fn *take, void *user)
{
	uint64_t began = r->tail[which], tail = began;

	if (head - tail > r->bytes) /* those behind wait for room */
		head = tail + r->bytes;
	while (tail < head && !r->broken) {
		uint64_t size = head - tail < RING_PIECE ? head - tail : RING_PIECE;
		if (!copy_from(r, which, tail, size))
			break;
		uint32_t bytes = complete_bytes(r->staging.host, size);
		if (!bytes || (!complete && !copy_from(r, which, tail, bytes)))
			break;
		take(user, r->staging.host, bytes);
		if (!clear(r, which, tail, bytes) || !write_word(r, which, offsetof(struct tt_trace_ring, tail), tail + bytes))
			break;
		r->tail[which] = tail += bytes;
	}
	return tail - began;
}

uint64_t ring_take(struct ring *r, const struct tt_trace_ring *control, bool complete, ring_take_fn *take, void *user)
{
	uint64_t taken = 0;

	for (unsigned i = 0; i < r->count; i++)
		taken += take_one(r, i, control[i].head, complete, take, user);
	return taken;
}

bool ring_is_empty(const struct ring *r, const struct tt_trace_ring *control)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->tail[i] != control[i].head)
			return false;
	return true;
}

void ring_reset(struct ring *r)
{
	if (!r->broken)
		clear_all(r);
}
