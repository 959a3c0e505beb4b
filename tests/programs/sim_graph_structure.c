/* The structure of a graph: nodes, edges, clones, children, and queries about them. */
#include "program.h"

static void counts(const char *name, CUgraph graph)
{
	size_t nodes = 0, roots = 0, edges = 0;

	OK(cuGraphGetNodes(graph, NULL, &nodes));
	OK(cuGraphGetRootNodes(graph, NULL, &roots));
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
	printf("%s: %zu nodes, %zu roots, %zu edges\n", name, nodes, roots, edges);
}

static void count_call(void *data)
{
	++*(int *)data;
}

int main(void)
{
	int calls = 0;
	CUgraph graph, child, clone;
	CUgraphNode a, b, c, d, host, inner, nodes[8], twin;
	CUgraphNodeType type;
	CUgraphExec executable;
	CUgraphEdgeData data[8];
	CUDA_HOST_NODE_PARAMS call = {.fn = count_call, .userData = &calls}, back = {0};
	size_t count;

	start();
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddHostNode(&inner, child, NULL, 0, &call));
	SHOW(cuGraphAddEmptyNode(&a, graph, NULL, 0));
	SHOW(cuGraphAddEmptyNode(&b, graph, &a, 1));
	SHOW(cuGraphAddHostNode(&host, graph, &a, 1, &call));
	SHOW(cuGraphAddChildGraphNode(&c, graph, (CUgraphNode[]){b, host}, 2, child));
	SHOW(cuGraphAddEmptyNode(&d, graph, NULL, 0));
	counts("built", graph);
	SHOW(cuGraphAddDependencies(graph, &c, &d, NULL, 1));
	SHOW(cuGraphAddDependencies(graph, &c, &d, NULL, 1));
	SHOW(cuGraphAddDependencies(graph, &d, &d, NULL, 1));
	SHOW(cuGraphAddDependencies(graph, &inner, &d, NULL, 1));
	counts("connected", graph);
	count = 8;
	SHOW(cuGraphNodeGetDependencies(c, nodes, data, &count));
	printf("%zu: %d %d\n", count, nodes[0] == b, nodes[1] == host);
	count = 8;
	SHOW(cuGraphNodeGetDependentNodes(a, nodes, data, &count));
	printf("%zu: %d %d\n", count, nodes[0] == b, nodes[1] == host);
	SHOW(cuGraphNodeGetType(c, &type));
	printf("type %d\n", (int)type);
	SHOW(cuGraphHostNodeGetParams(host, &back));
	printf("call %d, data %d\n", back.fn == count_call, back.userData == &calls);
	SHOW(cuGraphHostNodeGetParams(a, &back));

	SHOW(cuGraphClone(&clone, graph));
	SHOW(cuGraphRemoveDependencies(graph, &c, &d, NULL, 1));
	SHOW(cuGraphRemoveDependencies(graph, &c, &d, NULL, 1));
	SHOW(cuGraphDestroyNode(b));
	counts("less of it", graph);
	counts("the clone", clone);
	SHOW(cuGraphNodeFindInClone(&twin, host, clone));
	printf("another node %d\n", twin != host);
	SHOW(cuGraphNodeFindInClone(&twin, inner, clone));

	SHOW(cuGraphInstantiate(&executable, clone, 0));
	SHOW(cuGraphLaunch(executable, NULL));
	SHOW(cuCtxSynchronize());
	printf("calls %d\n", calls);
	SHOW(cuGraphLaunch(executable, NULL));
	SHOW(cuGraphLaunch(executable, NULL));
	SHOW(cuCtxSynchronize());
	printf("calls %d\n", calls);
	SHOW(cuGraphDestroy(child));
	SHOW(cuGraphDestroy(graph));
	SHOW(cuGraphDestroy(clone));
	SHOW(cuGraphLaunch(executable, NULL));
	SHOW(cuCtxSynchronize());
	printf("calls %d\n", calls);
	SHOW(cuGraphExecDestroy(executable));

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
	OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
	SHOW(cuGraphAddDependencies(graph, &b, &a, NULL, 1));
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	SHOW(cuGraphDestroy(graph));
	return 0;
}
