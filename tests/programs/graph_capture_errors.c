/* Calls that a capture forbids, and what they do to it. */
#include "program.h"

static CUstream stream, blocking;

static void begin(const char *what)
{
	printf("%s\n", what);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void end(void)
{
	CUgraph graph = NULL;

	SHOW(cuStreamEndCapture(stream, &graph));
	if (graph)
		OK(cuGraphDestroy(graph));
}

int main(void)
{
	CUgraph graph;
	CUdeviceptr q;
	CUevent event, outside;
	CUstream other;
	unsigned char out[4];

	start();
	CUdeviceptr p = allocate(1000);
	OK(cuMemsetD8(p, 0, 1000));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
	SHOW(cuStreamEndCapture(stream, &graph));
	SHOW(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	begin("empty");
	SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	end();
	begin("wait for the stream");
	SHOW(cuStreamSynchronize(stream));
	end();
	begin("query the stream");
	SHOW(cuStreamQuery(stream));
	end();
	begin("wait for the context");
	SHOW(cuCtxSynchronize());
	end();
	begin("allocate");
	SHOW(cuMemAlloc(&q, 100));
	end();
	begin("copy and wait");
	SHOW(cuMemcpyHtoD(p, "abc", 3));
	SHOW(cuMemcpyDtoD(p + 500, p, 3));
	SHOW(cuMemsetD8(p + 600, 2, 5));
	SHOW(cuMemcpyDtoH(out, p + 500, 4));
	print_host("copied", out, 4);
	end();
	begin("wait for another stream");
	SHOW(cuStreamSynchronize(other));
	end();
	begin("query another stream");
	SHOW(cuStreamQuery(other));
	end();
	begin("wait for an event of another stream");
	OK(cuEventRecord(outside, other));
	SHOW(cuEventSynchronize(outside));
	end();
	begin("query an event of another stream");
	SHOW(cuEventQuery(outside));
	end();
	begin("an event from outside");
	OK(cuEventRecord(event, blocking));
	SHOW(cuStreamWaitEvent(stream, event, 0));
	end();
	begin("wait for an event inside");
	OK(cuEventRecord(event, stream));
	SHOW(cuEventSynchronize(event));
	end();
	begin("query an event inside");
	OK(cuEventRecord(event, stream));
	SHOW(cuEventQuery(event));
	end();
	SHOW(cuEventQuery(event));
	begin("leave a stream unjoined");
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(blocking, event, 0));
	OK(cuMemsetD8Async(p, 1, 1, blocking));
	end();
	print_device("copied only", p, 1000);
	return 0;
}
