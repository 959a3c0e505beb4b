/*
 * A host function blocks a stream until the program continues. Meanwhile another stream works and the
 * program waits for it, repeatedly. Neither may wait for the other.
 */
#include "held_back.h"

int main(void)
{
	unsigned n = 5000, none = 0, *result;
	CUstream held, free_stream;

	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr a = allocate(n * 4), b = allocate(n * 4);
	OK(cuMemsetD8(a, 1, n * 4));
	OK(cuMemsetD8(b, 2, n * 4));
	OK(launch(mix, n, NULL, PARAMS(&b, &n, &none))); /* loads it: that may wait for all streams */
	OK(cuMemAllocHost((void **)&result, n * 4));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc(held, wait_for_go, NULL));
	OK(cuMemsetD8Async(a, 3, n * 4, held));
	for (unsigned round = 1; round < 4; round++) {
		OK(launch(mix, n, free_stream, PARAMS(&b, &n, &round)));
		OK(cuMemcpyDtoHAsync(result, b, n * 4, free_stream));
		OK(cuStreamSynchronize(free_stream));
		print_host("meanwhile", result, n * 4);
	}
	SHOW(cuStreamQuery(held));
	go = 1;
	SHOW(cuStreamSynchronize(held));
	print_device("let go", a, n * 4);
	return 0;
}
