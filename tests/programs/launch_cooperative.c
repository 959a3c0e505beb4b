/* Cooperative launches, and one too large to be resident at once. */
#include "program.h"

int main(void)
{
	unsigned n = 640, value = 41;
	CUstream stream;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	CUdeviceptr p = allocate(n * 4);
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	SHOW(cuLaunchCooperativeKernel(fill, 10, 1, 1, 64, 1, 1, 0, stream, PARAMS(&p, &n, &value)));
	SHOW(cuStreamSynchronize(stream));
	print_device("filled", p, n * 4);
	SHOW(cuLaunchCooperativeKernel(fill, 1 << 20, 1, 1, 1024, 1, 1, 0, stream, PARAMS(&p, &n, &value)));
	SHOW(cuStreamSynchronize(stream));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	return 0;
}
