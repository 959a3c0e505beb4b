/* Invalid launches: each is refused, and the context stays usable. */
#include "program.h"

int main(void)
{
	unsigned n = 64, value = 51;
	CUstream stream;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	CUdeviceptr p = allocate(n * 4);
	void **params = PARAMS(&p, &n, &value);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	SHOW(cuLaunchKernel(fill, 0, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(fill, 1, 0, 1, 64, 1, 1, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(fill, 1, 1, 1, 0, 1, 1, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(fill, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(fill, 1, 1, 1, 32, 32, 2, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(fill, 1, 65536, 1, 64, 1, 1, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(fill, 1, 1, 65536, 64, 1, 1, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 65, 0, stream, params, NULL));
	SHOW(cuLaunchKernel(NULL, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL));
	SHOW(cuCtxSynchronize());
	SHOW(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	print_device("filled", p, n * 4);
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	return 0;
}
