/*
 * A stream is captured into a graph that holds another captured graph twice, once more inside a third: with tt_epoch after
 * each kernel. Each kernel adds to a or to b. The graph is launched three times, updated from another, and launched again.
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

static void count(CUstream stream, CUdeviceptr p, unsigned by, const char *label)
{
	unsigned n = N;

	OK(cuLaunchKernel(add, (N + 127) / 128, 1, 1, 128, 1, 1, 0, stream, PARAMS(&p, &n, &by), NULL));
	epoch(stream, label);
}

static CUgraph inner(CUstream stream, unsigned by)
{
	CUgraph graph;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	count(stream, a, by, "inner a");
	count(stream, b, 2 * by, "inner b");
	OK(cuStreamEndCapture(stream, &graph));
	return graph;
}

/* first, the inner graph, then a graph with the inner graph and a kernel after it, last. */
static CUgraph outer(CUstream stream, unsigned by)
{
	CUgraph graph, child = inner(stream, by), middle;
	CUgraphNode node, first, end;
	size_t one = 1;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	count(stream, a, by, "middle a");
	OK(cuStreamEndCapture(stream, &middle));
	OK(cuGraphGetRootNodes(middle, &first, &one));
	OK(cuGraphAddChildGraphNode(&node, middle, NULL, 0, child));
	OK(cuGraphAddDependencies(middle, &node, &first, NULL, 1));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	count(stream, a, by, "first");
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, NULL, &one));
	CUgraphNode *nodes = calloc(one, sizeof *nodes);
	OK(cuGraphGetNodes(graph, nodes, &one));
	end = nodes[one - 1];
	OK(cuGraphAddChildGraphNode(&node, graph, &end, 1, child));
	OK(cuGraphAddChildGraphNode(&end, graph, &node, 1, middle));
	free(nodes);
	OK(cuGraphDestroy(child));
	OK(cuGraphDestroy(middle));
	return graph;
}

int main(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, other;
	CUgraphExec exec;
	CUstream stream;

	start();
	add = get_kernel(load_kernels(), "add");
	a = allocate(N * 4), b = allocate(N * 4);
	OK(cuMemsetD8(a, 0, N * 4));
	OK(cuMemsetD8(b, 0, N * 4));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	graph = outer(stream, 1);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	for (unsigned i = 0; i < 3; i++)
		OK(cuGraphLaunch(exec, stream));
	other = outer(stream, 10);
	OK(cuGraphExecUpdate(exec, other, &info));
	OK(cuGraphDestroy(other));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	print_device("a", a, N * 4);
	print_device("b", b, N * 4);
	OK(cuGraphExecDestroy(exec));
	return 0;
}
