/*
 * One executable graph is launched repeatedly without a wait, in streams of every kind with no order
 * between them: its launches still run one after another. The program changes it between launches, destroys
 * its graph, and destroys it right after its last launch.
 */
#include "program.h"

#define N 2000
#define STREAMS 5

static unsigned calls;

static void count_call(void *unused)
{
	(void)unused;
	calls++;
}

int main(void)
{
	unsigned n = N, value = 1, total = 0;
	CUDA_HOST_NODE_PARAMS host = {.fn = count_call};
	CUstream streams[STREAMS] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
	CUgraphNode first, second, last;
	CUgraphExec executable;
	CUcontext context;
	CUgraph graph;

	start();
	OK(cuCtxGetCurrent(&context));
	CUfunction add = get_kernel(load_kernels(), "add");
	CUdeviceptr p = allocate(N * 4), copy = allocate(N * 4);
	OK(cuMemsetD32(p, 0, N));
	OK(cuStreamCreate(&streams[3], CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&streams[4], CU_STREAM_NON_BLOCKING));
	OK(cuCtxSynchronize());
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = add, .gridDimX = (N + 63) / 64, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = PARAMS(&p, &n, &value),
	};
	CUDA_MEMCPY3D down = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = copy, .WidthInBytes = N * 4, .Height = 1, .Depth = 1,
	};
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &k));
	OK(cuGraphAddMemcpyNode(&second, graph, &first, 1, &down, context));
	OK(cuGraphAddHostNode(&last, graph, &second, 1, &host));
	OK(cuGraphInstantiate(&executable, graph, 0));

	for (unsigned i = 0; i < 40; i++) {
		value = 1 + i % 3;
		OK(cuGraphExecKernelNodeSetParams(executable, first, &k));
		OK(cuGraphLaunch(executable, streams[i % STREAMS]));
		total += value;
	}
	OK(cuGraphDestroy(graph));
	for (unsigned i = 0; i < 10; i++)
		OK(cuGraphLaunch(executable, streams[i % STREAMS]));
	total += 10 * value;
	SHOW(cuGraphExecDestroy(executable));
	SHOW(cuCtxSynchronize());
	print_words("p", p, 3);
	print_words("copy", copy, 3);
	printf("as it should be %d, %u calls\n", (int)(total), calls);
	OK(cuStreamDestroy(streams[3]));
	OK(cuStreamDestroy(streams[4]));
	OK(cuMemFree(p));
	OK(cuMemFree(copy));
	return 0;
}
