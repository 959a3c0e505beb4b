/*
 * An executable graph updated from a graph in which other nodes became the last ones later, so that the
 * driver pairs the two fills crosswise, and then changed node by node, by handles of both graphs.
 *
 *   fill    fill
 */
#include "program.h"

#define N 64

static CUfunction fill;
static CUdeviceptr at[4];

struct made {
	CUgraph graph;
	CUgraphNode nodes[2];
};

static struct made make(unsigned value)
{
	struct made m;
	unsigned n = N;

	OK(cuGraphCreate(&m.graph, 0));
	for (unsigned i = 0; i < 2; i++) {
		unsigned v = value + i;
		CUDA_KERNEL_NODE_PARAMS p = {
			.func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = N, .blockDimY = 1, .blockDimZ = 1,
			.kernelParams = PARAMS(&at[i], &n, &v),
		};
		OK(cuGraphAddKernelNode(&m.nodes[i], m.graph, NULL, 0, &p));
	}
	return m;
}

static void run(CUgraphExec exec)
{
	for (unsigned i = 0; i < 4; i++)
		OK(cuMemsetD32(at[i], i, N));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < 4; i++)
		print_words("is", at[i], 1);
}

static void change(CUgraphExec exec, CUgraphNode node, unsigned to, unsigned value)
{
	unsigned n = N;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = N, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&at[to], &n, &value),
	};

	SHOW(cuGraphExecKernelNodeSetParams(exec, node, &p));
	run(exec);
}

int main(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;

	start();
	fill = get_kernel(load_kernels(), "fill");
	for (unsigned i = 0; i < 4; i++)
		at[i] = allocate(N * 4);
	struct made graph = make(1000), from = make(2000);
	OK(cuGraphAddDependencies(from.graph, &from.nodes[0], &from.nodes[1], NULL, 1));
	OK(cuGraphRemoveDependencies(from.graph, &from.nodes[0], &from.nodes[1], NULL, 1));
	OK(cuGraphInstantiateWithFlags(&exec, graph.graph, 0));
	run(exec);
	SHOW(cuGraphExecUpdate(exec, from.graph, &info));
	run(exec);
	change(exec, graph.nodes[0], 2, 3000);
	change(exec, from.nodes[1], 3, 4000);
	OK(cuGraphExecDestroy(exec));
	return 0;
}
