/*
 * A stream is captured into a graph that holds another captured graph twice, once more inside a third: with tt_epoch after
 * each kernel. Each kernel adds to a or to b. The graph is launched three times, updated from another, and launched again.
 */
#include "graph_marks.h"

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

	start();
	CUstream stream = begin(0, 0);
	graph = outer(stream, 1);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	launch_thrice(exec, stream);
	other = outer(stream, 10);
	OK(cuGraphExecUpdate(exec, other, &info));
	OK(cuGraphDestroy(other));
	finish(exec, stream);
	return 0;
}
