/*
 * A host function inside a graph blocks it until the program continues. Meanwhile another stream works, the
 * program waits for it, and frees memory.
 */
#include "held_back.h"

int main(void)
{
	unsigned n = 5000, none = 0, *result;
	CUDA_HOST_NODE_PARAMS host = {.fn = wait_for_go};
	CUstream held, free_stream;
	CUgraphExec executable;
	CUgraphNode first, second;
	CUcontext context;
	CUdeviceptr c;
	CUgraph graph;

	start();
	OK(cuCtxGetCurrent(&context));
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr a = allocate(n * 4), b = allocate(n * 4);
	OK(cuMemsetD8(a, 1, n * 4));
	OK(cuMemsetD8(b, 2, n * 4));
	OK(launch(mix, n, NULL, PARAMS(&b, &n, &none))); /* loads it: that may wait for all streams */
	OK(cuMemAllocHost((void **)&result, n * 4));
	OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&c, n * 4, free_stream));
	OK(cuMemsetD8Async(c, 7, n * 4, free_stream));
	OK(cuCtxSynchronize());
	CUDA_MEMSET_NODE_PARAMS set = {.dst = a, .value = 3, .elementSize = 1, .width = n * 4, .height = 1};
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddHostNode(&first, graph, NULL, 0, &host));
	OK(cuGraphAddMemsetNode(&second, graph, &first, 1, &set, context));
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuGraphLaunch(executable, held));
	for (unsigned round = 1; round < 4; round++) {
		OK(launch(mix, n, free_stream, PARAMS(&b, &n, &round)));
		OK(cuMemcpyDtoHAsync(result, b, n * 4, free_stream));
		OK(cuStreamSynchronize(free_stream));
		print_host("meanwhile", result, n * 4);
	}
	OK(cuMemFreeAsync(c, free_stream));
	SHOW(cuStreamSynchronize(free_stream));
	SHOW(cuStreamQuery(held));
	go = 1;
	SHOW(cuStreamSynchronize(held));
	print_device("let go", a, n * 4);
	OK(launch(mix, n, free_stream, PARAMS(&b, &n, &none)));
	SHOW(cuCtxSynchronize());
	print_device("and on", b, n * 4);
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
	return 0;
}
