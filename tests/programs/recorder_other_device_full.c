/*
 * Two devices (TT_SIM_DEVICES=2). One waits for the host; the other runs out of memory, and its failing
 * call does not wait for the first.
 */
#include "program.h"

int main(void)
{
	CUcontext waiting, full;
	CUstream stream, release;
	CUdeviceptr word, p, giant;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&full, 0));
	OK(cuDevicePrimaryCtxRetain(&waiting, 1));
	OK(cuCtxSetCurrent(full));
	p = allocate(400);
	OK(cuCtxSetCurrent(waiting));
	word = allocate(4);
	OK(cuMemsetD32(word, 0, 1));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&release, CU_STREAM_NON_BLOCKING));
	SHOW(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuCtxSetCurrent(full));
	SHOW(cuMemAlloc(&giant, (size_t)1 << 38));
	OK(cuMemsetD32(p, 9, 100));
	print_words("still there", p, 2);
	OK(cuCtxSetCurrent(waiting));
	SHOW(cuStreamWriteValue32(release, word, 1, 0));
	SHOW(cuStreamSynchronize(stream));
	return 0;
}
