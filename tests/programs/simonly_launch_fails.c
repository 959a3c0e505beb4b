/* TT_SIM_FAULT=launch:2: the second launch fails, and its context is lost until it is destroyed. */
#include "program.h"

int main(void)
{
	unsigned n = 100, value = 5, other = 6;
	CUdeviceptr q;
	CUstream stream;
	CUdevice device = start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	CUdeviceptr p = allocate(400);

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	SHOW(launch(fill, n, stream, PARAMS(&p, &n, &value)));
	SHOW(cuStreamSynchronize(stream));
	print_words("after the first", p, 2);
	SHOW(launch(fill, n, stream, PARAMS(&p, &n, &other)));
	SHOW(cuMemsetD8Async(p, 0, 400, stream));
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuMemAlloc(&q, 100));
	SHOW(launch(fill, n, stream, PARAMS(&p, &n, &value)));
	SHOW(cuMemFree(p));
	SHOW(cuDevicePrimaryCtxReset(device));
	start();
	fill = get_kernel(load_kernels(), "fill");
	p = allocate(400);
	SHOW(launch(fill, n, NULL, PARAMS(&p, &n, &value)));
	SHOW(cuCtxSynchronize());
	print_words("a new context", p, 2);
	return 0;
}
