/* Attributes of pointers of every kind, and of pointers that are not of the driver. */
#include "program.h"

static void describe(const char *what, CUdeviceptr p, CUdeviceptr base)
{
	CUmemorytype type = 0;
	CUdeviceptr start_address = 0;
	size_t size = 0;
	unsigned managed = 9;
	int ordinal = -9;

	printf("%s\n", what);
	SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	SHOW(cuPointerGetAttribute(&start_address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
	SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
	SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	printf("type %d, start %d, size %zu, managed %u, device %d\n", (int)type, start_address == base, size, managed,
	       ordinal);
}

int main(void)
{
	CUdeviceptr managed;
	CUmemorytype type = 0;
	size_t size = 0;
	void *pinned;
	int local = 0;

	start();
	CUdeviceptr p = allocate(12345);
	OK(cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemAllocHost(&pinned, 3000));
	describe("device", p, p);
	describe("inside", p + 12344, p);
	describe("managed", managed + 4, managed);
	describe("host", (CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)pinned);
	SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&local));
	SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0));

	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	SHOW(cuPointerGetAttributes(2, names, PARAMS(&type, &size), p + 1));
	printf("type %d, size %zu\n", (int)type, size);
	SHOW(cuPointerGetAttributes(2, names, PARAMS(&type, &size), (CUdeviceptr)(uintptr_t)&local));
	printf("type %d\n", (int)type);
	OK(cuMemFree(p));
	OK(cuMemFree(managed));
	OK(cuMemFreeHost(pinned));
	SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	return 0;
}
