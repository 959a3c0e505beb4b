/*
 * During a capture, the program records events and waits for events that do not belong to it. They become
 * nodes that order each launch of the graph with other streams.
 */
#include "program.h"

int main(void)
{
	unsigned n = 3000, one = 1;
	CUgraphNode nodes[8];
	CUgraphNodeType type;
	CUgraphExec executable;
	CUevent before, after;
	CUstream stream, other;
	size_t count = 8;
	CUgraph graph;

	start();
	CUmodule module = load_kernels();
	CUfunction fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	CUdeviceptr p = allocate(n * 4), out = allocate(n * 4);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
	SHOW(cuEventRecordWithFlags(before, stream, CU_EVENT_RECORD_EXTERNAL));
	SHOW(cuStreamWaitEvent(stream, before, CU_EVENT_WAIT_EXTERNAL));

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(cuStreamWaitEvent(stream, before, CU_EVENT_WAIT_EXTERNAL));
	SHOW(launch(add, n, stream, PARAMS(&p, &n, &one)));
	SHOW(cuEventRecordWithFlags(after, stream, CU_EVENT_RECORD_EXTERNAL));
	SHOW(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, nodes, &count));
	for (size_t i = 0; i < count; i++) {
		OK(cuGraphNodeGetType(nodes[i], &type));
		printf("type %d\n", (int)type);
	}
	OK(cuGraphInstantiate(&executable, graph, 0));
	for (unsigned i = 0; i < 4; i++) {
		unsigned value = 1000 * i;
		OK(launch(fill, n, other, PARAMS(&p, &n, &value)));
		OK(cuEventRecord(before, other));
		OK(cuGraphLaunch(executable, stream));
		OK(cuStreamWaitEvent(other, after, 0));
		OK(cuMemcpyDtoDAsync(out, p, n * 4, other));
		OK(cuStreamSynchronize(other));
		print_words("out", out, 4);
	}
	SHOW(cuEventSynchronize(after));
	SHOW(cuEventQuery(after));
	OK(cuStreamSynchronize(stream));
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy(stream));
	OK(cuStreamDestroy(other));
	OK(cuEventDestroy(before));
	OK(cuEventDestroy(after));
	OK(cuMemFree(p));
	OK(cuMemFree(out));
	return 0;
}
