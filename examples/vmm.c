/*
 * A buffer that grows in place: addresses for all of it are reserved once, and every step maps
 * one more chunk of physical memory behind the last. At the end the first chunk is mapped a
 * second time elsewhere, and read from there.
 */
#include "common.h"

EMBED(ptx, "vmm.ptx");

static void map_chunk(CUdeviceptr where, size_t chunk, CUmemGenericAllocationHandle memory, CUdevice device)
{
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	CHECK(cuMemMap(where, chunk, 0, memory, 0));
	CHECK(cuMemSetAccess(where, chunk, &access, 1));
}

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, (struct options){.size = 8192, .steps = 3, .seed = 1});
	CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	size_t chunk, bytes = (size_t)o.size * sizeof(float);
	int n = (int)o.size;
	CUmodule module;
	CUdeviceptr values, again;

	CUdevice device = start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction extend = kernel(module, "extend");
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = device;
	CHECK(cuMemGetAllocationGranularity(&chunk, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	if (bytes > chunk) {
		fprintf(stderr, "%s: --size: at most %zu\n", argv[0], chunk / sizeof(float));
		return 2;
	}
	size_t chunks = (size_t)o.steps + 1;
	CUmemGenericAllocationHandle *memory = calloc(chunks, sizeof(*memory));
	CHECK(cuMemAddressReserve(&values, chunks * chunk, 0, 0, 0));

	float *first = random_floats(o.size, o.seed), *last = malloc(bytes);
	for (size_t i = 0; i < chunks; i++) {
		long long begin = (long long)(i * chunk / sizeof(float));
		int lag = (int)(chunk / sizeof(float));

		CHECK(cuMemCreate(&memory[i], chunk, &props, 0));
		map_chunk(values + i * chunk, chunk, memory[i], device);
		CHECK(cuMemsetD32(values + i * chunk, 0, chunk / sizeof(float)));
		if (i == 0)
			CHECK(cuMemcpyHtoD(values, first, bytes));
		else
			launch(extend, o.size, NULL, PARAMS(&values, &begin, &n, &lag));
		CHECK(cuCtxSynchronize());
	}
	CHECK(cuMemcpyDtoH(last, values + (chunks - 1) * chunk, bytes));

	CHECK(cuMemAddressReserve(&again, chunk, 0, 0, 0));
	map_chunk(again, chunk, memory[0], device);
	float *copy = malloc(bytes);
	CHECK(cuMemcpyDtoH(copy, again, bytes));
	printf("vmm: %zu chunks, checksum %016llx, first chunk %s\n", chunks,
	       (unsigned long long)checksum(last, bytes), memcmp(copy, first, bytes) ? "DIFFERS" : "the same");

	CHECK(cuMemUnmap(again, chunk));
	CHECK(cuMemAddressFree(again, chunk));
	for (size_t i = 0; i < chunks; i++) {
		CHECK(cuMemUnmap(values + i * chunk, chunk));
		CHECK(cuMemRelease(memory[i]));
	}
	CHECK(cuMemAddressFree(values, chunks * chunk));
	CHECK(cuDevicePrimaryCtxRelease(device));
	free(memory);
	free(first);
	free(last);
	free(copy);
	return 0;
}
