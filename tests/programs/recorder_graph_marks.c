/*
 * A stream is captured into a graph, with tt_epoch after each kernel. Each kernel adds 1 to a. An argument is the
 * number of kernels. The graph is launched three times without a wait, then cloned, updated and launched again.
 */
#include "graph_marks.h"

static CUgraph captured(CUstream stream, unsigned kernels, unsigned by)
{
	CUgraph graph;
	char label[32];

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (unsigned i = 0; i < kernels; i++) {
		snprintf(label, sizeof(label), "added %u", i);
		count(stream, a, by, label);
	}
	OK(cuStreamEndCapture(stream, &graph));
	return graph;
}

int main(int argc, char **argv)
{
	unsigned kernels = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, clone, other;
	CUgraphExec exec;

	start();
	CUstream stream = begin(0, 1);
	graph = captured(stream, kernels, 1);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphDestroy(graph));
	OK(cuGraphInstantiateWithFlags(&exec, clone, 0));
	OK(cuGraphDestroy(clone));
	launch_thrice(exec, stream);
	other = captured(stream, kernels, 10);
	OK(cuGraphExecUpdate(exec, other, &info));
	OK(cuGraphDestroy(other));
	finish(exec, stream);
	return 0;
}
