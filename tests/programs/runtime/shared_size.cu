// 255 0
// Dynamic shared memory, more than a kernel has by itself.
#include "check.h"

extern __shared__ int room[];
__global__ void reverse(int *p)
{
	room[threadIdx.x] = p[threadIdx.x];
	__syncthreads();
	p[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

int main()
{
	int h[256], *p;
	for (int i = 0; i < 256; i++)
		h[i] = i;
	OK(cudaMalloc(&p, sizeof h));
	OK(cudaMemcpy(p, h, sizeof h, cudaMemcpyHostToDevice));
	OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
	reverse<<<1, 256, 65536>>>(p);
	OK(cudaMemcpy(h, p, sizeof h, cudaMemcpyDeviceToHost));
	printf("%d %d\n", h[0], h[255]);
}
