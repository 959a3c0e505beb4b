/* Many threads create, use and destroy everything at once, contexts of other threads included. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 6, ROUNDS = 200 };

static CUdevice device;

static void count_call(void *calls)
{
	__atomic_fetch_add((unsigned *)calls, 1, __ATOMIC_RELAXED);
}

/* Another thread may end the context at any moment: then calls fail, and that is all they may do. */
static void use_primary(unsigned round)
{
	unsigned n = 100, value = round, calls = 0;
	unsigned char out[400];
	CUcontext context;
	CUstream stream;
	CUmodule module;
	CUfunction fill;
	CUdeviceptr p = 0;

	OK(cuDevicePrimaryCtxRetain(&context, device));
	if (cuCtxSetCurrent(context) == CUDA_SUCCESS && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
		if (cuModuleLoadData(&module, KERNELS) == CUDA_SUCCESS &&
		    cuModuleGetFunction(&fill, module, "fill") == CUDA_SUCCESS &&
		    cuMemAlloc(&p, sizeof(out)) == CUDA_SUCCESS) {
			launch(fill, n, stream, PARAMS(&p, &n, &value));
			cuLaunchHostFunc(stream, count_call, &calls);
			cuMemcpyDtoHAsync(out, p, sizeof(out), stream);
			cuStreamSynchronize(stream);
		}
		cuCtxSynchronize();
	}
	if (round % 7 == 0)
		OK(cuDevicePrimaryCtxReset(device));
	OK(cuDevicePrimaryCtxRelease(device));
}

static void use_own(unsigned round)
{
	unsigned calls = 0;
	unsigned char out[300];
	CUcontext context;
	CUstream stream;
	CUgraph graph;
	CUgraphExec executable;
	CUdeviceptr p;

	OK(cuCtxCreate(&context, NULL, 0, device));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemAllocAsync(&p, sizeof(out), stream));
	OK(cuMemsetD8Async(p, (unsigned char)round, sizeof(out), stream));
	OK(cuLaunchHostFunc(stream, count_call, &calls));
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiate(&executable, graph, 0));
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(executable, stream));
	OK(cuMemAllocAsync(&p, sizeof(out), stream));
	OK(cuMemsetD8Async(p, (unsigned char)round, sizeof(out), stream));
	OK(cuMemcpyDtoHAsync(out, p, sizeof(out), stream));
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < sizeof(out); i++)
		if (out[i] != (unsigned char)round || calls != 3) {
			printf("byte %u is %u in round %u, %u calls\n", i, out[i], round, calls);
			exit(1);
		}
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
	OK(cuCtxDestroy(context));
}

static void *body(void *number)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		if ((uintptr_t)number % 2)
			use_own(round);
		else
			use_primary(round);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, body, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("done\n");
	return 0;
}
