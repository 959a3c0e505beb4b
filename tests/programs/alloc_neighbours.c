/* Allocations of all kinds side by side: what happens to one does not happen to its neighbours. */
#include "program.h"

enum { COUNT = 5 };

static const size_t sizes[COUNT] = {100, 600, 1, 70000, 2000000};
static CUdeviceptr p[COUNT];

static void show_ranges(void)
{
	for (unsigned i = 0; i < COUNT; i++) {
		CUdeviceptr base = 0;
		size_t size = 0;

		CUresult r = cuMemGetAddressRange(&base, &size, p[i] + sizes[i] - 1);
		printf("%u: %s, base %d, size %zu\n", i, result_name(r), base == p[i], size);
	}
}

static void show_attributes(void)
{
	unsigned long long ids[COUNT];
	CUcontext current, context = NULL;
	unsigned flag = 1, set = 9;

	OK(cuCtxGetCurrent(&current));
	for (unsigned i = 0; i < COUNT; i++) {
		CUpointer_attribute names[] = {
			CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
			CU_POINTER_ATTRIBUTE_IS_MANAGED,
		};
		unsigned managed = 9;
		size_t size = 0;

		SHOW(cuPointerGetAttributes(4, names, PARAMS(&context, &ids[i], &size, &managed), p[i] + sizes[i] / 2));
		printf("context %d, size %zu, managed %u\n", context == current, size, managed);
		for (unsigned j = 0; j < i; j++)
			if (ids[i] == ids[j])
				printf("%u has the id of %u\n", i, j);
	}
	SHOW(cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p[0]));
	SHOW(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p[0]));
	printf("set %u\n", set);
}

static void show_contents(void)
{
	for (unsigned i = 0; i < COUNT; i++)
		if (i != 1)
			print_device("contents", p[i], sizes[i]);
}

static void free_one(void)
{
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	CUmemorytype type = CU_MEMORYTYPE_HOST;
	size_t size = 9;

	SHOW(cuMemFree(p[0] + 4));
	SHOW(cuMemFree(p[3] + 512));
	SHOW(cuMemFreeAsync(p[3] + 512, NULL));
	SHOW(cuMemFree(p[1]));
	SHOW(cuMemFree(p[1]));
	SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p[1]));
	SHOW(cuPointerGetAttributes(2, names, PARAMS(&type, &size), p[1]));
	printf("type %d, size %zu\n", (int)type, size);
	show_ranges();
	show_contents();
}

static void in_a_stream(CUdevice device)
{
	CUmemoryPool standard, pool = NULL;
	CUdeviceptr q, base;
	CUstream stream;
	size_t size;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&standard, device));
	OK(cuMemAllocAsync(&q, 3000, stream));
	OK(cuMemsetD8Async(q, 7, 3000, stream));
	SHOW(cuMemGetAddressRange(&base, &size, q + 2999));
	printf("base %d, size %zu\n", base == q, size);
	SHOW(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, q));
	printf("the default pool's %d\n", pool == standard);
	SHOW(cuMemFreeAsync(q + 8, stream));
	SHOW(cuMemFreeAsync(q, stream));
	SHOW(cuMemFreeAsync(q, stream));
	SHOW(cuStreamSynchronize(stream));
	OK(cuStreamDestroy(stream));
	show_contents();
}

int main(void)
{
	CUdevice device = start();

	for (unsigned i = 0; i < COUNT; i++) {
		void *data = pattern(sizes[i], i);

		p[i] = allocate(sizes[i]);
		OK(cuMemcpyHtoD(p[i], data, sizes[i]));
		free(data);
	}
	show_ranges();
	show_attributes();
	free_one();
	in_a_stream(device);
	for (unsigned i = 0; i < COUNT; i++)
		if (i != 1)
			SHOW(cuMemFree(p[i]));
	return 0;
}
