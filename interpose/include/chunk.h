/*
 * How a chunk of the ring is laid out and checked: used by the kernels that write chunks and
 * by whoever reads them.
 *
 * Invariant: every chunk starts at a multiple of TT_RING_ALIGN in the ring and its size is one,
 * so that what is left before the ring's end always has room for a wrap header, or is nothing.
 */
#ifndef TT_CHUNK_H
#define TT_CHUNK_H

#include <stdint.h>

#include "format.h"

#ifdef __CUDACC__
#define TT_CHUNK_CALL static __host__ __device__ __forceinline__
#else
#define TT_CHUNK_CALL static inline
#endif

#define TT_RING_ALIGN 128 /* of chunk positions and sizes, of a chunk's payload and of the ring's size */

TT_CHUNK_CALL uint64_t tt_round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) & ~(unit - 1);
}

/* Bytes that a block of length bytes takes in a payload. */
TT_CHUNK_CALL uint64_t tt_payload_size(uint64_t length)
{
	return tt_round_up(length, TT_CHUNK_ALIGN);
}

/* Offset of the payload from the header of a chunk with count entries. */
TT_CHUNK_CALL uint64_t tt_chunk_payload(uint64_t count)
{
	return tt_round_up(sizeof(struct tt_chunk) + count * sizeof(struct tt_chunk_entry), TT_RING_ALIGN);
}

TT_CHUNK_CALL uint64_t tt_chunk_size(uint64_t count, uint64_t payload_bytes)
{
	return tt_round_up(tt_chunk_payload(count) + payload_bytes, TT_RING_ALIGN);
}

TT_CHUNK_CALL uint64_t tt_mix(uint64_t state, uint64_t word)
{
	state = (state ^ word) * 0x9fb21c651e98df25ull;
	return state ^ state >> 29;
}

/* Order of the entries does not matter to the sum, since they are written in parallel. */
TT_CHUNK_CALL uint64_t tt_entry_mix(const struct tt_chunk_entry *e)
{
	uint64_t state = tt_mix(0x2545f4914f6cdd1dull, e->digest);

	state = tt_mix(state, e->offset);
	state = tt_mix(state, e->region | (uint64_t)e->block << 32);
	return tt_mix(state, e->length | (uint64_t)e->more << 32);
}

TT_CHUNK_CALL uint64_t tt_chunk_mix(const struct tt_chunk *c)
{
	uint64_t state = tt_mix(0x9e6c63d0876a9a47ull, c->magic | (uint64_t)c->kind << 32);

	state = tt_mix(state, c->epoch | (uint64_t)c->part << 32);
	state = tt_mix(state, c->position);
	state = tt_mix(state, c->size);
	state = tt_mix(state, c->count);
	state = tt_mix(state, c->payload);
	return tt_mix(state, c->entries_check);
}

#endif
