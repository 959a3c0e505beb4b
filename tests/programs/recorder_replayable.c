/*
 * Launches that are recorded for replay: the settings in force, other users of the memory, and what cannot
 * be stored.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "program.h"

#define N 4096u

static CUcontext context;
static CUdeviceptr busy;
static atomic_bool works, stop;

/* Sets memory of its own, over and over. */
static void *work_elsewhere(void *unused)
{
	CUstream stream;
	(void)unused;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; !stop; i++) {
		OK(cuMemsetD32Async(busy, i, N, stream));
		works = true;
		if (i % 16 == 15)
			OK(cuStreamSynchronize(stream));
	}
	OK(cuStreamSynchronize(stream));
	return NULL;
}

int main(void)
{
	unsigned n = N, value = 100;
	CUmodule module;
	CUlibrary library;
	CUkernel add;
	CUdevice device;
	CUstream stream;
	CUtexObject texture;
	pthread_t other;
	int most;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	/* Before there is a context. */
	OK(cuLibraryLoadData(&library, KERNELS, (CUjit_option[]){CU_JIT_OPTIMIZATION_LEVEL}, (void *[]){(void *)2}, 1,
			     (CUlibraryOption[]){CU_LIBRARY_BINARY_IS_PRESERVED}, (void *[]){(void *)1}, 1));
	OK(cuLibraryGetKernel(&add, library, "add"));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	char log[256];
	OK(cuModuleLoadDataEx(&module, KERNELS, 3,
			      (CUjit_option[]){CU_JIT_MAX_REGISTERS, CU_JIT_ERROR_LOG_BUFFER,
					       CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES},
			      (void *[]){(void *)40, log, (void *)sizeof(log)}));
	CUfunction fill = get_kernel(module, "fill"), reverse = get_kernel(module, "reverse"), bump = get_kernel(module, "bump");
	CUfunction mix = get_kernel(module, "mix");
	OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1));
	CUdeviceptr p = allocate(n * 4);
	busy = allocate(n * 4);

	/* Attributes, variables of the module, one launch after the other. */
	OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
	OK(cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
	OK(cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100));
	OK(cuFuncSetCacheConfig(reverse, CU_FUNC_CACHE_PREFER_SHARED));
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	OK(launch(fill, n, stream, PARAMS(&p, &n, &value)));
	unsigned some = 64;
	CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1},
					   {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
					    .value.programmaticStreamSerializationAllowed = 1}};
	CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
				 .sharedMemBytes = 256, .hStream = stream, .attrs = attributes, .numAttrs = 2};
	OK(cuLaunchKernelEx(&config, reverse, PARAMS(&p, &some), NULL));
	OK(cuLaunchKernel(bump, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));

	/* While another thread works. */
	OK(pthread_create(&other, NULL, work_elsewhere, NULL));
	while (!works)
		sched_yield();
	for (unsigned i = 0; i < 4; i++)
		OK(launch((CUfunction)add, n, stream, PARAMS(&p, &n, &value)));
	OK(cuStreamSynchronize(stream));
	stop = true;
	pthread_join(other, NULL);

	/* What isn't kept: a texture's memory, page-locked memory. */
	CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR,
				     .res.linear = {busy, CU_AD_FORMAT_UNSIGNED_INT32, 1, n * 4}};
	unsigned description[26] = {0}; /* CUDA_TEXTURE_DESC: all as it comes */
	OK(cuTexObjectCreate(&texture, &linear, (void *)description, NULL));
	void *host;
	OK(cuMemHostAlloc(&host, n * 4, CU_MEMHOSTALLOC_DEVICEMAP));
	CUdeviceptr mapped = (uintptr_t)host;
	CUfunction params = get_kernel(module, "params");
	unsigned char a = 0;
	unsigned short b = 0;
	float e = 0;
	double f = 0;
	unsigned g[3] = {0};
	OK(cuLaunchKernel(params, 1, 1, 1, 1, 1, 1, 0, stream, PARAMS(&p, &a, &b, &value, &texture, &e, &f, g), NULL));
	OK(launch(mix, n, stream, PARAMS(&mapped, &n, &some)));
	OK(cuStreamSynchronize(stream));
	OK(cuTexObjectDestroy(texture));
	OK(cuLaunchKernel(params, 1, 1, 1, 1, 1, 1, 0, stream, PARAMS(&p, &a, &b, &value, &texture, &e, &f, g), NULL));

	/* A large image in memory that is given back, one that nothing is launched from, and files. */
	size_t size = (9 << 20) + sizeof(KERNELS);
	char *large = malloc(size);
	memset(large, ' ', size);
	memcpy(large, KERNELS, sizeof(KERNELS) - 1);
	large[size - 1] = 0;
	FILE *file = fopen("kernels.ptx", "w");
	OK(!file || fwrite(KERNELS, sizeof(KERNELS) - 1, 1, file) != 1 || fclose(file));
	CUmodule again;
	OK(cuModuleLoadData(&again, large));
	free(large);
	OK(launch(get_kernel(again, "fill"), n, stream, PARAMS(&p, &n, &value)));
	OK(cuModuleLoadData(&again, KERNELS));
	OK(cuModuleLoad(&again, "kernels.ptx"));
	OK(launch(get_kernel(again, "fill"), n, stream, PARAMS(&p, &n, &value)));
	OK(remove("kernels.ptx"));
	print_device("p", p, n * 4);
	OK(cuLibraryUnload(library));
	return 0;
}
