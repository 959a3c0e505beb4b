/*
 * A reduction in shared memory that forgets a barrier: its sums may be wrong, and may differ from
 * step to step and from run to run. --fixed runs the same reduction with the barrier.
 */
#include "common.h"

#define THREADS 256

EMBED(ptx, "race.ptx");

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv,
		(struct options){.size = 16384, .steps = 4, .seed = 1, .can_fix = true});
	unsigned blocks = (unsigned)((o.size + THREADS - 1) / THREADS);
	size_t count = (size_t)blocks * THREADS;
	unsigned *in = calloc(count, sizeof(*in)), *sums = malloc(blocks * sizeof(*sums));
	uint32_t random = (uint32_t)o.seed;
	unsigned expected = 0;
	long wrong = 0;
	CUmodule module;
	CUdeviceptr device_in, device_sums;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction reduce = kernel(module, o.fixed ? "block_sums" : "block_sums_racy");
	for (long i = 0; i < o.size; i++)
		expected += in[i] = (unsigned)(next_random(&random) * 1000.0f);
	CHECK(cuMemAlloc(&device_in, count * sizeof(*in)));
	CHECK(cuMemAlloc(&device_sums, blocks * sizeof(*sums)));
	CHECK(cuMemcpyHtoD(device_in, in, count * sizeof(*in)));

	for (long step = 0; step < o.steps; step++) {
		unsigned total = 0;

		CHECK(cuMemsetD32(device_sums, 0, blocks));
		launch(reduce, o.size, NULL, PARAMS(&device_in, &device_sums));
		CHECK(cuCtxSynchronize());
		CHECK(cuMemcpyDtoH(sums, device_sums, blocks * sizeof(*sums)));
		for (unsigned b = 0; b < blocks; b++)
			total += sums[b];
		wrong += total != expected;
		printf("step %ld: sum %u\n", step, total);
	}
	printf("race: expected %u, %ld of %ld steps wrong\n", expected, wrong, o.steps);
	CHECK(cuMemFree(device_in));
	CHECK(cuMemFree(device_sums));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(in);
	free(sums);
	return 0;
}
