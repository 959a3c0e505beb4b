/* A fixed range of addresses, and physical memory shared through a descriptor. */
#include "program.h"

#include <unistd.h>

int main(void)
{
	CUmemAllocationProp props = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemAllocationProp back;
	CUmemGenericAllocationHandle memory, again, imported;
	CUdeviceptr range, second;
	size_t size;
	int fd = -1;

	props.location.id = start();
	CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	OK(cuMemGetAllocationGranularity(&size, &props, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	SHOW(cuMemAddressReserve(&range, 64 * size, 0, 0x200000000000, 0));
	printf("where it was asked for %d\n", range == 0x200000000000);
	SHOW(cuMemAddressReserve(&second, 4 * size, 16 * size, 0, 0));
	printf("aligned %d\n", second % (16 * size) == 0);
	SHOW(cuMemAddressReserve(&second, size + 1, 0, 0, 0));
	SHOW(cuMemAddressReserve(&second, 4 * size, 3 * size, 0, 0));
	SHOW(cuMemCreate(&memory, 2 * size, &props, 0));
	SHOW(cuMemGetAllocationPropertiesFromHandle(&back, memory));
	printf("same properties %d\n", back.location.id == props.location.id && back.type == props.type);
	SHOW(cuMemMap(range + 8 * size, 2 * size, 0, memory, 0));
	SHOW(cuMemSetAccess(range + 8 * size, 2 * size, &access, 1));
	SHOW(cuMemsetD8(range + 8 * size, 0x5a, 2 * size));
	print_device("fixed", range + 8 * size, 2 * size);

	SHOW(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	SHOW(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	SHOW(cuMemMap(range, 2 * size, 0, imported, 0));
	SHOW(cuMemSetAccess(range, 2 * size, &access, 1));
	SHOW(cuMemcpyHtoD(range + size, "shared", 6));
	SHOW(cuCtxSynchronize());
	print_device("through the descriptor", range + 9 * size, 4096);
	SHOW(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + 9 * size)));
	printf("the same memory %d\n", again == memory);
	SHOW(cuMemRelease(again));
	SHOW(cuMemRelease(memory));
	print_device("still mapped", range + 9 * size, 4096);
	SHOW(cuMemUnmap(range + 8 * size, 2 * size));
	SHOW(cuMemUnmap(range, 2 * size));
	SHOW(cuMemRelease(imported));
	SHOW(cuMemAddressFree(range, 64 * size));
	close(fd);
	return 0;
}
