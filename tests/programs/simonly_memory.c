/* TT_SIM_MEMORY sets the size of memory; the free size is exact. */
#include "program.h"

static void info(const char *when)
{
	size_t free_bytes, total;

	OK(cuMemGetInfo(&free_bytes, &total));
	printf("%s: %zu of %zu\n", when, free_bytes, total);
}

int main(void)
{
	CUdeviceptr p, q, r;
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = 100, .Height = 10, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	size_t total, free_bytes;
	CUdevice device = start();

	SHOW(cuDeviceTotalMem(&total, device));
	printf("total %zu\n", total);
	info("at first");
	SHOW(cuMemAlloc(&p, 1));
	info("one byte");
	SHOW(cuMemAlloc(&q, 513));
	info("513 bytes");
	SHOW(cuArrayCreate(&array, &shape));
	info("an array");
	OK(cuMemGetInfo(&free_bytes, &total));
	SHOW(cuMemAlloc(&r, free_bytes + 1));
	SHOW(cuMemAlloc(&r, free_bytes));
	info("all");
	SHOW(cuMemFree(r));
	SHOW(cuMemAllocAsync(&r, 1000, NULL));
	info("async");
	SHOW(cuMemFreeAsync(r, NULL));
	SHOW(cuCtxSynchronize());
	SHOW(cuArrayDestroy(array));
	SHOW(cuMemFree(p));
	SHOW(cuMemFree(q));
	info("at last");
	return 0;
}
