/* Managed memory: host and device take turns. */
#include "program.h"

int main(void)
{
	unsigned n = 50000, value = 1000, managed;
	CUdeviceptr p;

	start();
	CUfunction add = get_kernel(load_kernels(), "add");
	SHOW(cuMemAllocManaged(&p, n * 4, CU_MEM_ATTACH_GLOBAL));
	unsigned *host = (unsigned *)(uintptr_t)p;
	OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	printf("managed %u\n", managed);
	for (unsigned i = 0; i < n; i++)
		host[i] = i;
	for (unsigned round = 0; round < 3; round++) {
		SHOW(launch(add, n, NULL, PARAMS(&p, &n, &value)));
		SHOW(cuCtxSynchronize());
		host[round] = 7;
		print_host("after a round", host, n * 4);
	}
	SHOW(cuMemsetD8(p + 1, 0xee, 99));
	SHOW(cuCtxSynchronize());
	print_host("after a set", host, n * 4);
	SHOW(cuMemFree(p));
	SHOW(cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL));
	SHOW(cuMemAllocManaged(&p, 100, 0));
	return 0;
}
