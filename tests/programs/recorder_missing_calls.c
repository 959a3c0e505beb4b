/*
 * Looks up driver calls with dlsym and continues without those that are missing. An error of dlsym concerns
 * the last lookup.
 */
#include "program.h"

#include <dlfcn.h>

static void *driver;

static void *call(const char *name)
{
	dlerror();
	void *p = dlsym(driver, name);
	const char *error = dlerror();

	if (!p != !!error)
		printf("%s: an error %d\n", name, error != NULL);
	if (!p)
		printf("no %s\n", name);
	return p;
}

#define TRY(name, ...) \
	do { \
		__typeof__(&name) f = (__typeof__(&name))call(#name); \
		if (f) \
			printf("%s -> %d\n", #name, (int)f(__VA_ARGS__)); \
	} while (0)

int main(void)
{
	unsigned n = 1000, value = 3, words[1000] = {0};
	size_t offset, size;
	CUcontext context;
	CUmodule module;
	CUfunction fill;
	CUstream stream = NULL;
	CUevent event = NULL;
	CUdeviceptr p = 0;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	TRY(cuInit, 0);
	TRY(cuDevicePrimaryCtxRetain, &context, 0);
	TRY(cuCtxSetCurrent, context);
	TRY(cuModuleLoadDataEx, &module, KERNELS, 0, NULL, NULL);
	TRY(cuLibraryLoadData, (CUlibrary *)&context, KERNELS, NULL, NULL, 0, NULL, NULL, 0);
	__typeof__(&cuModuleGetFunction) get = (__typeof__(&cuModuleGetFunction))call("cuModuleGetFunction");
	if (!get)
		return 3;
	printf("a kernel %d\n", (int)get(&fill, module, "fill"));
	TRY(cuFuncGetParamInfo, fill, 0, &offset, &size);
	TRY(cuMemAllocManaged, &p, n * 4, CU_MEM_ATTACH_GLOBAL);
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuEventCreate, &event, 0);
	TRY(cuLaunchKernel, fill, 16, 1, 1, 64, 1, 1, 0, stream, PARAMS(&p, &n, &value), NULL);
	TRY(cuEventRecord, event, stream);
	TRY(cuEventSynchronize, event);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, words, p, n * 4);
	printf("first %u\n", words[0]);
	TRY(cuMemcpyBatchAsync_v2, &p, &p, NULL, 0, NULL, NULL, 0, stream);
	TRY(cuMemFree_v2, p);
	TRY(cuStreamDestroy_v2, stream);
	return 0;
}
