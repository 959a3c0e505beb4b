// 2 198
// A kernel, copies and device memory.
#include "check.h"

__global__ void add(float *a, const float *b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		a[i] += b[i];
}

int main()
{
	float *a, *b, h[100];
	for (int i = 0; i < 100; i++)
		h[i] = i;
	OK(cudaMalloc(&a, sizeof h));
	OK(cudaMalloc(&b, sizeof h));
	OK(cudaMemcpy(a, h, sizeof h, cudaMemcpyHostToDevice));
	OK(cudaMemcpy(b, h, sizeof h, cudaMemcpyDefault));
	add<<<1, 128>>>(a, b, 100);
	OK(cudaGetLastError());
	OK(cudaMemcpy(h, a, sizeof h, cudaMemcpyDeviceToHost));
	printf("%g %g\n", h[1], h[99]);
	OK(cudaFree(a));
	OK(cudaFree(b));
}
