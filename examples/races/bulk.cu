/*
 * A thread has blocks of memory copied to shared memory by the copy engine of the multiprocessor, and
 * the others read them without waiting for the barrier that says that they are there. --fixed waits.
 * Needs sm_90.
 */
#include "races.h"

static __device__ unsigned shared_address(const void *p)
{
	return (unsigned)__cvta_generic_to_shared(p);
}

static __device__ void barrier_init(uint64_t *barrier)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

static __device__ void copy_bulk(void *to, const void *from, unsigned bytes, uint64_t *barrier)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
		     : "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
			     shared_address(to)),
		     "l"(from), "r"(bytes), "r"(shared_address(barrier))
		     : "memory");
}

static __device__ void barrier_wait(uint64_t *barrier)
{
	unsigned done = 0;

	while (!done)
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(shared_address(barrier))
			     : "memory");
}

template <bool FIXED>
static __device__ void take_rounds(unsigned *out, const unsigned *in)
{
	__shared__ alignas(128) volatile unsigned values[THREADS];
	__shared__ uint64_t there[ROUNDS]; /* a barrier for each round */
	unsigned t = threadIdx.x, at = blockIdx.x * THREADS + t, sum = out[at];

	values[t] = 0;
	if (t < ROUNDS)
		barrier_init(&there[t]);
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	__syncthreads();
#pragma unroll 1
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned from = (blockIdx.x + round) % gridDim.x;
		if (t == 0)
			copy_bulk((void *)values, in + from * THREADS, sizeof(values), &there[round]);
		__syncwarp();
		sum += work(sum) & 1;
		if (FIXED)
			barrier_wait(&there[round]);
		sum = sum * 3 + values[t];
		__syncthreads();
		barrier_wait(&there[round]); /* the next copy goes to the same place */
		__syncthreads();
	}
	out[at] = sum;
}

extern "C" __global__ void take_bulk(unsigned *out, const unsigned *in)
{
	take_rounds<true>(out, in);
}

extern "C" __global__ void take_bulk_racy(unsigned *out, const unsigned *in)
{
	take_rounds<false>(out, in);
}

static void launch(unsigned *out, const unsigned *in, unsigned blocks, bool fixed)
{
	(fixed ? take_bulk : take_bulk_racy)<<<blocks, THREADS>>>(out, in);
}

int main(int argc, char **argv)
{
	return run(argc, argv, "bulk", launch);
}
