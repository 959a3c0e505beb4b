/*
 * A graph with two conditional nodes, one of which runs its body, with tt_epoch after each kernel. Each kernel adds to a or
 * to b. The graph is launched three times, updated from another, and launched again.
 */
#include "graph_marks.h"

static CUcontext context;
/* The last node that was captured into a graph. */
static CUgraphNode capture(CUstream stream, CUgraph graph, CUgraphNode after, CUdeviceptr p, unsigned by, const char *label)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *last;
	CUgraphNode node;
	CUgraph same;
	size_t n;

	OK(cuStreamBeginCaptureToGraph(stream, graph, &after, NULL, after != NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	count(stream, p, by, label);
	OK(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &last, NULL, &n));
	node = last[0];
	OK(cuStreamEndCapture(stream, &same));
	return node;
}

/* An IF node after another, with its body. */
static CUgraphNode branch(CUstream stream, CUgraph graph, CUgraphNode after, bool runs, unsigned by, const char *label)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraphNode node;

	OK(cuGraphConditionalHandleCreate(&p.conditional.handle, graph, context, runs, CU_GRAPH_COND_ASSIGN_DEFAULT));
	p.conditional.type = CU_GRAPH_COND_TYPE_IF;
	p.conditional.size = 1;
	p.conditional.ctx = context;
	OK(cuGraphAddNode(&node, graph, &after, NULL, 1, &p));
	CUgraphNode inside = capture(stream, p.conditional.phGraph_out[0], NULL, b, by, label);
	capture(stream, p.conditional.phGraph_out[0], inside, a, by, label);
	return node;
}

static CUgraph whole(CUstream stream, unsigned by)
{
	CUgraph graph;
	CUgraphNode node;

	OK(cuGraphCreate(&graph, 0));
	node = capture(stream, graph, NULL, a, by, "first");
	node = branch(stream, graph, node, true, by, "runs");
	node = branch(stream, graph, node, false, by, "does not");
	capture(stream, graph, node, a, by, "last");
	return graph;
}

int main(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, other;
	CUgraphExec exec;

	start();
	OK(cuCtxGetCurrent(&context));
	CUstream stream = begin(0, 0);
	graph = whole(stream, 1);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	launch_thrice(exec, stream);
	OK(cuStreamSynchronize(stream));
	other = whole(stream, 10);
	CUresult updated = cuGraphExecUpdate(exec, other, &info);
	printf("~ %s\n", result_name(updated));
	if (updated != CUDA_SUCCESS) {
		OK(cuGraphExecDestroy(exec));
		OK(cuGraphInstantiateWithFlags(&exec, other, 0));
	}
	OK(cuGraphDestroy(other));
	finish(exec, stream);
	OK(cuGraphDestroy(graph));
	return 0;
}
