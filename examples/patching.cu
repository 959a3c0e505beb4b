/* What a graph's kernel does: it is given another factor from time to time. */
extern "C" __global__ void shape(unsigned *to, const unsigned *from, int n, unsigned factor)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		to[i] = from[i] * factor + (unsigned)i;
}
