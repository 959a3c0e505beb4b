/* Prints the contents of new memory: a line for each allocation, with its address and all its bytes. */
#include "program.h"

enum { SIZE = 5003 };

static void show(const char *name, CUdeviceptr p)
{
	static unsigned char bytes[SIZE];

	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH(bytes, p, SIZE));
	printf("%s %llu ", name, (unsigned long long)p);
	for (int i = 0; i < SIZE; i++)
		printf("%02x", bytes[i]);
	printf("\n");
	OK(cuMemsetD8(p, 0x5a, SIZE));
	OK(cuCtxSynchronize()); /* no stream that it is freed in waits for that */
}

static void map(CUdevice device)
{
	CUmemAllocationProp props = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
	CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle memory;
	CUdeviceptr range;
	size_t size;

	OK(cuMemGetAllocationGranularity(&size, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	OK(cuMemAddressReserve(&range, 2 * size, 0, 0, 0));
	OK(cuMemCreate(&memory, size, &props, 0));
	for (int i = 0; i < 2; i++) {
		OK(cuMemMap(range + i * size, size, 0, memory, 0));
		OK(cuMemSetAccess(range + i * size, size, &access, 1));
		show(i ? "mapped-again" : "mapped", range + i * size);
	}
}

/* A pool of another device, which a stream of this one takes memory from but may not reach. */
static void allocate_far(CUstream stream)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
	};
	CUmemoryPool pool;
	CUdeviceptr p;

	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&p, SIZE, pool, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemFreeAsync(p, stream));
	OK(cuCtxSynchronize());
	printf("far 0 00\n");
}

int main(void)
{
	int devices;

	CUdevice device = start();
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
	CUmemoryPool pool;
	CUstream stream;
	CUdeviceptr p;
	size_t pitch;

	for (int i = 0; i < 2; i++) {
		p = allocate(SIZE);
		show(i ? "again" : "alloc", p);
		OK(cuMemFree(p));
	}
	OK(cuMemAllocPitch(&p, &pitch, SIZE, 3, 4));
	show("pitched", p);
	OK(cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_GLOBAL));
	show("managed", p);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemPoolCreate(&pool, &props));
	for (int i = 0; i < 4; i++) {
		CUstream in = i < 2 ? stream : NULL;

		OK(i % 2 ? cuMemAllocFromPoolAsync(&p, SIZE, pool, in) : cuMemAllocAsync(&p, SIZE, in));
		show(i % 2 ? "pool" : "async", p);
		OK(cuMemFreeAsync(p, in));
	}
	map(device);
	OK(cuDeviceGetCount(&devices));
	if (devices > 1)
		allocate_far(stream);
	return 0;
}
