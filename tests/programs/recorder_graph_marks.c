/*
 * A stream is captured into a graph, with tt_epoch after each kernel. Each kernel adds 1 to a. An argument is the
 * number of kernels. The graph is launched three times without a wait, then cloned, updated and launched again.
 */
#include <dlfcn.h>

#include "program.h"

#define N 5000

static CUfunction add;
static CUdeviceptr a, b;

static void epoch(CUstream stream, const char *label)
{
	int (*cut)(void *, const char *) = (int (*)(void *, const char *))dlsym(RTLD_DEFAULT, "tt_epoch");

	if (cut && cut(stream, label))
		fprintf(stderr, "no epoch\n");
}

static void count(CUstream stream, unsigned kernels, unsigned by)
{
	unsigned n = N;
	char label[32];

	for (unsigned i = 0; i < kernels; i++) {
		OK(cuLaunchKernel(add, (N + 127) / 128, 1, 1, 128, 1, 1, 0, stream, PARAMS(&a, &n, &by), NULL));
		snprintf(label, sizeof(label), "added %u", i);
		epoch(stream, label);
	}
}

static CUgraph captured(CUstream stream, unsigned kernels, unsigned by)
{
	CUgraph graph;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	count(stream, kernels, by);
	OK(cuStreamEndCapture(stream, &graph));
	return graph;
}

int main(int argc, char **argv)
{
	unsigned kernels = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, clone, other;
	CUgraphExec exec;
	CUstream stream;

	start();
	add = get_kernel(load_kernels(), "add");
	a = allocate(N * 4), b = allocate(N * 4);
	OK(cuMemsetD8(a, 0, N * 4));
	OK(cuMemsetD8(b, 1, N * 4));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	graph = captured(stream, kernels, 1);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphDestroy(graph));
	OK(cuGraphInstantiateWithFlags(&exec, clone, 0));
	OK(cuGraphDestroy(clone));
	for (unsigned i = 0; i < 3; i++)
		OK(cuGraphLaunch(exec, stream));
	other = captured(stream, kernels, 10);
	OK(cuGraphExecUpdate(exec, other, &info));
	OK(cuGraphDestroy(other));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	print_device("a", a, N * 4);
	print_device("b", b, N * 4);
	OK(cuGraphExecDestroy(exec));
	return 0;
}
