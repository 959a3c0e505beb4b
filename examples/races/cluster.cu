/*
 * The blocks of a cluster read each other's shared memory, and forget the cluster's barrier between
 * writing and reading. --fixed has it. Needs sm_90.
 */
#include <cooperative_groups.h>

#include "races.h"

#define CLUSTER 4

template <bool FIXED>
static __device__ void look_rounds(unsigned *out, const unsigned *in)
{
	__shared__ unsigned values[THREADS];
	cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
	unsigned t = threadIdx.x, at = blockIdx.x * THREADS + t, sum = out[at], mine = in[at];
	volatile unsigned *next = cluster.map_shared_rank(values, (cluster.block_rank() + 1) % CLUSTER);

	values[t] = 0;
	cluster.sync();
#pragma unroll 1
	for (unsigned round = 0; round < ROUNDS; round++) {
		values[t] = mine * (round + 1);
		if (FIXED)
			cluster.sync();
		sum += work(sum) & 1;
		sum = sum * 3 + next[t];
		cluster.sync(); /* nobody writes before all have read, or ends before */
	}
	out[at] = sum;
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) look_over(unsigned *out, const unsigned *in)
{
	look_rounds<true>(out, in);
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) look_over_racy(unsigned *out, const unsigned *in)
{
	look_rounds<false>(out, in);
}

static void launch(unsigned *out, const unsigned *in, unsigned blocks, bool fixed)
{
	(fixed ? look_over : look_over_racy)<<<blocks, THREADS>>>(out, in);
}

int main(int argc, char **argv)
{
	return run(argc, argv, "cluster", launch);
}
