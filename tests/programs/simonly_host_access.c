/* The host follows a device pointer: the argument says to which kind of memory. */
#include "program.h"

int main(int count, char **arguments)
{
	const char *kind = count > 1 ? arguments[1] : "";
	CUdeviceptr p;

	start();
	if (!strcmp(kind, "device"))
		p = allocate(4096);
	else if (!strcmp(kind, "async"))
		OK(cuMemAllocAsync(&p, 4096, NULL));
	else if (!strcmp(kind, "reserved"))
		OK(cuMemAddressReserve(&p, 2 << 20, 0, 0, 0));
	else
		OK(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
	OK(cuCtxSynchronize());
	printf("low address %d\n", p < 0x1000000000);
	fflush(stdout);
	*(volatile unsigned *)(uintptr_t)p = 1;
	printf("written\n");
	return 0;
}
