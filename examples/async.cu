/* scratch += in + bias; total += scratch². */
extern "C" __global__ void shift(const float *in, float *scratch, int n, float bias)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		scratch[i] += in[i] + bias;
}

extern "C" __global__ void accumulate(const float *scratch, float *total, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		total[i] += scratch[i] * scratch[i];
}
