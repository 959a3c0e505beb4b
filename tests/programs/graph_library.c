/* Graphs of kernels of a library, without a module: added node by node, and captured from a stream. */
#include "program.h"

#define N 1000

int main(void)
{
	unsigned n = N, value = 3;
	CUcontext context;
	CUgraphExec executable, captured;
	CUgraphNode node;
	CUlibrary library;
	CUkernel fill, add;
	CUstream stream;
	CUgraph graph;

	start();
	OK(cuCtxGetCurrent(&context));
	OK(cuLibraryLoadData(&library, KERNELS, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&fill, library, "fill"));
	OK(cuLibraryGetKernel(&add, library, "add"));
	CUdeviceptr p = allocate(N * 4);
	OK(cuMemsetD8(p, 0, N * 4));
	CUDA_KERNEL_NODE_PARAMS k = {
		.kern = fill, .gridDimX = 16, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&p, &n, &value), .ctx = context,
	};
	OK(cuGraphCreate(&graph, 0));
	SHOW(cuGraphAddKernelNode(&node, graph, NULL, 0, &k));
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	SHOW(cuGraphLaunch(executable, NULL));
	OK(cuCtxSynchronize());
	print_words("p", p, 3);
	k.kern = add;
	SHOW(cuGraphExecKernelNodeSetParams(executable, node, &k));
	SHOW(cuGraphLaunch(executable, NULL));
	OK(cuCtxSynchronize());
	print_words("p", p, 3);
	OK(cuGraphDestroy(graph));

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(launch((CUfunction)fill, N, stream, PARAMS(&p, &n, &value)));
	SHOW(launch((CUfunction)add, N, stream, PARAMS(&p, &n, &value)));
	OK(cuStreamEndCapture(stream, &graph));
	SHOW(cuGraphInstantiate(&captured, graph, 0));
	SHOW(cuGraphLaunch(captured, stream));
	OK(cuStreamSynchronize(stream));
	print_words("p", p, 3);
	OK(cuGraphDestroy(graph));
	OK(cuGraphExecDestroy(captured));
	OK(cuGraphExecDestroy(executable));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	OK(cuLibraryUnload(library));
	return 0;
}
