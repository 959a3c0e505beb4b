/* What the programs about faulting kernels share: the fault, and the calls after it. */
#include "program.h"

static int show_fault(const char *kernel_name, void **params)
{
	unsigned n = 10, value = 1;
	unsigned char out[16];
	CUdeviceptr q;
	CUstream stream;
	CUevent event;
	CUmodule other;
	size_t free_bytes, total;
	int count = -1;

	CUdevice device = start();
	CUmodule module = load_kernels();
	CUfunction fill = get_kernel(module, "fill");
	CUdeviceptr p = allocate(1000);
	OK(cuMemsetD8(p, 1, 1000));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
	OK(cuCtxSynchronize());
	print_device("before", p, 1000);

	SHOW(cuLaunchKernel(get_kernel(module, kernel_name), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	SHOW(cuCtxSynchronize());
	SHOW(cuCtxSynchronize());
	SHOW(cuMemAlloc(&q, 100));
	SHOW(cuMemcpyDtoH(out, p, 16));
	SHOW(cuMemcpyDtoHAsync(out, p, 16, stream));
	SHOW(cuMemsetD8(p, 2, 10));
	SHOW(launch(fill, n, stream, PARAMS(&p, &n, &value)));
	SHOW(cuStreamQuery(stream));
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuEventRecord(event, stream));
	SHOW(cuEventQuery(event));
	SHOW(cuEventSynchronize(event));
	SHOW(cuStreamDestroy(stream));
	SHOW(cuModuleLoadData(&other, KERNELS));
	SHOW(cuMemGetInfo(&free_bytes, &total));
	SHOW(cuDeviceGetCount(&count));
	SHOW(cuMemFree(p));
	SHOW(cuModuleUnload(module));
	SHOW(cuDevicePrimaryCtxRelease(device));
	return 0;
}
