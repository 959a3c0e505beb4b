// A kernel with a barrier, and one without, which reads what other warps may not have written.
// Usage: missing_barrier [race] - ends with status 1 where the result is wrong.
#include <cstdio>
#include <cstring>

static const int threads = 256;

__global__ void turned(float *out, const float *in)
{
	__shared__ float tile[threads];

	tile[threadIdx.x] = in[blockIdx.x * threads + threadIdx.x];
	__syncthreads();
	out[blockIdx.x * threads + threadIdx.x] = tile[threads - 1 - threadIdx.x];
}

__global__ void turned_early(float *out, const float *in)
{
	__shared__ volatile float tile[threads];

	tile[threadIdx.x] = in[blockIdx.x * threads + threadIdx.x];
	for (long long begin = clock64(); clock64() - begin < 100000;)
		; /* without delays all have written by then */
	out[blockIdx.x * threads + threadIdx.x] = tile[threads - 1 - threadIdx.x];
}

int main(int argc, char **argv)
{
	const int n = 64 * threads;
	static float given[n], found[n];
	float *in, *out;
	int wrong = 0;

	for (int i = 0; i < n; i++)
		given[i] = i + 1;
	if (cudaMalloc(&in, sizeof(given)) || cudaMalloc(&out, sizeof(found)))
		return 2;
	cudaMemcpy(in, given, sizeof(given), cudaMemcpyHostToDevice);
	if (argc > 1 && !strcmp(argv[1], "race"))
		turned_early<<<64, threads>>>(out, in);
	else
		turned<<<64, threads>>>(out, in);
	if (cudaMemcpy(found, out, sizeof(found), cudaMemcpyDeviceToHost))
		return 2;
	for (int i = 0; i < n; i++)
		wrong += found[i] != given[i - i % threads + threads - 1 - i % threads];
	printf("%d wrong\n", wrong);
	return wrong != 0;
}
