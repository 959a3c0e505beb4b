/* One-dimensional copies in every direction, waiting and not, and by unified addresses. */
#include "program.h"

int main(void)
{
	enum { SIZE = 100001 };
	unsigned char *in = pattern(SIZE, 1), *out = malloc(SIZE), *pinned;
	CUstream stream;

	start();
	CUdeviceptr a = allocate(SIZE), b = allocate(SIZE);
	OK(cuMemAllocHost((void **)&pinned, SIZE));
	fill_pattern(pinned, SIZE, 2);
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));

	SHOW(cuMemcpyHtoD(a, in, SIZE));
	SHOW(cuMemcpyDtoD(b, a, SIZE));
	SHOW(cuMemcpyDtoH(out, b, SIZE));
	print_host("there and back", out, SIZE);

	SHOW(cuMemcpyHtoDAsync(a, pinned, SIZE, stream));
	SHOW(cuMemcpyDtoDAsync(b, a, SIZE - 1, stream));
	SHOW(cuMemcpyDtoHAsync(out, b, SIZE, stream));
	SHOW(cuStreamSynchronize(stream));
	print_host("in a stream", out, SIZE);

	SHOW(cuMemcpy(a, (CUdeviceptr)(uintptr_t)in, SIZE));
	SHOW(cuMemcpy(b, a, SIZE));
	SHOW(cuMemcpy((CUdeviceptr)(uintptr_t)out, b, SIZE));
	print_host("unified", out, SIZE);
	SHOW(cuMemcpyAsync(b, (CUdeviceptr)(uintptr_t)pinned, 500, stream));
	SHOW(cuMemcpyAsync((CUdeviceptr)(uintptr_t)pinned, b, SIZE, stream));
	SHOW(cuStreamSynchronize(stream));
	print_host("unified in a stream", pinned, SIZE);

	SHOW(cuMemcpyHtoD(a, in, 0));
	SHOW(cuMemcpyDtoD(a, b, 0));
	SHOW(cuMemcpyDtoH(out, a, 0));
	print_device("after empty copies", a, SIZE);
	OK(cuStreamDestroy(stream));
	OK(cuMemFreeHost(pinned));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	free(in);
	free(out);
	return 0;
}
