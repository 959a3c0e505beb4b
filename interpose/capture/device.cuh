/*
 * Memory access of the capture kernels: addresses as integers, 16-byte loads and stores, copies.
 *
 * Invariant: only the given bytes are read or written, whatever their alignment.
 */
#ifndef TT_DEVICE_CUH
#define TT_DEVICE_CUH

#include "capture/kernels.h"

#define WARP 32
#define ALL_LANES 0xffffffffu

#define INLINE static __device__ __forceinline__

/* Converts an integer address; tells the compiler that it is global memory. */
template <typename T> INLINE T *at(uint64_t address)
{
	T *p = (T *)address;

	__builtin_assume(__isGlobal(p));
	return p;
}

INLINE uint64_t add(uint64_t *p, uint64_t value)
{
	return atomicAdd((unsigned long long *)p, (unsigned long long)value);
}

INLINE uint64_t across(uint64_t value, unsigned lane_mask)
{
	return __shfl_xor_sync(ALL_LANES, (unsigned long long)value, lane_mask);
}

INLINE ulonglong2 load16(uint64_t from)
{
	return __ldg(at<ulonglong2>(from));
}

/* Starts to bring a line nearer. */
INLINE void prefetch(uint64_t from)
{
	asm volatile("prefetch.global.L2 [%0];" : : "l"(from));
}

INLINE void store16(uint64_t to, ulonglong2 value)
{
	*at<ulonglong2>(to) = value;
}

INLINE ulonglong2 load16_any(uint64_t from)
{
	if (from % 16 == 0)
		return load16(from);
	if (from % 4 == 0) {
		const uint32_t *w = at<uint32_t>(from);

		return make_ulonglong2(w[0] | (uint64_t)w[1] << 32, w[2] | (uint64_t)w[3] << 32);
	}
	const uint8_t *p = at<uint8_t>(from);
	uint64_t word[2] = { 0, 0 };
#pragma unroll 1
	for (int i = 7; i >= 0; i--) {
		word[0] = word[0] << 8 | p[i];
		word[1] = word[1] << 8 | p[i + 8];
	}
	return make_ulonglong2(word[0], word[1]);
}

/* Bytes [i, length), shared by threads that each take every step-th byte from their own i. */
INLINE void copy_bytes(uint64_t to, uint64_t from, unsigned i, unsigned length, unsigned step)
{
#pragma unroll 1
	for (; i < length; i += step)
		*at<uint8_t>(to + i) = *at<uint8_t>(from + i);
}

#endif
