/* New memory of every kind holds arbitrary bytes that depend on the seed. */
#include "program.h"

static void show(const char *name, const unsigned char *bytes, size_t size)
{
	size_t zeros = 0;

	for (size_t i = 0; i < size; i++)
		zeros += !bytes[i];
	printf("%s: %zu zeros, %016llx\n", name, zeros, (unsigned long long)hash_bytes(bytes, size));
}

static void show_device(const char *name, CUdeviceptr p, size_t size)
{
	unsigned char *bytes = malloc(size);

	OK(cuMemcpyDtoH(bytes, p, size));
	show(name, bytes, size);
	free(bytes);
}

int main(void)
{
	const size_t large = 9 << 20;
	CUdeviceptr p;
	void *host;
	CUmemGenericAllocationHandle memory;
	CUmemAllocationProp props = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	start();
	show_device("small", allocate(100), 100);
	show_device("small again", allocate(100), 100);
	show_device("large", allocate(large), large);
	OK(cuMemAllocAsync(&p, 1000, NULL));
	show_device("async", p, 1000);
	OK(cuMemAllocManaged(&p, 1000, CU_MEM_ATTACH_GLOBAL));
	show("managed", (unsigned char *)(uintptr_t)p, 1000);
	OK(cuMemAllocHost(&host, 1000));
	show("host", host, 1000);
	OK(cuMemAddressReserve(&p, 2 << 20, 0, 0, 0));
	OK(cuMemCreate(&memory, 2 << 20, &props, 0));
	OK(cuMemMap(p, 2 << 20, 0, memory, 0));
	OK(cuMemSetAccess(p, 2 << 20, &access, 1));
	show_device("mapped", p, 2 << 20);
	return 0;
}
