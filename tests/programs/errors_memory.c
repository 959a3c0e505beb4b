/* Memory calls with invalid arguments: each returns its error and changes nothing. */
#include "program.h"

int main(void)
{
	unsigned char out[16] = {0};
	CUdeviceptr p = 0, base;
	size_t size;

	start();
	CUdeviceptr a = allocate(1000);
	OK(cuMemsetD8(a, 3, 1000));
	SHOW(cuMemAlloc(&p, 0));
	SHOW(cuMemAlloc(NULL, 100));
	SHOW(cuMemFree(0));
	SHOW(cuMemFree(12345));
	SHOW(cuMemFree(a + 4));
	SHOW(cuMemcpyHtoD(a, NULL, 16));
	SHOW(cuMemcpyDtoH(NULL, a, 16));
	SHOW(cuMemcpyDtoH(out, 0, 16));
	SHOW(cuMemcpyDtoD(0, a, 16));
	SHOW(cuMemsetD8(0, 1, 16));
	SHOW(cuMemsetD8(a, 1, (size_t)1 << 50));
	SHOW(cuMemcpyDtoH(out, a, (size_t)1 << 50));
	SHOW(cuMemGetAddressRange(&base, &size, 12345));
	SHOW(cuMemGetAddressRange(&base, &size, a + (1ull << 40)));
	SHOW(cuMemGetAddressRange(NULL, NULL, a));
	SHOW(cuMemGetInfo(NULL, &size));
	SHOW(cuMemFreeHost(NULL));
	SHOW(cuMemFreeHost(out));
	SHOW(cuMemHostUnregister(out));
	SHOW(cuMemHostGetDevicePointer(&p, out, 0));
	SHOW(cuMemHostAlloc(NULL, 100, 0));
	SHOW(cuMemAddressReserve(&p, 0, 0, 0, 0));
	SHOW(cuMemAddressReserve(&p, 100, 0, 0, 0));
	SHOW(cuMemUnmap(a, 2 << 20));
	print_device("unchanged", a, 1000);
	SHOW(cuMemFree(a));
	SHOW(cuMemFree(a));
	SHOW(cuMemcpyDtoH(out, a, 16));
	return 0;
}
