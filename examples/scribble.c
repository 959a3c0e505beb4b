/*
 * Four buffers carved out of one allocation, and a kernel that writes past the end of the first
 * into the second. Everything stays inside the allocation, so nothing faults and no tool that
 * checks allocation bounds complains: the masses, which no kernel should write, just change.
 * --fixed runs the kernel with its bounds check. (A size that is a multiple of 256 hides the bug.)
 */
#include "common.h"

EMBED(ptx, "scribble.ptx");

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv,
		(struct options){.size = 10000, .steps = 5, .seed = 1, .can_fix = true});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *initial = random_floats(4 * o.size, o.seed), *final = malloc(4 * bytes);
	float dt = 0.125f;
	int n = (int)o.size;
	CUmodule module;
	CUdeviceptr all;

	if (o.size < 256) /* the overrun is to stay inside the neighbour */
		usage(argv[0], &o, 2);
	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction push = kernel(module, "push");
	CUfunction advance = kernel(module, o.fixed ? "advance" : "advance_unchecked");
	CHECK(cuMemAlloc(&all, 4 * bytes));
	CHECK(cuMemcpyHtoD(all, initial, 4 * bytes));
	CUdeviceptr position = all, mass = all + bytes, velocity = all + 2 * bytes, force = all + 3 * bytes;

	for (long step = 0; step < o.steps; step++) {
		launch(push, o.size, NULL, PARAMS(&velocity, &force, &mass, &n, &dt));
		launch(advance, o.size, NULL, PARAMS(&position, &velocity, &n, &dt));
		CHECK(cuCtxSynchronize());
	}

	CHECK(cuMemcpyDtoH(final, all, 4 * bytes));
	long changed = 0;
	for (long i = o.size; i < 2 * o.size; i++)
		changed += memcmp(&final[i], &initial[i], sizeof(float)) != 0;
	printf("scribble: %ld particles, %ld steps, positions %016llx, masses %016llx, %ld masses changed\n",
	       o.size, o.steps, (unsigned long long)checksum(final, bytes),
	       (unsigned long long)checksum(final + o.size, bytes), changed);
	CHECK(cuMemFree(all));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(initial);
	free(final);
	return 0;
}
