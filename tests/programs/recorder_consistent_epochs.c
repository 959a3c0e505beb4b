/* Each thread counts in its own memory with sets, launches and graphs, and sometimes waits. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 6, ROUNDS = 40, WORDS = 64 };

static CUcontext context;
static CUfunction add;

static CUgraphExec make_graph(CUdeviceptr counter)
{
	unsigned n = WORDS, one = 1;
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = WORDS, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&counter, &n, &one),
	};

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

struct counting {
	pthread_t thread;
	unsigned number;
	CUdeviceptr counter;
	CUgraphExec exec;
};

static void *count(void *argument)
{
	struct counting *c = argument;
	unsigned n = WORDS, one = 1;
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (c->number % 3 == 0)
			OK(cuGraphLaunch(c->exec, stream));
		else if (c->number % 3 == 1)
			OK(cuLaunchKernel(add, 1, 1, 1, WORDS + c->number, 1, 1, 0, stream, PARAMS(&c->counter, &n, &one), NULL));
		else
			OK(cuMemsetD32Async(c->counter, i + 1, WORDS, stream));
		if (i % 4 == c->number % 4)
			OK(cuStreamSynchronize(stream));
	}
	OK(cuStreamSynchronize(stream));
	OK(cuStreamDestroy(stream));
	return NULL;
}

int main(void)
{
	struct counting all[THREADS];

	start();
	add = get_kernel(load_kernels(), "add");
	OK(cuCtxGetCurrent(&context));
	for (unsigned i = 0; i < THREADS; i++) {
		all[i] = (struct counting){.number = i, .counter = allocate((WORDS + i) * 4)};
		OK(cuMemsetD32(all[i].counter, 0, WORDS + i));
		all[i].exec = make_graph(all[i].counter);
	}
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&all[i].thread, NULL, count, &all[i]);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(all[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		print_words("counted", all[i].counter, 1);
		OK(cuGraphExecDestroy(all[i].exec));
	}
	return 0;
}
