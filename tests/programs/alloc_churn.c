/* Allocations and frees by chance. Between them, some of the live allocations are written by kernels. */
#include "program.h"

int main(void)
{
	enum { MOST = 150, ROUNDS = 40 };
	static CUdeviceptr p[MOST];
	static unsigned value[MOST];
	unsigned random = 1, live = 0, sum = 0;

	start();
	CUfunction poke = get_kernel(load_kernels(), "poke");
	for (unsigned round = 1; round <= ROUNDS; round++) {
		for (unsigned i = 0; i < 60; i++) {
			unsigned place = (random = random * 1103515245u + 12345u) >> 8;
			unsigned which = place % MOST;
			if (p[which]) {
				OK(cuMemFree(p[which]));
				p[which] = 0;
				live--;
				continue;
			}
			p[which] = allocate(place % 7 ? 4 + place % 3000 : 100000 + place % 200000);
			value[which] = 0;
			live++;
		}
		for (unsigned i = round % 3; i < MOST; i += 3)
			if (p[i]) {
				value[i] = round * 1000 + i;
				OK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&p[i], &value[i]), NULL));
			}
		OK(cuCtxSynchronize());
	}
	for (unsigned i = 0; i < MOST; i++)
		sum += p[i] ? value[i] : 0;
	printf("live %u, sum of values %u\n", live, sum);
	return 0;
}
