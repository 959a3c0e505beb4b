/* Physical memory is mapped, unmapped and mapped elsewhere; its contents go with it. */
#include "program.h"

static CUmemAllocationProp props = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

static void map(CUdeviceptr where, size_t size, CUmemGenericAllocationHandle memory)
{
	CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	SHOW(cuMemMap(where, size, 0, memory, 0));
	SHOW(cuMemSetAccess(where, size, &access, 1));
}

int main(void)
{
	CUmemGenericAllocationHandle one, two;
	unsigned n = 1000, value = 77;
	unsigned long long flags;
	CUdeviceptr range;
	size_t size;

	props.location.id = start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	SHOW(cuMemGetAllocationGranularity(&size, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	printf("granularity is a multiple of 64 KiB %d\n", size % 65536 == 0);
	SHOW(cuMemAddressReserve(&range, 4 * size, 0, 0, 0));
	SHOW(cuMemCreate(&one, size, &props, 0));
	SHOW(cuMemCreate(&two, size, &props, 0));
	map(range, size, one);
	map(range + size, size, two);
	SHOW(cuMemsetD8(range, 1, 2 * size));
	SHOW(launch(fill, n, NULL, PARAMS(&range, &n, &value)));
	SHOW(cuCtxSynchronize());
	print_device("both", range, 2 * size);
	SHOW(cuMemGetAccess(&flags, &props.location, range));
	printf("access %llu\n", flags);

	SHOW(cuMemUnmap(range, size));
	map(range + 3 * size, size, one);
	print_device("moved", range + 3 * size, size);
	SHOW(cuMemsetD8(range + 3 * size + 5000, 9, 3));
	OK(cuCtxSynchronize()); /* unmapping waits for nothing */
	SHOW(cuMemUnmap(range + 3 * size, size));
	map(range, size, one);
	print_device("back", range, 2 * size);

	SHOW(cuMemMap(range, size, 0, two, 0));
	SHOW(cuMemMap(range + 2 * size, size / 2, 0, two, 0));
	SHOW(cuMemCreate(&one, size + 1, &props, 0));
	SHOW(cuMemUnmap(range, 2 * size));
	SHOW(cuMemRelease(one));
	SHOW(cuMemRelease(two));
	SHOW(cuMemAddressFree(range, 4 * size));
	return 0;
}
