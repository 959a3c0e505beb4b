/* Many small allocations, freed in another order than they were made. */
#include "program.h"

int main(void)
{
	enum { COUNT = 500 };
	static CUdeviceptr p[COUNT];
	unsigned long long sum = 0;

	start();
	for (unsigned i = 0; i < COUNT; i++) {
		p[i] = allocate(i * 7 % 300 + 1);
		OK(cuMemsetD8(p[i], (unsigned char)i, i * 7 % 300 + 1));
	}
	for (unsigned i = 0; i < COUNT; i += 2)
		OK(cuMemFree(p[i]));
	for (unsigned i = 1; i < COUNT; i += 2) {
		unsigned char last;
		OK(cuMemcpyDtoH(&last, p[i] + i * 7 % 300, 1));
		sum += last;
	}
	for (unsigned i = COUNT; i-- > 0;)
		if (i % 2)
			OK(cuMemFree(p[i]));
	printf("sum of last bytes %llu\n", sum);
	return 0;
}
