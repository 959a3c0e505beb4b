/* Memory of every kind is freed right after the program has waited for the work on it. */
#include "program.h"

int main(void)
{
	CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemGenericAllocationHandle memory;
	unsigned n = 50000;
	CUdeviceptr p, range;
	CUstream stream;
	size_t size;

	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = start();
	CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUfunction mix = get_kernel(load_kernels(), "mix");
	OK(cuMemGetAllocationGranularity(&size, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	OK(cuMemAddressReserve(&range, size, 0, 0, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned round = 0; round < 5; round++) {
		p = allocate(n * 4);
		OK(cuMemsetD32Async(p, round, n, stream));
		OK(launch(mix, n, stream, PARAMS(&p, &n, &round)));
		OK(cuStreamSynchronize(stream));
		SHOW(cuMemFree(p));

		OK(cuMemAllocAsync(&p, n * 4, stream));
		OK(cuMemsetD32Async(p, round, n, stream));
		OK(launch(mix, n, stream, PARAMS(&p, &n, &round)));
		OK(cuStreamSynchronize(stream));
		SHOW(cuMemFreeAsync(p, stream));

		OK(cuMemCreate(&memory, size, &props, 0));
		OK(cuMemMap(range, size, 0, memory, 0));
		OK(cuMemRelease(memory));
		OK(cuMemSetAccess(range, size, &access, 1));
		OK(cuMemsetD32Async(range, round, n, stream));
		OK(launch(mix, n, stream, PARAMS(&range, &n, &round)));
		OK(cuStreamSynchronize(stream));
		SHOW(cuMemUnmap(range, size));

		OK(cuMemAllocManaged(&p, n * 4, CU_MEM_ATTACH_GLOBAL));
		OK(cuMemsetD32Async(p, round, n, stream));
		OK(launch(mix, n, stream, PARAMS(&p, &n, &round)));
		OK(cuStreamSynchronize(stream));
		printf("managed %u\n", *(unsigned *)(uintptr_t)p);
		SHOW(cuMemFree(p));
	}
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuStreamDestroy(stream));
	SHOW(cuMemAddressFree(range, size));
	SHOW(cuDevicePrimaryCtxRelease(0));
	return 0;
}
