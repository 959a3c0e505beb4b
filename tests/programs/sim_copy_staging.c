/*
 * An asynchronous copy reads pageable memory during the call, and pinned memory when it runs. A copy from
 * host to host is complete when the call returns.
 */
#include "program.h"

int main(void)
{
	unsigned *flag, *pinned, pageable[256];
	CUdeviceptr flag_address;
	CUstream stream;

	start();
	CUdeviceptr a = allocate(sizeof(pageable)), b = allocate(sizeof(pageable));
	OK(cuMemAllocHost((void **)&flag, sizeof(*flag)));
	OK(cuMemAllocHost((void **)&pinned, sizeof(pageable)));
	OK(cuMemHostGetDevicePointer(&flag_address, flag, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	*flag = 0;
	for (unsigned i = 0; i < 256; i++)
		pageable[i] = pinned[i] = i;
	OK(cuMemsetD8(a, 0, sizeof(pageable)));
	OK(cuMemsetD8(b, 0, sizeof(pageable)));
	OK(cuCtxSynchronize());
	SHOW(cuStreamWaitValue32(stream, flag_address, 1, CU_STREAM_WAIT_VALUE_EQ));
	SHOW(cuMemcpyHtoDAsync(a, pageable, sizeof(pageable), stream));
	SHOW(cuMemcpyHtoDAsync(b, pinned, sizeof(pageable), stream));
	for (unsigned i = 0; i < 256; i++)
		pageable[i] = pinned[i] = 1000 + i;
	SHOW(cuStreamQuery(stream));
	*(volatile unsigned *)flag = 1;
	SHOW(cuStreamSynchronize(stream));
	print_words("from pageable memory", a, 4);
	print_words("from pinned memory", b, 4);

	unsigned n = 64, rounds = 200000, *more;
	OK(cuMemAllocHost((void **)&more, sizeof(pageable)));
	memset(more, 0, sizeof(pageable));
	OK(launch(get_kernel(load_kernels(), "mix"), n, stream, PARAMS(&a, &n, &rounds)));
	SHOW(cuMemcpyAsync((CUdeviceptr)(uintptr_t)more, (CUdeviceptr)(uintptr_t)pinned, sizeof(pageable), stream));
	print_host("from pinned to pinned memory", more, sizeof(pageable));
	OK(cuMemFreeHost(more));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	OK(cuMemFreeHost(flag));
	OK(cuMemFreeHost(pinned));
	return 0;
}
