/* One round of smoothing over a ring of values. */
extern "C" __global__ void smooth(const float *in, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = 0.25f * in[(i + n - 1) % n] + 0.5f * in[i] + 0.25f * in[(i + 1) % n];
}
