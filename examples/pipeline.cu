/* A few rounds of the logistic map on every element. */
extern "C" __global__ void transform(const float *in, float *out, int n, int rounds)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	float x = in[i];
	for (int k = 0; k < rounds; k++)
		x = 3.75f * x * (1.0f - x);
	out[i] = x;
}
