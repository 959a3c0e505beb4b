/* Launches with attributes. */
#include "program.h"

int main(void)
{
	unsigned n = 1000, value = 31;
	CUstream stream;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	CUdeviceptr p = allocate(n * 4);
	OK(cuMemsetD8(p, 0, n * 4));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSynchronize());
	CUlaunchConfig config = {
		.gridDimX = 16, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.hStream = stream,
	};
	SHOW(cuLaunchKernelEx(&config, fill, PARAMS(&p, &n, &value), NULL));
	SHOW(cuStreamSynchronize(stream));
	print_device("plain", p, n * 4);

	CUlaunchAttribute attributes[] = {
		{.id = CU_LAUNCH_ATTRIBUTE_IGNORE},
		{.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1},
		{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 0},
	};
	config.attrs = attributes;
	config.numAttrs = 3;
	value = 32;
	SHOW(cuLaunchKernelEx(&config, fill, PARAMS(&p, &n, &value), NULL));
	SHOW(cuStreamSynchronize(stream));
	print_device("with attributes", p, n * 4);

	config.gridDimX = 0;
	SHOW(cuLaunchKernelEx(&config, fill, PARAMS(&p, &n, &value), NULL));
	SHOW(cuLaunchKernelEx(NULL, fill, PARAMS(&p, &n, &value), NULL));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	return 0;
}
