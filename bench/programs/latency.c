/*
 * What a launch costs the host: an empty kernel, launched and timed call by call, then in batches
 * without a clock between. Waits for the device between batches, outside of what is timed, so
 * that no launch waits for room in the queue.
 */
#include "program.h"

EMBED(ptx, "work.ptx");

int main(int argc, char **argv)
{
	uint64_t launches = number(argc, argv, "--launches", 200000), batch = number(argc, argv, "--batch", 256);
	uint64_t batches = launches / batch + 1, at = 0, began;
	uint64_t *calls = room(batches * batch), *whole = room(batches);
	CUmodule module;
	CUstream stream;
	CUdeviceptr p;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuMemAlloc(&p, 1 << 20));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUfunction f = kernel(module, "nothing");
	void **params = PARAMS(&p);

	for (uint64_t i = 0; i < 4 * batch; i++)
		CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
	CHECK(cuStreamSynchronize(stream));
	for (uint64_t b = 0; b < batches; b++) {
		for (uint64_t i = 0; i < batch; i++) {
			began = now();
			CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
			calls[at++] = now() - began;
		}
		CHECK(cuStreamSynchronize(stream));
	}
	for (uint64_t b = 0; b < batches; b++) {
		began = now();
		for (uint64_t i = 0; i < batch; i++)
			CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		whole[b] = now() - began;
		CHECK(cuStreamSynchronize(stream));
	}
	qsort(calls, at, sizeof(*calls), compare);
	qsort(whole, batches, sizeof(*whole), compare);
	printf("{\"launches\": %llu, \"median_ns\": %llu, \"p99_ns\": %llu, \"p999_ns\": %llu, \"loop_ns\": %.2f}\n",
	       (unsigned long long)at, (unsigned long long)calls[at / 2], (unsigned long long)calls[at * 99 / 100],
	       (unsigned long long)calls[at * 999 / 1000], (double)whole[batches / 2] / (double)batch);
	return 0;
}
