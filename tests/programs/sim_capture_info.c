/* The state of a capture, streams that join it, and changes of the dependencies of its next node. */
#include "program.h"

static void info(const char *name, CUstream stream)
{
	CUstreamCaptureStatus status = 77;
	const CUgraphNode *nodes = NULL;
	const CUgraphEdgeData *data = NULL;
	cuuint64_t id = 0;
	CUgraph graph = NULL;
	size_t count = 0;
	CUresult r = cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &data, &count);

	printf("%s: %s, status %d, an id %d, a graph %d, after %zu\n", name, result_name(r), (int)status, id != 0, graph != NULL,
	       count);
}

int main(void)
{
	CUstream one, two;
	CUevent fork_event, join_event;
	CUgraph graph, own;
	CUgraphNode extra;
	CUgraphExec executable;
	CUstreamCaptureStatus status;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr q;
	size_t count = 0, edges = 0;

	start();
	CUdeviceptr p = allocate(1000);
	OK(cuMemsetD8(p, 0, 1000));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
	info("idle", one);
	OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	info("begun", one);
	OK(cuMemsetD8Async(p, 1, 1000, one));
	info("one node", one);
	OK(cuEventRecord(fork_event, one));
	SHOW(cuStreamWaitEvent(two, fork_event, 0));
	info("joined", two);
	OK(cuMemsetD8Async(p, 2, 100, one));
	OK(cuMemsetD8Async(p + 500, 3, 100, two));
	OK(cuEventRecord(join_event, two));
	SHOW(cuStreamWaitEvent(one, join_event, 0));
	info("both", one);
	SHOW(cuStreamGetCaptureInfo_v2(one, &status, NULL, &own, NULL, NULL));
	SHOW(cuGraphAddEmptyNode(&extra, own, NULL, 0));
	SHOW(cuStreamUpdateCaptureDependencies(one, &extra, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	info("added", one);
	OK(cuMemcpyDtoDAsync(p + 200, p, 100, one));
	info("after it", one);
	SHOW(cuStreamEndCapture(two, &graph));
	info("ended by the wrong stream", one);
	SHOW(cuStreamEndCapture(one, &graph));
	printf("a graph %d\n", graph != NULL);
	info("over", one);
	info("over", two);

	SHOW(cuThreadExchangeStreamCaptureMode(&mode));
	printf("mode was %d\n", (int)mode);
	OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(cuMemAlloc(&q, 100));
	OK(cuMemsetD8Async(p, 4, 1000, one));
	OK(cuEventRecord(fork_event, one));
	OK(cuStreamWaitEvent(two, fork_event, 0));
	OK(cuMemsetD8Async(p, 5, 500, two));
	OK(cuEventRecord(join_event, two));
	OK(cuStreamWaitEvent(one, join_event, 0));
	OK(cuMemcpyDtoDAsync(p + 900, p, 50, one));
	SHOW(cuStreamEndCapture(one, &graph));
	SHOW(cuThreadExchangeStreamCaptureMode(&mode));
	printf("mode was %d\n", (int)mode);
	OK(cuGraphGetNodes(graph, NULL, &count));
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
	printf("%zu nodes, %zu edges\n", count, edges);
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	SHOW(cuGraphLaunch(executable, two));
	SHOW(cuStreamSynchronize(two));
	print_device("run", p, 1000);
	OK(cuGraphExecDestroy(executable));

	SHOW(cuStreamBeginCaptureToGraph(one, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	info("to a graph", one);
	OK(cuMemsetD8Async(p, 6, 10, one));
	SHOW(cuStreamEndCapture(one, &own));
	printf("the same graph %d\n", own == graph);
	OK(cuGraphGetNodes(graph, NULL, &count));
	printf("%zu nodes\n", count);
	OK(cuGraphDestroy(graph));
	SHOW(cuMemFree(q));
	OK(cuMemFree(p));
	return 0;
}
