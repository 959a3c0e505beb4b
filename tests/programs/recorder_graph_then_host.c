/*
 * A graph ends with a host function, which returns when another stream has run another graph. Then a third stream goes on.
 * The kernels of both graphs get epochs.
 */
#include "held_back.h"

static CUgraphExec make(CUfunction f, CUdeviceptr *p, unsigned *n, unsigned *value, bool waits)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.func = f, .gridDimX = (*n + 127) / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = PARAMS(p, n, value),
	};
	CUDA_HOST_NODE_PARAMS host = {.fn = wait_for_go};
	CUgraphExec executable;
	CUgraphNode first, second;
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &kernel));
	if (waits)
		OK(cuGraphAddHostNode(&second, graph, &first, 1, &host));
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuGraphDestroy(graph));
	return executable;
}

int main(void)
{
	unsigned n = 5000, one = 1, two = 2, three = 3;
	CUstream held, free_stream, last;

	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr a = allocate(n * 4), b = allocate(n * 4);
	OK(cuMemsetD8(a, 1, n * 4));
	OK(cuMemsetD8(b, 2, n * 4));
	OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&last, CU_STREAM_NON_BLOCKING));
	CUgraphExec waits = make(mix, &a, &n, &one, true), other = make(mix, &b, &n, &two, false);
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < 3; i++) {
		go = 0;
		OK(cuGraphLaunch(waits, held));
		OK(cuGraphLaunch(other, free_stream));
		while (cuStreamQuery(free_stream) == CUDA_ERROR_NOT_READY)
			usleep(1000);
		go = 1;
		OK(cuStreamSynchronize(held));
		OK(launch(mix, n, last, PARAMS(&b, &n, &three)));
		while (cuStreamQuery(last) == CUDA_ERROR_NOT_READY)
			usleep(1000);
	}
	print_device("of the graph that waits", a, n * 4);
	print_device("of the others", b, n * 4);
	OK(cuGraphExecDestroy(waits));
	OK(cuGraphExecDestroy(other));
	return 0;
}
