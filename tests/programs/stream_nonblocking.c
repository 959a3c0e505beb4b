/* Non-blocking streams, ordered only by events. */
#include "program.h"

int main(void)
{
	enum { STREAMS = 4 };
	unsigned n = 20000, rounds = 100;
	CUstream streams[STREAMS];
	CUevent events[STREAMS], start_event;
	CUdeviceptr p[STREAMS], sum;

	start();
	CUmodule module = load_kernels();
	CUfunction mix = get_kernel(module, "mix"), copy = get_kernel(module, "copy");
	sum = allocate(STREAMS * n * 4);
	OK(cuEventCreate(&start_event, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < STREAMS; i++) {
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
		p[i] = allocate(n * 4);
	}
	OK(cuMemsetD8Async(sum, 0, STREAMS * n * 4, streams[0]));
	OK(cuEventRecord(start_event, streams[0]));
	for (unsigned i = 0; i < STREAMS; i++) {
		OK(cuStreamWaitEvent(streams[i], start_event, 0));
		OK(cuMemsetD32Async(p[i], i, n, streams[i]));
		OK(launch(mix, n, streams[i], PARAMS(&p[i], &n, &rounds)));
		OK(cuEventRecord(events[i], streams[i]));
	}
	for (unsigned i = 0; i < STREAMS; i++) {
		CUdeviceptr part = sum + i * n * 4;
		OK(cuStreamWaitEvent(streams[1], events[i], 0));
		OK(launch(copy, n, streams[1], PARAMS(&part, &p[i], &n)));
	}
	SHOW(cuEventRecord(events[0], streams[1]));
	SHOW(cuEventSynchronize(events[0]));
	SHOW(cuEventQuery(events[0]));
	SHOW(cuStreamQuery(streams[1]));
	print_device("parts", sum, STREAMS * n * 4);
	for (unsigned i = 0; i < STREAMS; i++) {
		OK(cuStreamDestroy(streams[i]));
		OK(cuEventDestroy(events[i]));
		OK(cuMemFree(p[i]));
	}
	OK(cuMemFree(sum));
	return 0;
}
