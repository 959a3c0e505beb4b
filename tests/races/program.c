/* Launches kernels of kernels.cu, each with new memory: `program [CUBIN] KERNEL…`. */
#include "common.h"

#define THREADS 128
#define GRID 4
#define COUNT ((size_t)GRID * THREADS)
#define BYTES (COUNT * sizeof(unsigned))

EMBED(ptx, "kernels.ptx");

/* A map of memory with a line for each block. */
static void encode(CUtensorMap *map, CUdeviceptr at)
{
	static const cuuint64_t size[] = {THREADS, GRID}, stride[] = {THREADS * sizeof(unsigned)};
	static const cuuint32_t box[] = {THREADS, 1}, step[] = {1, 1};

	CHECK(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, (void *)(uintptr_t)at, size, stride, box, step,
				     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
				     CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

static void run(CUfunction f)
{
	unsigned data[COUNT];
	CUtensorMap map[2];
	CUdeviceptr in, out, maps;

	for (size_t i = 0; i < COUNT; i++)
		data[i] = (unsigned)i * 2654435761u >> 8;
	CHECK(cuMemAlloc(&in, BYTES));
	CHECK(cuMemAlloc(&out, 2 * BYTES));
	CHECK(cuMemsetD8(out, 0, 2 * BYTES));
	CHECK(cuMemcpyHtoD(in, data, BYTES));
	CHECK(cuMemAlloc(&maps, sizeof(map)));
	encode(&map[0], in);
	encode(&map[1], out);
	CHECK(cuMemcpyHtoD(maps, map, sizeof(map)));
	CHECK(cuLaunchKernel(f, GRID, 1, 1, THREADS, 1, 1, 0, NULL, PARAMS(&out, &in, &maps), NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemFree(maps));
	CHECK(cuMemFree(out));
	CHECK(cuMemFree(in));
}

int main(int argc, char **argv)
{
	bool built = argc > 1 && strchr(argv[1], '.');
	CUmodule module;

	start_device();
	CHECK(built ? cuModuleLoad(&module, argv[1]) : cuModuleLoadData(&module, ptx));
	for (int i = 1 + built; i < argc; i++)
		run(kernel(module, argv[i]));
	return 0;
}
