/*
 * During a capture in global mode, another thread may not allocate, wait or query unless it relaxed its
 * mode. A forbidden call invalidates the capture. Captures in other modes do not restrict other threads.
 */
#include "program.h"

#include <pthread.h>

enum call {
	ALLOCATE, FREE, WAIT_FOR_STREAM, QUERY_STREAM, WAIT_FOR_EVENT, QUERY_EVENT, COPY, SUBMIT, CALLS
};

static const char *const modes[] = {"global", "thread local", "relaxed"};
static CUcontext context;
static CUstream other;
static CUevent event;
static CUdeviceptr q;
static CUstreamCaptureMode thread_mode;
static enum call call;

static void *call_elsewhere(void *unused)
{
	unsigned char out[4];
	CUdeviceptr p;

	OK(cuCtxSetCurrent(context));
	OK(cuThreadExchangeStreamCaptureMode(&thread_mode));
	switch (call) {
	case ALLOCATE:
		SHOW(cuMemAlloc(&p, 1000));
		break;
	case FREE:
		SHOW(cuMemFree(q));
		break;
	case WAIT_FOR_STREAM:
		SHOW(cuStreamSynchronize(other));
		break;
	case QUERY_STREAM:
		SHOW(cuStreamQuery(other));
		break;
	case WAIT_FOR_EVENT:
		SHOW(cuEventSynchronize(event));
		break;
	case QUERY_EVENT:
		SHOW(cuEventQuery(event));
		break;
	case COPY:
		SHOW(cuMemcpyDtoH(out, q, 4));
		break;
	default:
		SHOW(cuMemsetD8Async(q, 3, 4, other));
		SHOW(cuEventRecord(event, other));
	}
	return unused;
}

static void capture(CUstream stream, CUdeviceptr p, CUstreamCaptureMode mode, CUstreamCaptureMode elsewhere)
{
	CUstreamCaptureStatus status;
	pthread_t thread;
	CUgraph graph = NULL;

	printf("captured %s, a thread %s\n", modes[mode], modes[elsewhere]);
	thread_mode = elsewhere;
	OK(cuStreamBeginCapture(stream, mode));
	OK(cuMemsetD8Async(p, 1, 500, stream));
	pthread_create(&thread, NULL, call_elsewhere, NULL);
	pthread_join(thread, NULL);
	OK(cuStreamIsCapturing(stream, &status));
	printf("capturing %d\n", (int)status);
	SHOW(cuMemsetD8Async(p, 2, 500, stream));
	SHOW(cuStreamEndCapture(stream, &graph));
	printf("a graph %d\n", graph != NULL);
	if (graph)
		OK(cuGraphDestroy(graph));
}

int main(void)
{
	CUstream stream;

	start();
	OK(cuCtxGetCurrent(&context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CUdeviceptr p = allocate(1000);
	OK(cuMemsetD8(p, 0, 1000));
	for (call = ALLOCATE; call < CALLS; call++) {
		q = allocate(1000);
		OK(cuEventRecord(event, other));
		OK(cuCtxSynchronize());
		capture(stream, p, CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
	}
	for (call = ALLOCATE; call < CALLS; call++) {
		CUstreamCaptureMode capturing[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
						   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
		CUstreamCaptureMode calling[] = {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						 CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL};
		for (unsigned i = 0; i < 4; i++) {
			q = allocate(1000);
			OK(cuEventRecord(event, other));
			OK(cuCtxSynchronize());
			capture(stream, p, capturing[i], calling[i]);
		}
	}
	print_device("untouched", p, 1000);
	return 0;
}
