/*
 * Kernels for replay: digests of memory, and kernels that only keep processors busy.
 */
#include "capture/device.cuh"
#include "capture/digest.cuh"

/* The digest of each block of [base, base + size). */
extern "C" __global__ void __launch_bounds__(TT_DIGEST_THREADS, TT_DIGEST_CTAS_PER_SM)
	tt_replay_digest(uint64_t base, uint64_t size, uint64_t digests)
{
	__shared__ __align__(16) struct constants constants;
	__shared__ uint64_t sums[BLOCK_ROUNDS][8];
	unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

	prepare_constants(&constants, lane);
	__syncthreads();
	for (uint64_t block = blockIdx.x; block * TT_BLOCK_SIZE < size; block += gridDim.x) {
		uint64_t left = size - block * TT_BLOCK_SIZE, digest;
		struct job job = { base + block * TT_BLOCK_SIZE, 0, left < TT_BLOCK_SIZE ? (unsigned)left : TT_BLOCK_SIZE, 0, 0 };

		if (job.length > XXH3_LONG)
			sum_block(job, constants, sums, warp, lane);
		__syncthreads();
		if (warp == 0) {
			if (job.length > XXH3_LONG)
				digest = finish_block(job.length, constants, sums, lane);
			else
				digest = xxh3_short(at<uint8_t>(job.data), job.length);
			if (lane == 0)
				at<uint64_t>(digests)[block] = digest;
		}
		__syncthreads();
	}
}

INLINE uint64_t nanoseconds(void)
{
	uint64_t now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}

/* Each CTA spins for a time from `least` to `most` nanoseconds, chosen by the seed. */
extern "C" __global__ void tt_replay_spin(uint64_t least, uint64_t most, uint64_t seed)
{
	uint64_t began = nanoseconds(), stay = least;

	if (most > least)
		stay += xxh3_avalanche((seed + blockIdx.x + 1) * XXH3_PRIME64_1) % (most - least);
	while (nanoseconds() - began < stay)
		;
}
