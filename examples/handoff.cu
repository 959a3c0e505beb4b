/* What one stream makes and another uses. */
extern "C" __global__ void make_values(unsigned *values, unsigned n, unsigned step)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		values[i] = (i + 1) * 2654435761u + step;
}

extern "C" __global__ void use_values(const unsigned *values, unsigned *sums, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		sums[i] = sums[i] * 3 + values[i];
}
