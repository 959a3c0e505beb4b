/*
 * Memory of a stream that is freed and allocated again many times, without a wait of the host. With an argument, the
 * last one is written past its end, by 4 bytes.
 */
#include "program.h"

int main(int argc, char **argv)
{
	enum { ROUNDS = 24, SIZE = 40 << 20 };
	CUstream stream;
	CUdeviceptr p;
	unsigned last = 0;

	(void)argv;
	start();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 1; i <= ROUNDS; i++) {
		OK(cuMemAllocAsync(&p, SIZE, stream));
		OK(cuMemsetD32Async(p, i, 1000, stream));
		if (i < ROUNDS)
			OK(cuMemFreeAsync(p, stream));
	}
	OK(cuMemsetD32Async(p + SIZE - 4, 7, argc > 1 ? 2 : 1, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH(&last, p + 999 * 4, 4));
	printf("value %u\n", last);
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamSynchronize(stream));
	return 0;
}
