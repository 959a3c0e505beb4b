/* The runtime-API version of ../scribble.c: the same work, the same output. */
#include "common.h"
#include "../scribble.cu"

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, options{10000, 5, 1, NO_STEP, false, false, true});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *initial = random_floats(4 * o.size, o.seed), *last = (float *)malloc(4 * bytes);
	float dt = 0.125f, *all;
	int n = (int)o.size;

	if (o.size < 256)
		usage(argv[0], &o, 2);
	CHECK(cudaMalloc(&all, 4 * bytes));
	CHECK(cudaMemcpy(all, initial, 4 * bytes, cudaMemcpyHostToDevice));
	float *position = all, *mass = all + n, *velocity = all + 2 * n, *force = all + 3 * n;

	for (long step = 0; step < o.steps; step++) {
		push<<<BLOCKS(n), 256>>>(velocity, force, mass, n, dt);
		CHECK(cudaGetLastError());
		if (o.fixed)
			advance<<<BLOCKS(n), 256>>>(position, velocity, n, dt);
		else
			advance_unchecked<<<BLOCKS(n), 256>>>(position, velocity, n, dt);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
	}

	CHECK(cudaMemcpy(last, all, 4 * bytes, cudaMemcpyDeviceToHost));
	long changed = 0;
	for (long i = o.size; i < 2 * o.size; i++)
		changed += memcmp(&last[i], &initial[i], sizeof(float)) != 0;
	printf("scribble: %ld particles, %ld steps, positions %016llx, masses %016llx, %ld masses changed\n",
	       o.size, o.steps, (unsigned long long)checksum(last, bytes),
	       (unsigned long long)checksum(last + o.size, bytes), changed);
	CHECK(cudaFree(all));
	free(initial);
	free(last);
	return 0;
}
