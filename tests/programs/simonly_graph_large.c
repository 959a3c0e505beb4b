/* A graph of many nodes in a chain: created, launched, updated as a whole and changed in one node. */
#include "program.h"

#define NODES 20000

static CUcontext context;

static CUgraph build(CUdeviceptr p, CUgraphNode *last, unsigned value)
{
	CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = value, .elementSize = 4, .width = 1, .height = 1};
	CUgraphNode before;
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	for (unsigned i = 0; i < NODES; i++, before = *last, set.dst = p + i % 100 * 4)
		OK(cuGraphAddMemsetNode(last, graph, i ? &before : NULL, i ? 1 : 0, &set, context));
	return graph;
}

int main(void)
{
	CUDA_MEMSET_NODE_PARAMS set = {.value = 7, .elementSize = 4, .width = 1, .height = 1};
	CUgraphExecUpdateResultInfo info;
	CUgraphExec executable;
	CUgraphNode last, other_last;
	CUgraph graph, other;

	start();
	OK(cuCtxGetCurrent(&context));
	CUdeviceptr p = allocate(400);
	graph = build(p, &last, 1);
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuGraphLaunch(executable, NULL));
	other = build(p, &other_last, 2);
	SHOW(cuGraphExecUpdate(executable, other, &info));
	OK(cuGraphLaunch(executable, NULL));
	set.dst = p;
	SHOW(cuGraphExecMemsetNodeSetParams(executable, last, &set, context));
	OK(cuGraphLaunch(executable, NULL));
	print_words("p", p, 3);
	return 0;
}
