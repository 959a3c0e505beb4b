// 1 1 32 1024 1
// Devices and kernels, asked.
#include "check.h"

__global__ void kernel(int *p) { *p = 1; }

int main()
{
	int count, blocks, device;
	cudaDeviceProp properties;
	cudaFuncAttributes attributes;
	OK(cudaGetDeviceCount(&count));
	OK(cudaSetDevice(0));
	OK(cudaGetDevice(&device));
	OK(cudaGetDeviceProperties(&properties, 0));
	OK(cudaFuncGetAttributes(&attributes, kernel));
	OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 0));
	printf("%d %d %d %d %d\n", count > 0, device == 0, properties.warpSize, attributes.maxThreadsPerBlock, blocks > 0);
}
