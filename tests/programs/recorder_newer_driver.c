/*
 * Asks for calls of a future CUDA version, of which the driver has new forms, and uses these and today's
 * (TT_SIM_FAULT=version:14000).
 */
#include "program.h"

#include <dlfcn.h>

static void *call(const char *name, int version)
{
	void *p = NULL;

	OK(cuGetProcAddress(name, &p, version, 0, NULL));
	if (version == 14000) {
		Dl_info info;
		printf("%s at %d is the driver's %d\n", name, version,
		       dladdr(p, &info) && strstr(info.dli_fname, "libcuda") != NULL);
	}
	return p;
}

int main(void)
{
	unsigned n = 500, value = 7;
	CUdeviceptr p, q;

	start();
	__typeof__(&cuMemAlloc) old_alloc = call("cuMemAlloc", 13000), new_alloc = call("cuMemAlloc", 14000);
	__typeof__(&cuLaunchKernel) old_launch = call("cuLaunchKernel", 13000), new_launch = call("cuLaunchKernel", 14000);
	CUresult (*twice)(CUdeviceptr, CUdeviceptr, CUdeviceptr, size_t) = call("cuMemcpyTwice", 14000);
	CUmodule module = load_kernels();
	CUfunction fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	OK(old_alloc(&p, n * 4));
	OK(new_alloc(&q, n * 8));
	OK(new_launch(fill, 8, 1, 1, 64, 1, 1, 0, NULL, PARAMS(&p, &n, &value), NULL));
	OK(new_launch(fill, 8, 1, 1, 64, 1, 1, 0, NULL, PARAMS(&q, &n, &value), NULL));
	OK(old_launch(add, 8, 1, 1, 64, 1, 1, 0, NULL, PARAMS(&p, &n, &value), NULL));
	OK(cuCtxSynchronize());
	OK(twice(q + n * 4, q + n * 4, p, n * 4));
	OK(cuCtxSynchronize());
	print_device("old", p, n * 4);
	print_device("new", q, n * 4);
	OK(cuMemFree(q));
	OK(cuMemFree(p));
	return 0;
}
