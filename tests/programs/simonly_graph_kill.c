/* The program is killed right after it changed a graph and launched it, five times. */
#include "program.h"

#include <signal.h>

int main(void)
{
	unsigned n = 256, value = 0;
	CUgraphExec executable;
	CUgraphNode node;
	CUgraph graph;

	start();
	CUdeviceptr p = allocate(n * 4);
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = get_kernel(load_kernels(), "add"), .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64,
		.blockDimY = 1, .blockDimZ = 1, .kernelParams = PARAMS(&p, &n, &value),
	};
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &k));
	OK(cuGraphInstantiate(&executable, graph, 0));
	for (unsigned i = 0; i < 5; i++) {
		value = 7 * i;
		OK(cuGraphExecKernelNodeSetParams(executable, node, &k));
		OK(cuGraphLaunch(executable, NULL));
	}
	return raise(SIGKILL);
}
