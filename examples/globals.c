/*
 * A kernel that works on variables of its module: the host finds them by name, sets one of them
 * every step and reads the others at the end.
 */
#include "common.h"

EMBED(ptx, "globals.ptx");

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, (struct options){.size = 10000, .steps = 4, .seed = 1});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *values = random_floats(o.size, o.seed);
	unsigned histogram[16];
	unsigned long long seen;
	int n = (int)o.size;
	CUmodule module;
	CUdeviceptr device_values, device_histogram, device_seen, device_limits;
	size_t histogram_bytes, seen_bytes, limits_bytes;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction count = kernel(module, "count");
	CHECK(cuModuleGetGlobal(&device_histogram, &histogram_bytes, module, "histogram"));
	CHECK(cuModuleGetGlobal(&device_seen, &seen_bytes, module, "seen"));
	CHECK(cuModuleGetGlobal(&device_limits, &limits_bytes, module, "limits"));
	printf("globals: sizes %zu %zu %zu\n", histogram_bytes, seen_bytes, limits_bytes);
	CHECK(cuMemAlloc(&device_values, bytes));
	CHECK(cuMemcpyHtoD(device_values, values, bytes));

	for (long step = 0; step < o.steps; step++) {
		float limits[2] = {0.0f, 1.0f / (float)(step + 1)};

		CHECK(cuMemcpyHtoD(device_limits, limits, sizeof(limits)));
		launch(count, o.size, NULL, PARAMS(&device_values, &n));
		CHECK(cuCtxSynchronize());
	}

	CHECK(cuMemcpyDtoH(histogram, device_histogram, sizeof(histogram)));
	CHECK(cuMemcpyDtoH(&seen, device_seen, sizeof(seen)));
	printf("globals: seen %llu, histogram", seen);
	for (int i = 0; i < 16; i++)
		printf(" %u", histogram[i]);
	printf("\n");
	CHECK(cuMemFree(device_values));
	CHECK(cuModuleUnload(module));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(values);
	return 0;
}
