/* One step of a wave on a string, and its energy in whole numbers. */
extern "C" __global__ void step(const float *now, float *before, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i > 0 && i < n - 1)
		before[i] = 2.0f * now[i] - before[i] + 0.25f * (now[i - 1] - 2.0f * now[i] + now[i + 1]);
}

extern "C" __global__ void energy(const float *now, unsigned long long *sum, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		atomicAdd(sum, (unsigned long long)(now[i] * now[i] * 1024.0f));
}
