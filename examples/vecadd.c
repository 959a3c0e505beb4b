/*
 * Adds a vector to a running sum, once each step, and checks the result on the host.
 * --perturb STEP changes one input element just before that step: a second run to compare with.
 */
#include "common.h"

EMBED(ptx, "vecadd.ptx");

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv,
		(struct options){.size = 65536, .steps = 8, .seed = 1, .can_perturb = true});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *a = random_floats(o.size, o.seed), *sum = random_floats(o.size, o.seed + 1);
	float *result = malloc(bytes);
	int n = (int)o.size;
	CUmodule module;
	CUdeviceptr device_a, device_sum;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction add = kernel(module, "add");
	CHECK(cuMemAlloc(&device_a, bytes));
	CHECK(cuMemAlloc(&device_sum, bytes));
	CHECK(cuMemcpyHtoD(device_a, a, bytes));
	CHECK(cuMemcpyHtoD(device_sum, sum, bytes));

	for (long step = 0; step < o.steps; step++) {
		if (step == o.perturb) {
			long element = o.size / 2;
			a[element] += 1.0f;
			CHECK(cuMemcpyHtoD(device_a + (size_t)element * sizeof(float), &a[element], sizeof(float)));
		}
		launch(add, o.size, NULL, PARAMS(&device_a, &device_sum, &device_sum, &n));
		CHECK(cuCtxSynchronize());
		for (long i = 0; i < o.size; i++)
			sum[i] = a[i] + sum[i];
	}

	CHECK(cuMemcpyDtoH(result, device_sum, bytes));
	bool right = !memcmp(result, sum, bytes);
	printf("vecadd: %ld elements, %ld steps, checksum %016llx, %s\n", o.size, o.steps,
	       (unsigned long long)checksum(result, bytes), right ? "right" : "WRONG");
	CHECK(cuMemFree(device_a));
	CHECK(cuMemFree(device_sum));
	CHECK(cuModuleUnload(module));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(a);
	free(sum);
	free(result);
	return right ? 0 : 1;
}
