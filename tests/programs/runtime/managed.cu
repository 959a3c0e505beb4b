// 42 3
// Managed memory.
#include "check.h"

__global__ void set(int *p) { *p *= 2; }

int main()
{
	int *p;
	cudaPointerAttributes what;
	OK(cudaMallocManaged(&p, 4));
	*p = 21;
	set<<<1, 1>>>(p);
	OK(cudaDeviceSynchronize());
	OK(cudaPointerGetAttributes(&what, p));
	printf("%d %d\n", *p, what.type);
	OK(cudaFree(p));
}
