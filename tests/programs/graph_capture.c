/* A stream captured into a graph, which is launched several times. */
#include "program.h"

static unsigned calls;

static void count_call(void *unused)
{
	(void)unused;
	calls++;
}

int main(void)
{
	unsigned n = 5000, rounds = 3, value = 1;
	CUstreamCaptureStatus status;
	CUstream stream, side;
	CUevent fork_event, join_event;
	CUgraph graph;
	CUgraphExec executable;
	size_t nodes = 0;

	start();
	CUmodule module = load_kernels();
	CUfunction mix = get_kernel(module, "mix"), add = get_kernel(module, "add");
	CUdeviceptr a = allocate(n * 4), b = allocate(n * 4);
	OK(cuMemsetD8(a, 0, n * 4));
	OK(cuMemsetD8(b, 0, n * 4));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));

	SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	SHOW(cuStreamIsCapturing(stream, &status));
	printf("capturing %d\n", (int)status);
	SHOW(launch(mix, n, stream, PARAMS(&a, &n, &rounds)));
	SHOW(cuEventRecord(fork_event, stream));
	SHOW(cuStreamWaitEvent(side, fork_event, 0));
	SHOW(launch(add, n, side, PARAMS(&b, &n, &value)));
	SHOW(cuEventRecord(join_event, side));
	SHOW(launch(add, n, stream, PARAMS(&a, &n, &value)));
	SHOW(cuStreamWaitEvent(stream, join_event, 0));
	SHOW(cuMemcpyDtoDAsync(b, a, 400, stream));
	SHOW(cuMemsetD32Async(a, 0, 1, stream));
	SHOW(cuLaunchHostFunc(stream, count_call, NULL));
	SHOW(cuStreamEndCapture(stream, &graph));
	SHOW(cuGraphGetNodes(graph, NULL, &nodes));
	printf("%zu nodes\n", nodes);
	print_device("nothing ran yet", a, n * 4);

	SHOW(cuGraphInstantiate(&executable, graph, 0));
	for (unsigned i = 0; i < 3; i++) {
		SHOW(cuGraphLaunch(executable, stream));
		SHOW(cuStreamSynchronize(stream));
		print_device("a", a, n * 4);
		print_device("b", b, n * 4);
	}
	printf("%u calls\n", calls);
	SHOW(cuGraphExecDestroy(executable));
	SHOW(cuGraphDestroy(graph));
	OK(cuStreamDestroy(stream));
	OK(cuStreamDestroy(side));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	return 0;
}
