// 14 42 40
// Variables of the program, constant and not.
#include "check.h"

__constant__ int factors[4];
__device__ int total = 40;
__global__ void use(int *out)
{
	*out = factors[0] + factors[1] * 2 + factors[2] * 3;
	total += 2;
}

int main()
{
	int h[4] = {1, 2, 3, 4}, *out, result, after;
	size_t size;
	void *at;
	OK(cudaMalloc(&out, 4));
	OK(cudaMemcpyFromSymbol(&after, total, 4));
	int before = after;
	OK(cudaMemcpyToSymbol(factors, h, sizeof h));
	use<<<1, 1>>>(out);
	OK(cudaMemcpy(&result, out, 4, cudaMemcpyDeviceToHost));
	OK(cudaGetSymbolAddress(&at, total));
	OK(cudaGetSymbolSize(&size, total));
	OK(cudaMemcpy(&after, at, size, cudaMemcpyDeviceToHost));
	printf("%d %d %d\n", result, after, before);
}
