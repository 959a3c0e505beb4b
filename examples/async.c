/*
 * Stream-ordered memory: every step takes its scratch buffers from a stream, by turns from the
 * device's default pool and from a pool of the program's own, and gives them back in the stream.
 */
#include "common.h"

EMBED(ptx, "async.ptx");

static CUmemoryPool create_pool(CUdevice device)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	cuuint64_t keep = UINT64_MAX; /* memory given back stays in the pool */
	CUmemoryPool pool;

	CHECK(cuMemPoolCreate(&pool, &props));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	return pool;
}

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, (struct options){.size = 16384, .steps = 6, .seed = 1});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *in = random_floats(o.size, o.seed), *total = malloc(bytes);
	int n = (int)o.size;
	CUmodule module;
	CUstream stream;
	CUdeviceptr device_in, device_total, scratch;

	CUdevice device = start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction shift = kernel(module, "shift"), accumulate = kernel(module, "accumulate");
	CUmemoryPool pool = create_pool(device);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAllocAsync(&device_in, bytes, stream));
	CHECK(cuMemAllocAsync(&device_total, bytes, stream));
	CHECK(cuMemcpyHtoDAsync(device_in, in, bytes, stream));
	CHECK(cuMemsetD8Async(device_total, 0, bytes, stream));

	for (long step = 0; step < o.steps; step++) {
		float bias = 0.5f * (float)step;

		if (step % 2)
			CHECK(cuMemAllocFromPoolAsync(&scratch, bytes, pool, stream));
		else
			CHECK(cuMemAllocAsync(&scratch, bytes, stream));
		CHECK(cuMemsetD32Async(scratch, 0x3f800000, (size_t)o.size, stream)); /* 1.0f */
		launch(shift, o.size, stream, PARAMS(&device_in, &scratch, &n, &bias));
		launch(accumulate, o.size, stream, PARAMS(&scratch, &device_total, &n));
		CHECK(cuMemFreeAsync(scratch, stream));
		CHECK(cuStreamSynchronize(stream));
	}

	CHECK(cuMemcpyDtoHAsync(total, device_total, bytes, stream));
	CHECK(cuMemFreeAsync(device_in, stream));
	CHECK(cuMemFreeAsync(device_total, stream));
	CHECK(cuStreamSynchronize(stream));
	printf("async: %ld elements, %ld steps, checksum %016llx\n", o.size, o.steps,
	       (unsigned long long)checksum(total, bytes));
	CHECK(cuStreamDestroy(stream));
	CHECK(cuMemPoolDestroy(pool));
	CHECK(cuDevicePrimaryCtxRelease(device));
	free(in);
	free(total);
	return 0;
}
