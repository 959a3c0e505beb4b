// 523776
// Shared memory and barriers.
#include "check.h"

__global__ void sum(const int *in, int *out)
{
	__shared__ int part[256];
	part[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
	__syncthreads();
	for (int n = blockDim.x / 2; n; n /= 2) {
		if (threadIdx.x < n)
			part[threadIdx.x] += part[threadIdx.x + n];
		__syncthreads();
	}
	if (!threadIdx.x)
		atomicAdd(out, part[0]);
}

int main()
{
	int h[1024], *in, *out, total;
	for (int i = 0; i < 1024; i++)
		h[i] = i;
	OK(cudaMalloc(&in, sizeof h));
	OK(cudaMalloc(&out, sizeof total));
	OK(cudaMemset(out, 0, sizeof total));
	OK(cudaMemcpy(in, h, sizeof h, cudaMemcpyHostToDevice));
	sum<<<4, 256>>>(in, out);
	OK(cudaDeviceSynchronize());
	OK(cudaMemcpy(&total, out, sizeof total, cudaMemcpyDeviceToHost));
	printf("%d\n", total);
}
