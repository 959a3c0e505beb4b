/* Memory pools: the default pool of the device, one created by the program, and their attributes. */
#include "program.h"

int main(void)
{
	CUmemoryPool standard, current, own;
	CUdeviceptr p, q;
	CUstream stream;
	cuuint64_t used, threshold = 1 << 20;
	int reuse;

	CUdevice device = start();
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	SHOW(cuDeviceGetDefaultMemPool(&standard, device));
	SHOW(cuDeviceGetMemPool(&current, device));
	printf("the default pool is current %d\n", standard == current);
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	SHOW(cuMemPoolCreate(&own, &props));
	SHOW(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &reuse));
	printf("threshold %llu, reuse %d\n", (unsigned long long)threshold, reuse);
	SHOW(cuMemAllocFromPoolAsync(&p, 1000, own, stream));
	SHOW(cuMemAllocFromPoolAsync(&q, 100001, own, stream));
	SHOW(cuMemsetD8Async(p, 5, 1000, stream));
	SHOW(cuMemsetD8Async(q, 6, 100001, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("small", p, 1000);
	print_device("odd", q, 100001);
	SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	printf("in use at least what was asked for %d\n", used >= 101001);
	SHOW(cuMemFreeAsync(p, stream));
	SHOW(cuMemFreeAsync(q, stream));
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	printf("in use %llu\n", (unsigned long long)used);
	SHOW(cuMemPoolTrimTo(own, 0));
	SHOW(cuDeviceSetMemPool(device, own));
	SHOW(cuMemAllocAsync(&p, 4096, stream));
	SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	printf("in use %d\n", used >= 4096);
	SHOW(cuMemFreeAsync(p, stream));
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuMemPoolDestroy(own));
	SHOW(cuDeviceGetMemPool(&current, device));
	printf("the default pool is current %d\n", standard == current);
	OK(cuStreamDestroy(stream));
	return 0;
}
