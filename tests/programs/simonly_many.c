/* Ten thousand operations without a wait, and ten thousand allocations. */
#include "program.h"

int main(void)
{
	static CUdeviceptr many[10000];
	unsigned n = 4, value = 0;
	uint32_t word;

	start();
	CUfunction add = get_kernel(load_kernels(), "add");
	CUdeviceptr p = allocate(16);
	OK(cuMemsetD8(p, 0, 16));
	value = 1;
	for (int i = 0; i < 10000; i++)
		OK(launch(add, n, NULL, PARAMS(&p, &n, &value)));
	OK(cuMemcpyDtoH(&word, p, 4));
	printf("added %u\n", word);
	for (unsigned i = 0; i < 10000; i++) {
		many[i] = allocate(100);
		OK(cuMemsetD32(many[i], i, 25));
	}
	unsigned wrong = 0;
	for (unsigned i = 0; i < 10000; i += 7) {
		OK(cuMemcpyDtoH(&word, many[i] + 96, 4));
		wrong += word != i;
	}
	for (unsigned i = 0; i < 10000; i++)
		OK(cuMemFree(many[(i * 7919) % 10000]));
	printf("wrong %u\n", wrong);
	return 0;
}
