/*
 * Each thread launches its own graph in its own stream, changes it before each launch and sometimes creates
 * it again.
 */
#include "program.h"

#include <pthread.h>

#define THREADS 4
#define LAUNCHES 60
#define N 256

static CUcontext context;
static CUfunction add;

struct worker {
	pthread_t thread;
	CUstream stream;
	CUdeviceptr p;
	unsigned number;
};

static CUDA_KERNEL_NODE_PARAMS kernel(void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = add, .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = params,
	};
}

/* In launch i the value that is added is number * 1000 + i. */
static void *work(void *argument)
{
	struct worker *w = argument;
	unsigned n = N, value = 0;
	CUDA_KERNEL_NODE_PARAMS k = kernel(PARAMS(&w->p, &n, &value));
	CUgraphExec executable;
	CUgraphNode node;
	CUgraph graph;

	OK(cuCtxSetCurrent(context));
	for (unsigned i = 0; i < LAUNCHES; i++) {
		value = w->number * 1000 + i;
		if (i % 20 == 0) {
			OK(cuGraphCreate(&graph, 0));
			OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &k));
			OK(cuGraphInstantiate(&executable, graph, 0));
		} else {
			OK(cuGraphExecKernelNodeSetParams(executable, node, &k));
		}
		OK(cuGraphLaunch(executable, w->stream));
		if (i % 20 == 19) {
			OK(cuStreamSynchronize(w->stream));
			OK(cuGraphDestroy(graph));
			OK(cuGraphExecDestroy(executable));
		}
	}
	return NULL;
}

int main(void)
{
	struct worker workers[THREADS];

	start();
	OK(cuCtxGetCurrent(&context));
	add = get_kernel(load_kernels(), "add");
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].number = i + 1;
		workers[i].p = allocate(N * 4);
		OK(cuMemsetD8(workers[i].p, 0, N * 4));
		OK(cuStreamCreate(&workers[i].stream, CU_STREAM_NON_BLOCKING));
	}
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		OK(cuStreamSynchronize(workers[i].stream));
		print_words("p", workers[i].p, 2);
		OK(cuMemFree(workers[i].p));
		OK(cuStreamDestroy(workers[i].stream));
	}
	return 0;
}
