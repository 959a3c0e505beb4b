/* Launches kernels of kernels.cu, each with new memory: `program KERNEL…`. */
#include "common.h"

#define THREADS 128
#define GRID 4
#define COUNT ((size_t)GRID * THREADS)
#define BYTES (COUNT * sizeof(unsigned))

EMBED(ptx, "kernels.ptx");

static void run(CUfunction f)
{
	unsigned data[COUNT];
	CUdeviceptr in, out;

	for (size_t i = 0; i < COUNT; i++)
		data[i] = (unsigned)i * 2654435761u >> 8;
	CHECK(cuMemAlloc(&in, BYTES));
	CHECK(cuMemAlloc(&out, 2 * BYTES));
	CHECK(cuMemsetD8(out, 0, 2 * BYTES));
	CHECK(cuMemcpyHtoD(in, data, BYTES));
	CHECK(cuLaunchKernel(f, GRID, 1, 1, THREADS, 1, 1, 0, NULL, PARAMS(&out, &in), NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemFree(out));
	CHECK(cuMemFree(in));
}

int main(int argc, char **argv)
{
	CUmodule module;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	for (int i = 1; i < argc; i++)
		run(kernel(module, argv[i]));
	return 0;
}
