/* Pinned host memory: its flags, its device address, and a kernel that writes to it. */
#include "program.h"

int main(void)
{
	unsigned n = 1000, value = 5, *plain, *mapped, flags;
	CUdeviceptr device;
	CUcontext current;

	start();
	OK(cuCtxGetCurrent(&current));
	CUfunction fill = get_kernel(load_kernels(), "fill");
	SHOW(cuMemAllocHost((void **)&plain, 4000));
	SHOW(cuMemHostAlloc((void **)&mapped, 4000, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	SHOW(cuMemHostGetFlags(&flags, mapped));
	printf("flags %u\n", flags);
	SHOW(cuMemHostGetDevicePointer(&device, mapped, 0));
	printf("same address %d\n", device == (CUdeviceptr)(uintptr_t)mapped);
	SHOW(launch(fill, n, NULL, PARAMS(&device, &n, &value)));
	SHOW(cuCtxSynchronize());
	print_host("written by a kernel", mapped, 4000);
	SHOW(cuMemcpy((CUdeviceptr)(uintptr_t)plain, device, 4000));
	print_host("copied", plain, 4000);
	SHOW(cuMemFreeHost(plain));
	SHOW(cuMemFreeHost(mapped));
	SHOW(cuMemFreeHost(mapped));
	SHOW(cuMemAllocHost((void **)&plain, 0));
	return 0;
}
