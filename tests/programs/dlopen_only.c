/* A program that is not linked with the driver: it opens it by name, uses it and closes it. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

#include "kernels.h"

#define FIND(name, symbol) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(driver, symbol)

int main(void)
{
	unsigned n = 3000, value = 81, out[3000], sum = 0;
	CUcontext context;
	CUmodule module;
	CUfunction fill;
	CUdeviceptr p;

	printf("not there yet %d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver) {
		printf("no driver: %s\n", dlerror());
		return 1;
	}
	void *again = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	printf("there now %d\n", again == driver);
	dlclose(again);
	printf("not global %d\n", dlsym(RTLD_DEFAULT, "cuNoSuchCall") == NULL);
	FIND(cuInit, "cuInit");
	FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
	FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
	FIND(cuModuleLoadData, "cuModuleLoadData");
	FIND(cuModuleGetFunction, "cuModuleGetFunction");
	FIND(cuMemAlloc, "cuMemAlloc_v2");
	FIND(cuLaunchKernel, "cuLaunchKernel");
	FIND(cuCtxSynchronize, "cuCtxSynchronize");
	FIND(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
	FIND(cuMemFree, "cuMemFree_v2");
	void *params[] = {&p, &n, &value};

	printf("%d", p_cuInit(0));
	printf(" %d", p_cuDevicePrimaryCtxRetain(&context, 0));
	printf(" %d", p_cuCtxSetCurrent(context));
	printf(" %d", p_cuModuleLoadData(&module, KERNELS));
	printf(" %d", p_cuModuleGetFunction(&fill, module, "fill"));
	printf(" %d", p_cuMemAlloc(&p, sizeof(out)));
	printf(" %d", p_cuLaunchKernel(fill, 50, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	printf(" %d", p_cuCtxSynchronize());
	printf(" %d", p_cuMemcpyDtoH(out, p, sizeof(out)));
	printf(" %d\n", p_cuMemFree(p));
	for (unsigned i = 0; i < n; i++)
		sum += out[i];
	printf("sum %u\n", sum);
	printf("closed %d\n", dlclose(driver));
	return 0;
}
