/* Events: made, recorded, waited for, timed, and misused. */
#include "program.h"

int main(void)
{
	unsigned n = 10000, rounds = 100;
	CUevent begin, end, untimed;
	CUstream stream;
	float ms = -1;

	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr p = allocate(n * 4);
	OK(cuMemsetD8(p, 0, n * 4));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	SHOW(cuEventCreate(&begin, CU_EVENT_DEFAULT));
	SHOW(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
	SHOW(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	SHOW(cuEventQuery(begin));
	SHOW(cuEventSynchronize(begin));
	SHOW(cuEventElapsedTime(&ms, begin, end));
	SHOW(cuEventRecord(begin, stream));
	OK(launch(mix, n, stream, PARAMS(&p, &n, &rounds)));
	SHOW(cuEventRecordWithFlags(end, stream, CU_EVENT_RECORD_DEFAULT));
	SHOW(cuEventRecord(untimed, stream));
	SHOW(cuEventSynchronize(end));
	SHOW(cuEventElapsedTime(&ms, begin, end));
	printf("time passed %d\n", ms >= 0);
	SHOW(cuEventSynchronize(untimed));
	SHOW(cuEventElapsedTime(&ms, begin, untimed));
	SHOW(cuEventQuery(untimed));
	SHOW(cuStreamWaitEvent(NULL, end, 0));
	SHOW(cuCtxSynchronize());
	SHOW(cuEventRecord(NULL, stream));
	SHOW(cuEventCreate(&end, 1 << 20));
	SHOW(cuEventDestroy(begin));
	SHOW(cuEventDestroy(NULL));
	print_device("result", p, n * 4);
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	return 0;
}
