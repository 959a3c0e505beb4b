/* Free memory falls by what is allocated and comes back when it is freed. */
#include "program.h"

int main(void)
{
	enum { BYTES = 64 << 20 };
	size_t before, during, after, total, total_again;

	CUdevice device = start();
	SHOW(cuMemGetInfo(&before, &total));
	CUdeviceptr p = allocate(BYTES);
	SHOW(cuMemGetInfo(&during, &total));
	SHOW(cuMemFree(p));
	SHOW(cuMemGetInfo(&after, &total_again));
	printf("taken %zu, given back %d\n", before - during, after == before);
	printf("total stays %d, is at least free %d\n", total == total_again, total >= before);
	SHOW(cuDeviceTotalMem(&total, device));
	printf("total is the device's %d\n", total == total_again);
	return 0;
}
