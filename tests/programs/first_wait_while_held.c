/*
 * The host first waits for one stream, while another stream waits for a value that the host writes only
 * afterwards.
 */
#include "program.h"

int main(void)
{
	unsigned n = 5000, rounds = 3, *result;
	volatile unsigned *flag;
	CUdeviceptr device_flag;
	CUstream waiting, other;

	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr a = allocate(n * 4), b = allocate(n * 4);
	OK(cuMemHostAlloc((void **)&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&device_flag, (void *)flag, 0));
	OK(cuMemAllocHost((void **)&result, n * 4));
	OK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	*flag = 0;
	OK(cuMemsetD8Async(b, 2, n * 4, other));
	OK(launch(mix, n, other, PARAMS(&b, &n, &rounds))); /* loads it: that may wait for all streams */
	OK(cuStreamWaitValue32(waiting, device_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemsetD8Async(a, 3, n * 4, waiting));
	OK(cuMemcpyDtoHAsync(result, b, n * 4, other));
	OK(cuStreamSynchronize(other));
	print_host("meanwhile", result, n * 4);
	*flag = 1;
	SHOW(cuStreamSynchronize(waiting));
	print_device("let go", a, n * 4);
	return 0;
}
