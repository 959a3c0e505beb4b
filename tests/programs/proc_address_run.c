/*
 * Finds every call as the runtime library does: asks cuGetProcAddress for cuGetProcAddress, and that for
 * the rest.
 */
#include "program.h"

#include <dlfcn.h>

typedef CUresult lookup_fn(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static lookup_fn *lookup;

static void *call(const char *name, int version)
{
	CUdriverProcAddressQueryResult status;
	void *p = NULL;

	if (lookup(name, &p, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS || !p) {
		printf("no %s\n", name);
		exit(1);
	}
	return p;
}

#define RUN(type, name, version, ...) show_result(#name, ((type)call(#name, version))(__VA_ARGS__))

int main(void)
{
	unsigned n = 2000, value = 71, out[2000];
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUcontext context;
	CUmodule module;
	CUfunction fill;
	CUdeviceptr p;

	lookup = (lookup_fn *)dlsym(driver, "cuGetProcAddress_v2");
	void *older = call("cuGetProcAddress", 11030);
	lookup = (lookup_fn *)call("cuGetProcAddress", 12000);
	printf("two different look-ups %d\n", (void *)lookup != older);
	RUN(__typeof__(&cuInit), cuInit, 2000, 0);
	RUN(__typeof__(&cuDevicePrimaryCtxRetain), cuDevicePrimaryCtxRetain, 7000, &context, 0);
	RUN(__typeof__(&cuCtxSetCurrent), cuCtxSetCurrent, 4000, context);
	RUN(__typeof__(&cuModuleLoadData), cuModuleLoadData, 2000, &module, KERNELS);
	RUN(__typeof__(&cuModuleGetFunction), cuModuleGetFunction, 2000, &fill, module, "fill");
	RUN(__typeof__(&cuMemAlloc), cuMemAlloc, 3020, &p, n * 4);
	RUN(__typeof__(&cuLaunchKernel), cuLaunchKernel, 7000, fill, 40, 1, 1, 64, 1, 1, 0, NULL, PARAMS(&p, &n, &value),
	    NULL);
	RUN(CUresult (*)(void), cuCtxSynchronize, 2000);
	RUN(__typeof__(&cuMemcpyDtoH), cuMemcpyDtoH, 3020, out, p, n * 4);
	print_host("result", out, n * 4);
	RUN(__typeof__(&cuMemFree), cuMemFree, 3020, p);
	RUN(__typeof__(&cuDevicePrimaryCtxRelease), cuDevicePrimaryCtxRelease, 11000, 0);
	return 0;
}
