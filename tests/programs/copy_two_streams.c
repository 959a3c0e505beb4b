/* Device-to-device copies of overlapping ranges in two streams, put in order by events. */
#include "program.h"

int main(void)
{
	enum { SIZE = 300000 };
	unsigned char *in = pattern(SIZE, 1);
	CUstream streams[2];
	CUevent done;

	start();
	CUdeviceptr a = allocate(SIZE), b = allocate(SIZE);
	OK(cuMemcpyHtoD(a, in, SIZE));
	OK(cuMemsetD8(b, 0, SIZE));
	OK(cuCtxSynchronize());
	OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 10; i++) {
		CUstream now = streams[i % 2], next = streams[(i + 1) % 2];

		OK(cuMemcpyDtoDAsync(b + 10000 * i, a + 777 * i, 100000, now));
		OK(cuMemcpyDtoDAsync(a + 5000 * i, b + 3333 * i, 50000, now));
		OK(cuEventRecord(done, now));
		OK(cuStreamWaitEvent(next, done, 0));
	}
	OK(cuStreamSynchronize(streams[0]));
	OK(cuStreamSynchronize(streams[1]));
	print_device("a", a, SIZE);
	print_device("b", b, SIZE);
	for (unsigned i = 0; i < 2; i++)
		OK(cuStreamDestroy(streams[i]));
	OK(cuEventDestroy(done));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	free(in);
	return 0;
}
