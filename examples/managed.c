/*
 * Managed memory: host and kernels work on the same pointers, turn by turn. Every step the host
 * writes one value, and the device smooths the ring.
 */
#include "common.h"

EMBED(ptx, "managed.ptx");

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, (struct options){.size = 20000, .steps = 5, .seed = 1});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *initial = random_floats(o.size, o.seed);
	int n = (int)o.size;
	CUmodule module;
	CUdeviceptr in, out;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction smooth = kernel(module, "smooth");
	CHECK(cuMemAllocManaged(&in, bytes, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemAllocManaged(&out, bytes, CU_MEM_ATTACH_GLOBAL));
	memcpy((void *)(uintptr_t)in, initial, bytes);
	memset((void *)(uintptr_t)out, 0, bytes);

	for (long step = 0; step < o.steps; step++) {
		CUdeviceptr swap = in;

		((float *)(uintptr_t)in)[step % o.size] = 100.0f;
		launch(smooth, o.size, NULL, PARAMS(&in, &out, &n));
		CHECK(cuCtxSynchronize());
		in = out;
		out = swap;
	}

	printf("managed: %ld elements, %ld steps, checksum %016llx\n", o.size, o.steps,
	       (unsigned long long)checksum((void *)(uintptr_t)in, bytes));
	CHECK(cuMemFree(in));
	CHECK(cuMemFree(out));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(initial);
	return 0;
}
