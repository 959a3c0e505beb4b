// cudaErrorInvalidConfiguration: invalid configuration argument; 0 cudaErrorInvalidValue
// Errors of calls and launches.
#include "check.h"

__global__ void nothing() {}

int main()
{
	nothing<<<1, 4096>>>();
	cudaError_t peeked = cudaPeekAtLastError(), got = cudaGetLastError();
	if (peeked != got)
		return 1;
	printf("%s: %s; %d ", cudaGetErrorName(got), cudaGetErrorString(got), cudaGetLastError());
	printf("%s\n", cudaGetErrorName(cudaFree((void *)16)));
}
