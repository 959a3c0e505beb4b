/* Stream captures that end without cuStreamEndCapture, with three steps after each. */
#include "program.h"

static void steps(CUdeviceptr p)
{
	for (int i = 0; i < 3; i++) {
		OK(cuMemsetD8(p, (unsigned char)(i + 1), 1000));
		OK(cuCtxSynchronize());
	}
}

int main(void)
{
	CUstream first, second;
	CUcontext own, other;
	CUgraph graph = NULL;
	CUevent event;

	CUdevice device = start();
	CUdeviceptr p = allocate(1000);
	OK(cuCtxGetCurrent(&own));
	OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, 0));
	steps(p);
	OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED)); /* a stream goes that had joined it */
	OK(cuMemsetD8Async(p, 9, 1000, first));
	OK(cuEventRecord(event, first));
	OK(cuStreamWaitEvent(second, event, 0));
	OK(cuStreamDestroy(second));
	SHOW(cuStreamEndCapture(first, &graph));
	steps(p);
	OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED)); /* its own goes */
	OK(cuStreamDestroy(first));
	steps(p);
	OK(cuCtxCreate(&other, NULL, 0, device)); /* its context goes */
	OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuCtxDestroy(other));
	OK(cuCtxSetCurrent(own));
	steps(p);
	return 0;
}
