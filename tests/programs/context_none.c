/* Calls before cuInit, and without a current context. */
#include "program.h"

int main(void)
{
	CUdeviceptr p = 0;
	CUcontext current;
	CUstream stream;
	CUmodule module;
	CUdevice device;
	size_t free_bytes, total;
	int count;

	SHOW(cuMemAlloc(&p, 100));
	SHOW(cuDeviceGet(&device, 0));
	SHOW(cuDeviceGetCount(&count));
	SHOW(cuCtxSynchronize());
	SHOW(cuCtxGetCurrent(&current));
	SHOW(cuInit(1));
	SHOW(cuInit(0));
	SHOW(cuInit(0));
	SHOW(cuMemAlloc(&p, 100));
	SHOW(cuMemFree(0));
	SHOW(cuMemGetInfo(&free_bytes, &total));
	SHOW(cuMemsetD8(p, 1, 1));
	SHOW(cuMemcpyHtoD(p, "a", 1));
	SHOW(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	SHOW(cuModuleLoadData(&module, KERNELS));
	SHOW(cuCtxSynchronize());
	SHOW(cuStreamSynchronize(NULL));
	SHOW(cuCtxGetCurrent(&current));
	SHOW(cuCtxPopCurrent(&current));
	SHOW(cuDeviceGet(&device, 1000));
	SHOW(cuDeviceGet(&device, -1));
	return 0;
}
