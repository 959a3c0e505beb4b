/*
 * A graph whose kernels are captured after, updated from one whose nodes were added in another order
 * and which the driver takes nonetheless, since they became the last ones in the same order.
 *
 *   fill ── add        fill other
 */
#include "program.h"

#define N 64

static CUfunction fill, add;
static CUdeviceptr p, other;

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *after, CUfunction f, CUdeviceptr to, unsigned value)
{
	unsigned n = N;
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = N, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&to, &n, &value),
	};

	OK(cuGraphAddKernelNode(&node, graph, after, after != NULL, &k));
	return node;
}

static CUgraph make(bool alone_first, unsigned value)
{
	CUgraphNode node, alone;
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	if (alone_first)
		alone = add_kernel(graph, NULL, fill, other, value + 100);
	node = add_kernel(graph, NULL, fill, p, value);
	add_kernel(graph, &node, add, p, 1);
	if (!alone_first) {
		add_kernel(graph, NULL, fill, other, value + 100);
	} else {
		OK(cuGraphAddEmptyNode(&node, graph, &alone, 1));
		OK(cuGraphDestroyNode(node)); /* now it is the last that nothing comes after */
	}
	return graph;
}

int main(void)
{
	CUgraphExecUpdateResultInfo info;
	CUstream streams[2];
	CUgraphExec exec;

	start();
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	p = allocate(N * 4), other = allocate(N * 4);
	for (unsigned i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	CUgraph graph = make(false, 1000);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (unsigned i = 0; i < 6; i++) {
		OK(cuGraphLaunch(exec, streams[i % 2]));
		if (i == 2) {
			CUgraph from = make(true, 2000);
			SHOW(cuGraphExecUpdate(exec, from, &info));
			OK(cuGraphDestroy(from));
		}
		if (i != 2) {
			OK(cuStreamSynchronize(streams[i % 2]));
			print_words("p", p, 2);
			print_words("other", other, 2);
		}
	}
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	return 0;
}
