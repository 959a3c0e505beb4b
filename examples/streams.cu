/* What a value becomes: rounds steps of a generator, so that kernels may be made as slow as one likes. */
static __device__ unsigned turned(unsigned value, int rounds)
{
	while (rounds-- > 0)
		value = value * 1664525u + 1013904223u;
	return value;
}

extern "C" __global__ void advance(unsigned *data, int n, unsigned stamp, int rounds)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		data[i] = turned(data[i], rounds) + stamp;
}

extern "C" __global__ void combine(unsigned *to, const unsigned *a, const unsigned *b, int n, unsigned stamp,
				   int rounds)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		to[i] = turned(a[i] ^ b[i], rounds) + stamp;
}
