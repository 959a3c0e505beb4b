/* The sum of each block of 256 values. */
#define THREADS 256

extern "C" __global__ void block_sums(const unsigned *in, unsigned *sums)
{
	__shared__ unsigned part[THREADS];
	unsigned t = threadIdx.x;

	part[t] = in[blockIdx.x * THREADS + t];
	__syncthreads();
	for (unsigned half = THREADS / 2; half > 0; half /= 2) {
		if (t < half)
			part[t] += part[t + half];
		__syncthreads();
	}
	if (t == 0)
		sums[blockIdx.x] = part[0];
}

/* The mistake: no barrier between the rounds, so a warp may read what another has not added up yet. */
extern "C" __global__ void block_sums_racy(const unsigned *in, unsigned *sums)
{
	__shared__ volatile unsigned part[THREADS];
	unsigned t = threadIdx.x;

	part[t] = in[blockIdx.x * THREADS + t];
	__syncthreads();
	for (unsigned half = THREADS / 2; half > 0; half /= 2)
		if (t < half)
			part[t] += part[t + half];
	if (t == 0)
		sums[blockIdx.x] = part[0];
}
