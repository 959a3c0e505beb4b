/*
 * One stream makes values, another uses them, and nothing lets the second wait for the first: it
 * looks right for as long as the first happens to be done in time. --fixed waits for the event.
 */
#include "common.h"

#include <unistd.h>

EMBED(ptx, "handoff.ptx");

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv,
		(struct options){.size = 20000, .steps = 6, .seed = 1, .can_fix = true});
	unsigned n = (unsigned)o.size, *sums = malloc(n * sizeof(*sums));
	CUdeviceptr values, device_sums;
	CUstream maker, user;
	CUmodule module;
	CUevent made;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction make = kernel(module, "make_values"), use = kernel(module, "use_values");
	CHECK(cuMemAlloc(&values, n * sizeof(*sums)));
	CHECK(cuMemAlloc(&device_sums, n * sizeof(*sums)));
	CHECK(cuMemsetD32(values, 0, n));
	CHECK(cuMemsetD32(device_sums, (unsigned)o.seed, n));
	CHECK(cuStreamCreate(&maker, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&user, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
	CHECK(cuCtxSynchronize());

	for (unsigned step = 0; step < o.steps; step++) {
		launch(make, n, maker, PARAMS(&values, &n, &step));
		CHECK(cuEventRecord(made, maker));
		usleep(200); /* the host has something else to do */
		if (o.fixed)
			CHECK(cuStreamWaitEvent(user, made, 0));
		launch(use, n, user, PARAMS(&values, &device_sums, &n));
		CHECK(cuCtxSynchronize());
	}

	CHECK(cuMemcpyDtoH(sums, device_sums, n * sizeof(*sums)));
	printf("handoff: %ld steps, %016llx\n", o.steps, (unsigned long long)checksum(sums, n * sizeof(*sums)));
	CHECK(cuEventDestroy(made));
	CHECK(cuStreamDestroy(maker));
	CHECK(cuStreamDestroy(user));
	CHECK(cuMemFree(values));
	CHECK(cuMemFree(device_sums));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(sums);
	return 0;
}
