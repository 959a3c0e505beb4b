/* Two-dimensional sets leave the bytes between rows unchanged. */
#include "program.h"

int main(void)
{
	enum { SIZE = 100000, PITCH = 1000 };
	CUstream stream;

	start();
	CUdeviceptr p = allocate(SIZE);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD8(p, 0, SIZE));
	SHOW(cuMemsetD2D8(p + 1, PITCH, 0x12, 333, 100));
	print_device("bytes", p, SIZE);
	SHOW(cuMemsetD2D16(p + 400, PITCH, 0x3456, 33, 50));
	print_device("halves", p, SIZE);
	SHOW(cuMemsetD2D32(p + 600, PITCH, 0x789abcde, 100, 100));
	print_device("words", p, SIZE);
	SHOW(cuMemsetD2D8Async(p + 2000, PITCH, 0xf0, 7, 3, stream));
	SHOW(cuMemsetD2D16Async(p + 3000, PITCH, 0xf1f2, 7, 3, stream));
	SHOW(cuMemsetD2D32Async(p + 4000, PITCH, 0xf3f4f5f6, 7, 3, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("in a stream", p, SIZE);
	SHOW(cuMemsetD2D8(p, PITCH, 1, 0, 10));
	SHOW(cuMemsetD2D8(p, PITCH, 1, 10, 0));
	print_device("nothing", p, SIZE);
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	return 0;
}
