/* A mapping outlives the handle of its memory. */
#include "program.h"

int main(void)
{
	CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemGenericAllocationHandle memory, again;
	CUdeviceptr range;
	size_t size;

	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = start();
	CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	OK(cuMemGetAllocationGranularity(&size, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	OK(cuMemAddressReserve(&range, size, 0, 0, 0));
	OK(cuMemCreate(&memory, size, &props, 0));
	OK(cuMemMap(range, size, 0, memory, 0));
	SHOW(cuMemRelease(memory));
	SHOW(cuMemSetAccess(range, size, &access, 1));
	SHOW(cuMemsetD32(range, 12345, size / 4));
	print_device("contents", range, size);
	SHOW(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + 100)));
	SHOW(cuMemRelease(again));
	print_device("contents", range, size);
	SHOW(cuMemUnmap(range, size));
	SHOW(cuMemAddressFree(range, size));
	return 0;
}
