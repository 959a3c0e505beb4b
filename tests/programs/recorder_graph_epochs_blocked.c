/*
 * Launches of a graph of twenty kernels wait for a host function, which returns when the program has
 * submitted all of them.
 */
#include "held_back.h"

int main(void)
{
	unsigned n = 64, one = 1;
	CUgraphExec executable;
	CUgraphNode node;
	CUstream stream;
	CUgraph graph;

	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr p = allocate(n * 4);
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.func = mix, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&p, &n, &one),
	};
	OK(cuMemsetD8(p, 1, n * 4));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuGraphCreate(&graph, 0));
	for (int i = 0; i < 20; i++)
		OK(cuGraphAddKernelNode(&node, graph, i ? &node : NULL, i > 0, &kernel));
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuGraphLaunch(executable, stream));
	OK(cuCtxSynchronize());
	OK(cuLaunchHostFunc(stream, wait_for_go, NULL));
	for (int i = 0; i < 14; i++)
		OK(cuGraphLaunch(executable, stream));
	go = 1;
	OK(cuStreamSynchronize(stream));
	print_device("at last", p, n * 4);
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
	return 0;
}
