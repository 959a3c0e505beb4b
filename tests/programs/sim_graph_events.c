/* Event nodes in a graph order it against streams outside. */
#include "program.h"

int main(void)
{
	CUcontext context;
	CUevent before, after, back;
	CUgraph graph;
	CUgraphNode wait, set, record;
	CUgraphExec executable;
	CUstream stream, other;

	start();
	OK(cuCtxGetCurrent(&context));
	CUdeviceptr p = allocate(400), copy = allocate(400);
	OK(cuMemsetD8(p, 0, 400));
	OK(cuMemsetD8(copy, 0, 400));
	OK(cuCtxSynchronize());
	OK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CUDA_MEMSET_NODE_PARAMS params = {.dst = p, .value = 5, .elementSize = 1, .width = 400, .height = 1};

	OK(cuGraphCreate(&graph, 0));
	SHOW(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, before));
	SHOW(cuGraphAddMemsetNode(&set, graph, &wait, 1, &params, context));
	SHOW(cuGraphAddEventRecordNode(&record, graph, &set, 1, after));
	SHOW(cuGraphEventRecordNodeGetEvent(record, &back));
	printf("the event %d\n", back == after);
	SHOW(cuGraphEventWaitNodeGetEvent(record, &back));
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	for (int round = 1; round < 4; round++) {
		/* First fill, then the graph's fill, then the copy: through events alone. */
		OK(cuMemsetD8Async(p, (unsigned char)(100 + round), 400, other));
		OK(cuMemcpyDtoDAsync(copy + 200, p, 100, other));
		OK(cuEventRecord(before, other));
		SHOW(cuGraphLaunch(executable, stream));
		OK(cuStreamWaitEvent(other, after, 0));
		OK(cuMemcpyDtoDAsync(copy, p, 200, other));
		OK(cuStreamSynchronize(other));
		print_device("copied", copy, 400);
	}
	OK(cuStreamSynchronize(stream));
	SHOW(cuGraphEventRecordNodeSetEvent(record, before));
	SHOW(cuGraphExecEventRecordNodeSetEvent(executable, record, before));
	SHOW(cuGraphExecDestroy(executable));
	SHOW(cuGraphDestroy(graph));
	OK(cuMemFree(p));
	OK(cuMemFree(copy));
	return 0;
}
