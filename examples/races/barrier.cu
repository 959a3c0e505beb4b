/*
 * Warps hand values to each other through shared memory, and forget the barrier between writing and
 * reading. --fixed has it.
 */
#include "races.h"

template <bool FIXED>
static __device__ void hand_round(unsigned *out, const unsigned *in)
{
	__shared__ unsigned values[THREADS];
	unsigned t = threadIdx.x, at = blockIdx.x * THREADS + t, sum = out[at], mine = in[at];

	values[t] = 0;
	__syncthreads();
#pragma unroll 1
	for (unsigned round = 0; round < ROUNDS; round++) {
		values[t] = mine * (round + 1);
		if (FIXED)
			__syncthreads();
		sum += work(sum) & 1;
		sum = sum * 3 + values[(t + 32) % THREADS];
		__syncthreads();
	}
	out[at] = sum;
}

extern "C" __global__ void hand_over(unsigned *out, const unsigned *in)
{
	hand_round<true>(out, in);
}

extern "C" __global__ void hand_over_racy(unsigned *out, const unsigned *in)
{
	hand_round<false>(out, in);
}

static void launch(unsigned *out, const unsigned *in, unsigned blocks, bool fixed)
{
	(fixed ? hand_over : hand_over_racy)<<<blocks, THREADS>>>(out, in);
}

int main(int argc, char **argv)
{
	return run(argc, argv, "barrier", launch);
}
