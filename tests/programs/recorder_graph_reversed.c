/*
 * A chain of kernels as a graph, which is destroyed after its executable graph was launched. That is then updated from a
 * graph whose nodes were added in the other order, and have handles of destroyed nodes.
 */
#include "program.h"

#define N 64
#define KERNELS 16

static CUfunction fill, add;
static CUdeviceptr p;

/* Fills with a value, then adds 1 several times. */
static CUgraph make(bool reversed, unsigned value)
{
	unsigned n = N, one = 1;
	CUgraphNode nodes[KERNELS];
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	for (unsigned i = 0; i < KERNELS; i++) {
		unsigned at = reversed ? KERNELS - 1 - i : i;
		CUDA_KERNEL_NODE_PARAMS k = {
			.func = at ? add : fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = N, .blockDimY = 1,
			.blockDimZ = 1, .kernelParams = PARAMS(&p, &n, at ? &one : &value),
		};
		OK(cuGraphAddKernelNode(&nodes[at], graph, NULL, 0, &k));
	}
	OK(cuGraphAddDependencies(graph, nodes, nodes + 1, NULL, KERNELS - 1));
	return graph;
}

static void run(CUgraphExec exec)
{
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	print_words("p", p, 2);
}

int main(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;

	start();
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	p = allocate(N * 4);
	CUgraph graph = make(false, 1000);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	run(exec);
	OK(cuGraphDestroy(graph));
	graph = make(true, 2000);
	SHOW(cuGraphExecUpdate(exec, graph, &info));
	run(exec);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	return 0;
}
