/*
 * Several threads and streams share captures: threads record into one capture and another thread ends it,
 * two captures are mixed, one is ended in another stream than that where it began. An invalidated capture
 * stays invalid until it ends; then the streams work again.
 */
#include "program.h"

#include <pthread.h>

#define THREADS 3
#define N 4000

static CUcontext context;
static CUfunction fill, add;
static CUstream origin;
static CUevent forked;

struct part {
	pthread_t thread;
	CUstream stream;
	CUevent joined;
	CUdeviceptr p;
	unsigned value;
};

static void *record_part(void *data)
{
	struct part *part = data;
	unsigned n = N;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamWaitEvent(part->stream, forked, 0));
	for (unsigned i = 0; i < 4; i++)
		OK(launch(add, n, part->stream, PARAMS(&part->p, &n, &part->value)));
	OK(cuEventRecord(part->joined, part->stream));
	return NULL;
}

static void *end_elsewhere(void *graph)
{
	OK(cuCtxSetCurrent(context));
	SHOW(cuStreamEndCapture(origin, graph));
	return NULL;
}

static void from_threads(CUdeviceptr p)
{
	struct part parts[THREADS];
	CUgraphExec executable;
	unsigned n = N, one = 1;
	CUgraph graph;
	size_t nodes, edges;

	for (unsigned i = 0; i < THREADS; i++) {
		parts[i] = (struct part){.p = allocate(N * 4), .value = i + 1};
		OK(cuMemsetD32(parts[i].p, 0, N));
		OK(cuStreamCreate(&parts[i].stream, CU_STREAM_NON_BLOCKING));
		OK(cuEventCreate(&parts[i].joined, CU_EVENT_DISABLE_TIMING));
	}
	OK(cuCtxSynchronize());
	OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(launch(fill, n, origin, PARAMS(&p, &n, &one)));
	OK(cuEventRecord(forked, origin));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&parts[i].thread, NULL, record_part, &parts[i]);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(parts[i].thread, NULL);
		OK(cuStreamWaitEvent(origin, parts[i].joined, 0));
	}
	OK(launch(add, n, origin, PARAMS(&p, &n, &one)));
	SHOW(cuStreamEndCapture(origin, &graph));
	OK(cuGraphGetNodes(graph, NULL, &nodes));
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
	printf("%zu nodes, %zu edges\n", nodes, edges);
	OK(cuGraphInstantiate(&executable, graph, 0));
	for (unsigned i = 0; i < 5; i++)
		OK(cuGraphLaunch(executable, origin));
	OK(cuStreamSynchronize(origin));
	print_words("origin", p, 3);
	for (unsigned i = 0; i < THREADS; i++) {
		print_words("part", parts[i].p, 3);
		OK(cuStreamDestroy(parts[i].stream));
		OK(cuEventDestroy(parts[i].joined));
		OK(cuMemFree(parts[i].p));
	}
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
}

static void ended_by_another(CUdeviceptr p, CUstreamCaptureMode mode, const char *name)
{
	CUstreamCaptureStatus status;
	CUgraph graph = NULL;
	pthread_t thread;

	printf("%s: another thread ends it\n", name);
	OK(cuStreamBeginCapture(origin, mode));
	OK(cuMemsetD32Async(p, 5, N, origin));
	pthread_create(&thread, NULL, end_elsewhere, &graph);
	pthread_join(thread, NULL);
	OK(cuStreamIsCapturing(origin, &status));
	if (status != CU_STREAM_CAPTURE_STATUS_NONE)
		SHOW(cuStreamEndCapture(origin, &graph));
	printf("a graph %d\n", graph != NULL);
	if (graph)
		OK(cuGraphDestroy(graph));
}

static void still_works(CUstream stream, CUdeviceptr p)
{
	unsigned n = N, value = 77;

	SHOW(launch(fill, n, stream, PARAMS(&p, &n, &value)));
	SHOW(cuStreamSynchronize(stream));
	print_words("works", p, 3);
}

int main(void)
{
	CUgraph graph = NULL, second = NULL;
	CUstream other;

	start();
	OK(cuCtxGetCurrent(&context));
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	CUdeviceptr p = allocate(N * 4);
	OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));

	from_threads(p);
	ended_by_another(p, CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
	ended_by_another(p, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread local");

	printf("two captures are mixed\n");
	OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD32Async(p, 1, N, origin));
	OK(cuEventRecord(forked, origin));
	SHOW(cuStreamWaitEvent(other, forked, 0));
	SHOW(cuMemsetD32Async(p, 2, N, other));
	SHOW(cuStreamEndCapture(origin, &graph));
	SHOW(cuStreamEndCapture(other, &second));
	still_works(origin, p);
	still_works(other, p);

	printf("ended where it did not begin\n");
	OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD32Async(p, 3, N, origin));
	OK(cuEventRecord(forked, origin));
	OK(cuStreamWaitEvent(other, forked, 0));
	SHOW(cuStreamEndCapture(other, &second));
	SHOW(cuStreamEndCapture(origin, &graph));
	still_works(origin, p);
	still_works(other, p);
	OK(cuStreamDestroy(origin));
	OK(cuStreamDestroy(other));
	OK(cuMemFree(p));
	return 0;
}
