/* Running out of memory gives the error and leaves the rest as it was. */
#include "program.h"

int main(void)
{
	CUmemGenericAllocationHandle memory;
	CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	size_t before, after, total;
	CUdeviceptr p, q = 0;

	CUdevice device = start();
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = device;
	CUdeviceptr kept = allocate(1000);
	OK(cuMemsetD8(kept, 1, 1000));
	OK(cuMemGetInfo(&before, &total));
	size_t too_much = (total + (1ul << 30)) >> 21 << 21;
	SHOW(cuMemAlloc(&p, too_much));
	SHOW(cuMemAlloc(&p, (size_t)1 << 60));
	SHOW(cuMemCreate(&memory, too_much, &props, 0));
	SHOW(cuMemAllocAsync(&p, too_much, NULL));
	SHOW(cuCtxSynchronize());
	OK(cuMemGetInfo(&after, &total));
	printf("free as before %d\n", before == after);
	print_device("kept", kept, 1000);

	/* Nearly all that is said to be free can be had. */
	SHOW(cuMemAlloc(&q, before / 16 * 14));
	SHOW(cuMemAlloc(&p, before / 16 * 4));
	SHOW(cuMemFree(q));
	SHOW(cuMemFree(kept));
	return 0;
}
