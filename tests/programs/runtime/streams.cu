// 3 1
// Streams, events and times.
#include "check.h"

__global__ void bump(int *p) { ++*p; }

int main()
{
	int *p, h = 1;
	float ms;
	cudaStream_t a, b;
	cudaEvent_t begin, end;
	OK(cudaMalloc(&p, 4));
	OK(cudaStreamCreate(&a));
	OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	OK(cudaEventCreate(&begin));
	OK(cudaEventCreate(&end));
	OK(cudaMemcpyAsync(p, &h, 4, cudaMemcpyHostToDevice, a));
	OK(cudaEventRecord(begin, a));
	bump<<<1, 1, 0, a>>>(p);
	OK(cudaEventRecord(end, a));
	OK(cudaStreamWaitEvent(b, end, 0));
	bump<<<1, 1, 0, b>>>(p);
	OK(cudaMemcpyAsync(&h, p, 4, cudaMemcpyDeviceToHost, b));
	OK(cudaStreamSynchronize(b));
	OK(cudaEventElapsedTime(&ms, begin, end));
	printf("%d %d\n", h, ms >= 0);
	OK(cudaStreamDestroy(a));
	OK(cudaStreamDestroy(b));
}
