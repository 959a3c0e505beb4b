/* The legacy default stream waits for blocking streams, and they wait for it. */
#include "program.h"

int main(void)
{
	unsigned n = 20000, rounds = 500, value = 1;
	CUstream first, second;

	start();
	CUmodule module = load_kernels();
	CUfunction mix = get_kernel(module, "mix"), add = get_kernel(module, "add");
	CUdeviceptr p = allocate(n * 4);
	OK(cuMemsetD8(p, 0, n * 4));
	OK(cuStreamCreate(&first, CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&second, CU_STREAM_DEFAULT));
	for (unsigned i = 0; i < 3; i++) {
		OK(launch(mix, n, first, PARAMS(&p, &n, &rounds)));
		OK(launch(add, n, NULL, PARAMS(&p, &n, &value)));
		OK(launch(mix, n, second, PARAMS(&p, &n, &rounds)));
		OK(cuMemsetD32Async(p, i, 1, CU_STREAM_LEGACY));
	}
	OK(launch(mix, n, first, PARAMS(&p, &n, &rounds)));
	/* A copy through the default stream comes after all of it. */
	print_device("result", p, n * 4);
	OK(cuStreamDestroy(first));
	OK(cuStreamDestroy(second));
	OK(cuMemFree(p));
	return 0;
}
