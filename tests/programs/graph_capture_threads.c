/*
 * While a stream is captured in global mode, another thread may not allocate, unless it has said
 * that it knows what it does; a forbidden call spoils the capture.
 */
#include "program.h"

#include <pthread.h>

static CUcontext context;
static bool relax;

static void *allocate_elsewhere(void *unused)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;

	OK(cuCtxSetCurrent(context));
	if (relax)
		SHOW(cuThreadExchangeStreamCaptureMode(&mode));
	SHOW(cuMemAlloc(&p, 1000));
	return unused;
}

static void capture(CUstream stream, CUdeviceptr p)
{
	CUstreamCaptureStatus status;
	pthread_t thread;
	CUgraph graph = NULL;

	printf("%s\n", relax ? "relaxed" : "strict");
	SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(cuMemsetD8Async(p, 1, 500, stream));
	pthread_create(&thread, NULL, allocate_elsewhere, NULL);
	pthread_join(thread, NULL);
	SHOW(cuStreamIsCapturing(stream, &status));
	printf("capturing %d\n", (int)status);
	SHOW(cuMemsetD8Async(p, 2, 500, stream));
	SHOW(cuStreamEndCapture(stream, &graph));
	printf("a graph %d\n", graph != NULL);
	if (graph)
		SHOW(cuGraphDestroy(graph));
}

int main(void)
{
	CUstream stream;

	start();
	OK(cuCtxGetCurrent(&context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUdeviceptr p = allocate(1000);
	OK(cuMemsetD8(p, 0, 1000));
	OK(cuCtxSynchronize());
	capture(stream, p);
	relax = true;
	capture(stream, p);
	print_device("untouched", p, 1000);
	return 0;
}
