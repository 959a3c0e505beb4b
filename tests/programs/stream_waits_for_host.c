/* A stream waits for a value in memory that the host writes after it has waited for another stream. */
#include "program.h"

int main(void)
{
	unsigned n = 5000, none = 0;
	volatile unsigned *flag;
	unsigned *result;
	CUdeviceptr device_flag;
	CUstream waiting, other;

	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr a = allocate(n * 4), b = allocate(n * 4);
	OK(cuMemsetD8(a, 1, n * 4));
	OK(cuMemsetD8(b, 2, n * 4));
	OK(launch(mix, n, NULL, PARAMS(&b, &n, &none))); /* loads it: that may wait for all streams */
	OK(cuMemHostAlloc((void **)&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&device_flag, (void *)flag, 0));
	OK(cuMemAllocHost((void **)&result, n * 4));
	*flag = 0;
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuStreamWaitValue32(waiting, device_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemsetD8Async(a, 3, n * 4, waiting));
	for (unsigned round = 1; round < 4; round++) {
		OK(launch(mix, n, other, PARAMS(&b, &n, &round)));
		OK(cuMemcpyDtoHAsync(result, b, n * 4, other));
		OK(cuStreamSynchronize(other));
		print_host("meanwhile", result, n * 4);
	}
	SHOW(cuStreamQuery(waiting));
	*flag = 1;
	SHOW(cuStreamSynchronize(waiting));
	print_device("let go", a, n * 4);
	return 0;
}
