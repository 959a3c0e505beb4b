/*
 * What new memory holds under --fill pattern:N: each byte depends on its address and the seed alone,
 * so that a byte that was copied elsewhere shows.
 */
#ifndef TT_FILL_PATTERN_H
#define TT_FILL_PATTERN_H

#include <stdint.h>

/* void NAME(struct tt_fill_params), for any grid of TT_FILL_THREADS; y is the range */
#define TT_KERNEL_FILL "tt_capture_fill"
#define TT_FILL_THREADS 256
#define TT_FILL_RANGES 32
#define TT_ZONE_SEED 0x656e6f7au /* of zones around allocations */

struct tt_fill_range {
	uint64_t base; /* any alignment */
	uint64_t size;
	uint64_t seed;
	uint64_t constant; /* not 0: each word is the seed */
};

struct tt_fill_params {
	struct tt_fill_range ranges[TT_FILL_RANGES];
};

#ifdef __CUDACC__
#define TT_FILL_INLINE static __device__ __forceinline__
#else
#define TT_FILL_INLINE static inline
#endif

/* The eight bytes at address 8 * index, the first byte lowest. */
TT_FILL_INLINE uint64_t tt_fill_word(uint64_t index, uint64_t seed)
{
	uint64_t x = (index + seed * 0xd1342543de82ef95u) * 0xa24baed4963ee407u;

	x = (x ^ x >> 29) * 0x9fb21c651e98df25u;
	return x ^ x >> 32;
}

#endif
