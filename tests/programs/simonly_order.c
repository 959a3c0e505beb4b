/*
 * Ten streams fill one word with no order between them (or, with the argument "events", ordered by events).
 * Prints the last writer, several times.
 */
#include "program.h"

#define STREAMS 10

int main(int count, char **arguments)
{
	bool ordered = count > 1 && !strcmp(arguments[1], "events");
	CUstream streams[STREAMS];
	CUevent events[STREAMS];

	start();
	CUdeviceptr p = allocate(4);
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < STREAMS; i++) {
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	}
	printf("last:");
	for (unsigned round = 0; round < 8; round++) {
		uint32_t last;
		for (unsigned i = 0; i < STREAMS; i++) {
			if (ordered && i)
				OK(cuStreamWaitEvent(streams[i], events[i - 1], 0));
			OK(cuMemsetD32Async(p, i, 1, streams[i]));
			OK(cuEventRecord(events[i], streams[i]));
		}
		OK(cuCtxSynchronize());
		OK(cuMemcpyDtoH(&last, p, sizeof(last)));
		printf(" %u", last);
	}
	printf("\n");
	return 0;
}
