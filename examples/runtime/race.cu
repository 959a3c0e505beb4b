/* The runtime-API version of ../race.c: the same work; the racy sums may differ, as there. */
#include "common.h"
#include "../race.cu"

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, options{16384, 4, 1, NO_STEP, false, false, true});
	unsigned blocks = (unsigned)BLOCKS(o.size);
	size_t count = (size_t)blocks * THREADS;
	unsigned *in = (unsigned *)calloc(count, sizeof(*in)), *sums = (unsigned *)malloc(blocks * sizeof(*sums));
	unsigned *device_in, *device_sums, expected = 0;
	uint32_t random = (uint32_t)o.seed;
	long wrong = 0;

	for (long i = 0; i < o.size; i++)
		expected += in[i] = (unsigned)(next_random(&random) * 1000.0f);
	CHECK(cudaMalloc(&device_in, count * sizeof(*in)));
	CHECK(cudaMalloc(&device_sums, blocks * sizeof(*sums)));
	CHECK(cudaMemcpy(device_in, in, count * sizeof(*in), cudaMemcpyHostToDevice));

	for (long step = 0; step < o.steps; step++) {
		unsigned total = 0;

		CHECK(cudaMemset(device_sums, 0, blocks * sizeof(*sums)));
		if (o.fixed)
			block_sums<<<blocks, THREADS>>>(device_in, device_sums);
		else
			block_sums_racy<<<blocks, THREADS>>>(device_in, device_sums);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		CHECK(cudaMemcpy(sums, device_sums, blocks * sizeof(*sums), cudaMemcpyDeviceToHost));
		for (unsigned b = 0; b < blocks; b++)
			total += sums[b];
		wrong += total != expected;
		printf("step %ld: sum %u\n", step, total);
	}
	printf("race: expected %u, %ld of %ld steps wrong\n", expected, wrong, o.steps);
	CHECK(cudaFree(device_in));
	CHECK(cudaFree(device_sums));
	free(in);
	free(sums);
	return 0;
}
