/*
 * Work of one context writes to memory of another: copies, and a graph with nodes in both. The second
 * context is of the last device.
 */
#include "program.h"

#define N 5000

static CUcontext contexts[2];
static CUfunction fill[2];
static CUdeviceptr memory[2];

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *after, size_t count, unsigned which, unsigned value)
{
	unsigned n = N;
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = fill[which], .gridDimX = (N + 127) / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128,
		.blockDimY = 1, .blockDimZ = 1, .kernelParams = PARAMS(&memory[which], &n, &value),
	};

	OK(cuGraphAddKernelNode(&node, graph, after, count, &p));
	return node;
}

/* Waits for both, and looks at the memory of the second. */
static void show(void)
{
	CUcontext popped;

	OK(cuCtxSynchronize());
	OK(cuCtxPushCurrent(contexts[1]));
	OK(cuCtxSynchronize());
	print_words("second", memory[1], 1);
	OK(cuCtxPopCurrent(&popped));
}

int main(void)
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	CUgraphNode node;

	int devices;

	start();
	OK(cuDeviceGetCount(&devices));
	for (unsigned i = 0; i < 2; i++) {
		OK(cuCtxCreate(&contexts[i], NULL, 0, i ? devices - 1 : 0));
		fill[i] = get_kernel(load_kernels(), "fill");
		memory[i] = allocate(N * 4);
		OK(cuMemsetD32(memory[i], i + 1, N));
		OK(cuCtxSynchronize());
	}
	OK(cuCtxSetCurrent(contexts[0]));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 2; i++) {
		OK(cuMemsetD32Async(memory[0], 10 + i, N, stream));
		OK(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], N * 4, stream));
		show();
	}
	OK(cuGraphCreate(&graph, 0));
	node = add_kernel(graph, NULL, 0, 0, 20);
	add_kernel(graph, &node, 1, 1, 30);
	if (cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS) /* which not every driver does */
		for (unsigned i = 0; i < 2; i++) {
			OK(cuGraphLaunch(exec, stream));
			show();
			OK(cuMemsetD32Async(memory[0], 40, N, stream));
			OK(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], N * 4, stream));
			show();
		}
	return 0;
}
