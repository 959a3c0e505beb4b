/* Copies of odd lengths between odd offsets of allocations. */
#include "program.h"

int main(void)
{
	static const struct { unsigned to, from, bytes; } copies[] = {
		{1, 0, 1}, {3, 5, 7}, {65535, 65537, 3}, {65533, 1, 65539}, {131071, 70001, 33333}, {2, 199999, 1},
	};
	enum { SIZE = 200000 };
	unsigned char *data = pattern(SIZE, 1), *back = malloc(SIZE);

	start();
	CUdeviceptr a = allocate(SIZE), b = allocate(SIZE);
	OK(cuMemcpyHtoD(a, data, SIZE));
	OK(cuMemsetD8(b, 0, SIZE));
	for (unsigned i = 0; i < sizeof(copies) / sizeof(*copies); i++) {
		OK(cuMemcpyDtoD(b + copies[i].to, a + copies[i].from, copies[i].bytes));
		print_device("device to device", b, SIZE);
		OK(cuMemcpyHtoD(b + copies[i].from, data + copies[i].to, copies[i].bytes));
		print_device("host to device", b, SIZE);
		OK(cuMemcpyDtoH(back, b + copies[i].to, copies[i].bytes));
		print_host("device to host", back, copies[i].bytes);
	}
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	free(data);
	free(back);
	return 0;
}
