/* Allocations of odd sizes: each is aligned, has its own range, and keeps its bytes. */
#include "program.h"

int main(void)
{
	static const size_t sizes[] = {1, 2, 3, 255, 256, 257, 4095, 65535, 65536, 65537, 1048575, 3145729};
	enum { COUNT = sizeof(sizes) / sizeof(*sizes) };
	CUdeviceptr p[COUNT];

	start();
	for (unsigned i = 0; i < COUNT; i++) {
		void *data = pattern(sizes[i], i);
		p[i] = allocate(sizes[i]);
		OK(cuMemcpyHtoD(p[i], data, sizes[i]));
		free(data);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		CUdeviceptr base;
		size_t size;

		OK(cuMemGetAddressRange(&base, &size, p[i] + sizes[i] - 1));
		printf("aligned %d, base %d, size %zu of %zu\n", p[i] % 256 == 0, base == p[i], size, sizes[i]);
		print_device("contents", p[i], sizes[i]);
	}
	for (unsigned i = 0; i < COUNT; i++)
		SHOW(cuMemFree(p[i]));
	return 0;
}
