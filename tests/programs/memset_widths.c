/* Sets of 8, 16 and 32 bits, synchronous and asynchronous, at all valid alignments. */
#include "program.h"

int main(void)
{
	enum { SIZE = 70000 };
	CUstream stream;

	start();
	CUdeviceptr p = allocate(SIZE);
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	SHOW(cuMemsetD8(p, 0x11, SIZE));
	print_device("all", p, SIZE);
	SHOW(cuMemsetD8(p + 3, 0x22, 65537));
	SHOW(cuMemsetD16(p + 2, 0x3344, 7));
	SHOW(cuMemsetD32(p + 65532, 0x55667788, 2));
	print_device("parts", p, SIZE);
	SHOW(cuMemsetD8Async(p + 69999, 0x99, 1, stream));
	SHOW(cuMemsetD16Async(p + 40000, 0xaabb, 5000, stream));
	SHOW(cuMemsetD32Async(p + 4, 0xccddeeff, 1, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("in a stream", p, SIZE);
	SHOW(cuMemsetD8(p, 1, 0));
	SHOW(cuMemsetD16(p + 1, 1, 1));
	SHOW(cuMemsetD32(p + 2, 1, 1));
	SHOW(cuMemsetD32Async(p + 1, 1, 1, stream));
	print_device("after those that fail", p, SIZE);
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	return 0;
}
