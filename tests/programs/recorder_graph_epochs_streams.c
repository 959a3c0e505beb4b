/*
 * Graphs that are launched in turns: two of them in a stream each, made anew in each round while the
 * ones before may be at work, and one in both. In launch i of all, `add` adds i to the graph's memory.
 */
#include "program.h"

#define N 30000
#define GRAPHS 3
#define ROUNDS 4

static CUfunction add;
static unsigned launches;

static CUgraphExec make(CUdeviceptr p, unsigned value, CUgraphNode *node, CUgraph *graph)
{
	unsigned n = N;
	CUgraphExec exec;
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = add, .gridDimX = (N + 127) / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = PARAMS(&p, &n, &value),
	};

	OK(cuGraphCreate(graph, 0));
	OK(cuGraphAddKernelNode(node, *graph, NULL, 0, &k));
	OK(cuGraphInstantiateWithFlags(&exec, *graph, 0));
	return exec;
}

static void launch_with(CUgraphExec exec, CUgraphNode node, CUdeviceptr p, CUstream stream)
{
	unsigned n = N, value = ++launches;
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = add, .gridDimX = (N + 127) / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = PARAMS(&p, &n, &value),
	};

	OK(cuGraphExecKernelNodeSetParams(exec, node, &k));
	OK(cuGraphLaunch(exec, stream));
}

int main(void)
{
	CUgraphExec execs[GRAPHS];
	CUgraphNode nodes[GRAPHS];
	CUgraph graphs[GRAPHS];
	CUdeviceptr p[GRAPHS];
	CUstream streams[2];

	start();
	add = get_kernel(load_kernels(), "add");
	for (unsigned i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < GRAPHS; i++) {
		p[i] = allocate(N * 4);
		OK(cuMemsetD8(p[i], 0, N * 4));
	}
	OK(cuCtxSynchronize());
	execs[2] = make(p[2], 0, &nodes[2], &graphs[2]);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < 2; i++)
			execs[i] = make(p[i], 0, &nodes[i], &graphs[i]);
		for (unsigned turn = 0; turn < 2; turn++)
			for (unsigned i = 0; i < GRAPHS; i++)
				launch_with(execs[i], nodes[i], p[i], streams[i < 2 ? i : turn]);
		for (unsigned i = 0; i < 2; i++) {
			OK(cuGraphExecDestroy(execs[i]));
			OK(cuGraphDestroy(graphs[i]));
		}
		if (round % 2)
			OK(cuCtxSynchronize());
	}
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < GRAPHS; i++)
		print_device("p", p[i], N * 4);
	return 0;
}
