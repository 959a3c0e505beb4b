/* Two allocations, of 4 KiB and of 80 MiB, and what each holds at its end. */
#include "program.h"

int main(void)
{
	static const size_t sizes[] = {4096, (size_t)80 << 20};

	start();
	for (int i = 0; i < 2; i++) {
		CUdeviceptr p = allocate(sizes[i]);
		unsigned value = 7, got = 0;

		OK(cuMemcpyHtoD(p + sizes[i] - 4, &value, 4));
		OK(cuMemcpyDtoH(&got, p + sizes[i] - 4, 4));
		printf("%zu: %u\n", sizes[i], got);
	}
	return 0;
}
