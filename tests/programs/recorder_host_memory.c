/*
 * Page-locked memory: allocated, which a kernel changes, and registered, which the host changes. Each step has a wait.
 */
#include "program.h"

#define N 20000
#define STEPS 3

int main(void)
{
	unsigned n = N, one = 1, *allocated, *registered;
	CUdeviceptr device;

	start();
	CUfunction add = get_kernel(load_kernels(), "add");
	OK(cuMemHostAlloc((void **)&allocated, N * 4, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	registered = aligned_alloc(65536, 131072);
	memset(allocated, 0, N * 4);
	memset(registered, 0, 131072);
	OK(cuMemHostRegister(registered, 131072, CU_MEMHOSTREGISTER_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&device, allocated, 0));
	for (unsigned i = 0; i < STEPS; i++) {
		OK(cuLaunchKernel(add, (N + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, PARAMS(&device, &n, &one), NULL));
		registered[100] = i + 1;
		OK(cuCtxSynchronize());
	}
	printf("%u %u %u\n", allocated[0], allocated[N - 1], registered[100]);
	OK(cuMemHostUnregister(registered));
	OK(cuMemFreeHost(allocated));
	free(registered);
	return 0;
}
