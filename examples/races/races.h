/*
 * What the programs with planted races share: each runs its kernel, and prints a checksum of what came
 * of it. They look right, as work lies between what is in the wrong order.
 */
#ifndef EXAMPLES_RACES_H
#define EXAMPLES_RACES_H

#include "common.h"

#define THREADS 256
#define ROUNDS 16

/* Some microseconds in which nothing touches memory; nothing is moved to the other side of it. */
static __device__ __forceinline__ unsigned work(unsigned x)
{
	asm volatile("" : "+r"(x)::"memory");
#pragma unroll 1
	for (int i = 0; i < 3000; i++)
		x = x * 1664525u + 1013904223u;
	asm volatile("" : "+r"(x)::"memory");
	return x;
}

/* launch: of the kernel that has the barrier, or of the one that has not. */
static int run(int argc, char **argv, const char *name, void (*launch)(unsigned *out, const unsigned *in, unsigned blocks, bool fixed))
{
	struct options o = read_options(argc, argv, options{16384, 2, 1, NO_STEP, false, false, true});
	unsigned blocks = (unsigned)BLOCKS(o.size) / 4 * 4 + 4;
	size_t count = (size_t)blocks * THREADS;
	unsigned *in = (unsigned *)malloc(count * sizeof(*in)), *out = (unsigned *)malloc(count * sizeof(*out));
	unsigned *device_in, *device_out;
	uint32_t state = (uint32_t)o.seed;

	for (size_t i = 0; i < count; i++)
		in[i] = (unsigned)(next_random(&state) * 16777216.0f);
	CHECK(cudaMalloc(&device_in, count * sizeof(*in)));
	CHECK(cudaMalloc(&device_out, count * sizeof(*out)));
	CHECK(cudaMemcpy(device_in, in, count * sizeof(*in), cudaMemcpyHostToDevice));
	CHECK(cudaMemset(device_out, 0, count * sizeof(*out)));
	for (long step = 0; step < o.steps; step++) {
		launch(device_out, device_in, blocks, o.fixed);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
	}
	CHECK(cudaMemcpy(out, device_out, count * sizeof(*out), cudaMemcpyDeviceToHost));
	printf("%s: %ld steps, %016llx\n", name, o.steps, (unsigned long long)checksum(out, count * sizeof(*out)));
	CHECK(cudaFree(device_in));
	CHECK(cudaFree(device_out));
	free(in);
	free(out);
	return 0;
}

#endif
