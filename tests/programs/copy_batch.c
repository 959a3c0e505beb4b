/* Several copies in one call. */
#include "program.h"

int main(void)
{
	enum { SIZE = 10000, COPIES = 3 };
	unsigned char *pinned;
	CUstream stream;

	start();
	CUdeviceptr a = allocate(SIZE), b = allocate(SIZE);
	OK(cuMemAllocHost((void **)&pinned, SIZE));
	fill_pattern(pinned, SIZE, 1);
	OK(cuMemsetD8(a, 3, SIZE));
	OK(cuMemsetD8(b, 4, SIZE));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUdeviceptr to[COPIES] = {a, b + 11, b + 5000}, from[COPIES];
	from[0] = (CUdeviceptr)(uintptr_t)pinned;
	from[1] = from[2] = (CUdeviceptr)(uintptr_t)(pinned + 100);
	size_t sizes[COPIES] = {SIZE, 1001, 3}, first = 0;
	CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	SHOW(cuMemcpyBatchAsync(to, from, sizes, COPIES, &how, &first, 1, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("first", a, SIZE);
	print_device("others", b, SIZE);
	SHOW(cuMemcpyBatchAsync(to, from, sizes, 0, &how, &first, 1, stream));
	OK(cuStreamDestroy(stream));
	OK(cuMemFreeHost(pinned));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	return 0;
}
