/*
 * Prints for each rank in a cluster of four blocks how long its blocks took for 16 stores, in
 * nanoseconds. It is the shortest time of five launches, because other programs may have the GPU meanwhile.
 */
#include <cstdio>

static __device__ unsigned long long now()
{
	unsigned long long t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
	return t;
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) timed(volatile unsigned *memory, unsigned long long *spent)
{
	unsigned long long begin = now();

#pragma unroll 1
	for (unsigned i = 0; i < 16; i++)
		memory[blockIdx.x * blockDim.x + threadIdx.x] = i;
	unsigned long long end = now();
	if (threadIdx.x == 0)
		atomicAdd(&spent[blockIdx.x % 4], (end - begin) / (gridDim.x / 4));
}

int main()
{
	unsigned *memory;
	unsigned long long *spent, times[4], least[4] = {~0ull, ~0ull, ~0ull, ~0ull};

	cudaMalloc(&memory, 64 * 32 * sizeof(*memory));
	cudaMalloc(&spent, sizeof(times));
	for (int launch = 0; launch < 5; launch++) {
		cudaMemset(spent, 0, sizeof(times));
		timed<<<64, 32>>>(memory, spent);
		cudaMemcpy(times, spent, sizeof(times), cudaMemcpyDeviceToHost);
		for (int rank = 0; rank < 4; rank++)
			least[rank] = times[rank] < least[rank] ? times[rank] : least[rank];
	}
	printf("%llu %llu %llu %llu\n", least[0], least[1], least[2], least[3]);
	return cudaGetLastError() != cudaSuccess;
}
