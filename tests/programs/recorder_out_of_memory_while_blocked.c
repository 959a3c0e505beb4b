/* Allocates all device memory while a stream waits for a value that the host writes only afterwards. */
#include "program.h"

#define PIECE ((size_t)1 << 20)

int main(void)
{
	unsigned n = 5000;
	volatile unsigned *flag;
	CUdeviceptr device_flag, taken;
	CUstream waiting;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	CUdeviceptr a = allocate(n * 4);
	OK(launch(fill, n, NULL, PARAMS(&a, &n, &n)));
	OK(cuMemHostAlloc((void **)&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&device_flag, (void *)flag, 0));
	*flag = 0;
	OK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSynchronize()); /* an epoch */
	OK(cuStreamWaitValue32(waiting, device_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemsetD8Async(a, 3, n * 4, waiting));
	while (cuMemAlloc(&taken, PIECE) == CUDA_SUCCESS)
		continue;
	*flag = 1;
	OK(cuStreamSynchronize(waiting));
	print_device("let go", a, n * 4);
	return 0;
}
