/*
 * A kernel that reads and writes much, launched in steps, each of which ends with a wait.
 *
 * --kernel 0: multiplies matrices, 1: relaxes a grid. --size: rows. --launches: of a step.
 * --others: number of other allocations, of 64 KiB. Prints {"step_ns": […]}; the first steps are not
 * timed.
 */
#include "program.h"

EMBED(ptx, "work.ptx");

#define WARM 3

int main(int argc, char **argv)
{
	uint64_t steps = number(argc, argv, "--steps", 20), launches = number(argc, argv, "--launches", 1), began;
	unsigned n = (unsigned)number(argc, argv, "--size", 256), blocks = (unsigned)(((uint64_t)n * n + 255) / 256);
	const char *name = number(argc, argv, "--kernel", 0) ? "relax" : "multiply";
	uint64_t *times = room(steps), others = number(argc, argv, "--others", 0);
	CUdeviceptr a, b, c, other;
	CUdeviceptr *arrays[] = {&a, &b, &c};
	CUmodule module;
	CUstream stream;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUfunction f = kernel(module, name);
	for (int i = 0; i < 3; i++) {
		CHECK(cuMemAlloc(arrays[i], (size_t)n * n * sizeof(float)));
		CHECK(cuMemsetD32Async(*arrays[i], 0x3f000000u + (unsigned)i, (size_t)n * n, stream));
	}
	for (uint64_t i = 0; i < others; i++) {
		CHECK(cuMemAlloc(&other, 65536));
		CHECK(cuMemsetD32Async(other, (unsigned)i, 16384, stream));
	}
	for (uint64_t step = 0; step < WARM + steps; step++) {
		began = now();
		for (uint64_t i = 0; i < launches; i++) {
			CHECK(cuLaunchKernel(f, blocks, 1, 1, 256, 1, 1, 0, stream, PARAMS(&a, &b, &c, &n), NULL));
			CUdeviceptr last = a;
			a = b;
			b = last;
		}
		CHECK(cuStreamSynchronize(stream));
		if (step >= WARM)
			times[step - WARM] = now() - began;
	}
	printf("{");
	print_list("step_ns", times, steps);
	puts("}");
	return 0;
}
