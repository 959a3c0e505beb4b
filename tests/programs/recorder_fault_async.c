/* After a kernel's fault that the program has seen: stream-ordered allocations and frees. */
#include "program.h"

int main(void)
{
	CUdeviceptr p, q;
	CUstream stream;

	start();
	CUmodule module = load_kernels();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&p, 1000, stream));
	OK(cuMemAllocAsync(&q, 1000, stream));
	OK(cuMemFreeAsync(q, stream));
	OK(cuStreamSynchronize(stream));
	SHOW(cuLaunchKernel(get_kernel(module, "fail"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	SHOW(cuCtxSynchronize());
	SHOW(cuMemAllocAsync(&q, 1000, stream));
	SHOW(cuMemAlloc(&q, 1000));
	SHOW(cuMemFreeAsync(p, stream));
	SHOW(cuMemFreeAsync(p, stream));
	SHOW(cuMemFree(p));
	return 0;
}
