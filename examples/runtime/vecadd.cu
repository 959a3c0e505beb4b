/* The runtime-API version of ../vecadd.c: the same work, the same output. */
#include "common.h"
#include "../vecadd.cu"

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, options{65536, 8, 1, NO_STEP, false, true, false});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *a = random_floats(o.size, o.seed), *sum = random_floats(o.size, o.seed + 1);
	float *result = (float *)malloc(bytes);
	float *device_a, *device_sum;

	CHECK(cudaMalloc(&device_a, bytes));
	CHECK(cudaMalloc(&device_sum, bytes));
	CHECK(cudaMemcpy(device_a, a, bytes, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(device_sum, sum, bytes, cudaMemcpyHostToDevice));

	for (long step = 0; step < o.steps; step++) {
		if (step == o.perturb) {
			long element = o.size / 2;
			a[element] += 1.0f;
			CHECK(cudaMemcpy(device_a + element, &a[element], sizeof(float), cudaMemcpyHostToDevice));
		}
		add<<<BLOCKS(o.size), 256>>>(device_a, device_sum, device_sum, (int)o.size);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		for (long i = 0; i < o.size; i++)
			sum[i] = a[i] + sum[i];
	}

	CHECK(cudaMemcpy(result, device_sum, bytes, cudaMemcpyDeviceToHost));
	bool right = !memcmp(result, sum, bytes);
	printf("vecadd: %ld elements, %ld steps, checksum %016llx, %s\n", o.size, o.steps,
	       (unsigned long long)checksum(result, bytes), right ? "right" : "WRONG");
	CHECK(cudaFree(device_a));
	CHECK(cudaFree(device_sum));
	free(a);
	free(sum);
	free(result);
	return right ? 0 : 1;
}
