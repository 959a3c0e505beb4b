/* Stream-ordered memory, allocated in one stream, used in another and freed in a third. */
#include "program.h"

int main(void)
{
	unsigned n = 30000, value = 3;
	CUstream streams[3];
	CUevent event;
	CUdeviceptr p;

	start();
	CUmodule module = load_kernels();
	CUfunction fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	CUdeviceptr kept = allocate(n * 4);
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < 3; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (unsigned round = 0; round < 4; round++) {
		CUstream first = streams[round % 3], second = streams[(round + 1) % 3], third = streams[(round + 2) % 3];

		SHOW(cuMemAllocAsync(&p, n * 4, first));
		SHOW(launch(fill, n, first, PARAMS(&p, &n, &value)));
		OK(cuEventRecord(event, first));
		OK(cuStreamWaitEvent(second, event, 0));
		SHOW(launch(add, n, second, PARAMS(&p, &n, &value)));
		SHOW(cuMemcpyDtoDAsync(kept, p, n * 4, second));
		OK(cuEventRecord(event, second));
		OK(cuStreamWaitEvent(third, event, 0));
		SHOW(cuMemFreeAsync(p, third));
		SHOW(cuStreamSynchronize(third));
		print_device("kept", kept, n * 4);
		value += round;
	}
	SHOW(cuMemAllocAsync(&p, 100, NULL));
	SHOW(cuMemFree(p));
	SHOW(cuMemFreeAsync(kept, NULL));
	SHOW(cuMemAllocAsync(&p, 0, NULL));
	SHOW(cuCtxSynchronize());
	for (unsigned i = 0; i < 3; i++)
		OK(cuStreamDestroy(streams[i]));
	OK(cuEventDestroy(event));
	return 0;
}
