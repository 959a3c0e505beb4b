// 9 9
// Stream-ordered and page-locked memory.
#include "check.h"

__global__ void fill(int *p, int value) { p[threadIdx.x] = value; }

int main()
{
	int *p, *h;
	cudaStream_t s;
	OK(cudaStreamCreate(&s));
	OK(cudaMallocHost(&h, 256));
	OK(cudaMallocAsync(&p, 256, s));
	fill<<<1, 64, 0, s>>>(p, 9);
	OK(cudaMemcpyAsync(h, p, 256, cudaMemcpyDeviceToHost, s));
	OK(cudaFreeAsync(p, s));
	OK(cudaStreamSynchronize(s));
	printf("%d %d\n", h[0], h[63]);
	OK(cudaFreeHost(h));
}
