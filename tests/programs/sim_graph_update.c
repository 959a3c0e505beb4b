/* Changing an instantiated graph: what an update accepts, single nodes, nodes switched off. */
#include "program.h"

static CUcontext context;

static CUgraphNode add_set(CUgraph graph, const CUgraphNode *after, CUdeviceptr p, unsigned value)
{
	CUgraphNode node;
	CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = value, .elementSize = 4, .width = 100, .height = 1};

	OK(cuGraphAddMemsetNode(&node, graph, after, after ? 1 : 0, &set, context));
	return node;
}

static void update(const char *what, CUgraphExec executable, CUgraph graph)
{
	CUgraphExecUpdateResultInfo info;
	CUresult r = cuGraphExecUpdate(executable, graph, &info);

	printf("%s: %s, %d\n", what, result_name(r), (int)info.result);
	OK(cuGraphDestroy(graph));
}

static void run(CUgraphExec executable, CUdeviceptr a, CUdeviceptr b)
{
	OK(cuGraphLaunch(executable, NULL));
	OK(cuCtxSynchronize());
	print_words("a", a, 2);
	print_words("b", b, 2);
}

int main(void)
{
	CUgraph graph, other;
	CUgraphNode first, second, node;
	CUgraphExec executable;
	unsigned enabled = 7;

	start();
	OK(cuCtxGetCurrent(&context));
	CUdeviceptr a = allocate(400), b = allocate(400);
	OK(cuMemsetD8(a, 0, 400));
	OK(cuMemsetD8(b, 0, 400));
	OK(cuGraphCreate(&graph, 0));
	first = add_set(graph, NULL, a, 1);
	second = add_set(graph, &first, b, 2);
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	run(executable, a, b);

	OK(cuGraphCreate(&other, 0));
	node = add_set(other, NULL, a, 11);
	add_set(other, &node, b, 12);
	update("other values", executable, other);
	run(executable, a, b);

	OK(cuGraphCreate(&other, 0));
	add_set(other, NULL, a, 21);
	update("a node less", executable, other);
	OK(cuGraphCreate(&other, 0));
	add_set(other, NULL, a, 31);
	add_set(other, NULL, b, 32);
	update("an edge less", executable, other);
	OK(cuGraphCreate(&other, 0));
	node = add_set(other, NULL, a, 41);
	OK(cuGraphAddEmptyNode(&node, other, &node, 1));
	update("another kind of node", executable, other);
	run(executable, a, b);

	CUDA_MEMSET_NODE_PARAMS set = {.dst = b, .value = 52, .elementSize = 4, .width = 100, .height = 1}, back;
	SHOW(cuGraphExecMemsetNodeSetParams(executable, second, &set, context));
	SHOW(cuGraphMemsetNodeGetParams(second, &back));
	printf("the graph's own value %u\n", back.value);
	run(executable, a, b);
	SHOW(cuGraphMemsetNodeSetParams(second, &set));
	SHOW(cuGraphMemsetNodeGetParams(second, &back));
	printf("the graph's own value %u\n", back.value);

	SHOW(cuGraphNodeGetEnabled(executable, first, &enabled));
	printf("enabled %u\n", enabled);
	SHOW(cuGraphNodeSetEnabled(executable, first, 0));
	SHOW(cuGraphNodeGetEnabled(executable, first, &enabled));
	printf("enabled %u\n", enabled);
	OK(cuMemsetD32(a, 60, 100));
	run(executable, a, b);
	SHOW(cuGraphNodeSetEnabled(executable, first, 1));
	run(executable, a, b);
	SHOW(cuGraphExecDestroy(executable));
	SHOW(cuGraphDestroy(graph));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	return 0;
}
