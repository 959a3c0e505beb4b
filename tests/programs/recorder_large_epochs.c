/*
 * Two epochs with many megabytes of new contents, then one in which every other block is the same. Two of
 * the changed blocks are equal and lie far apart.
 */
#include "program.h"

#define SIZE ((size_t)50 << 20) /* more than the buffers of the drain */
#define BLOCK ((size_t)65536)

static void fill(uint64_t *words, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes / 8; i++) {
		uint64_t word = (seed << 32 | i) * 0x9e3779b97f4a7c15u;
		words[i] = word ^ word >> 29;
	}
}

int main(void)
{
	unsigned char *contents = malloc(SIZE);

	start();
	CUdeviceptr p = allocate(SIZE);
	for (uint64_t seed = 1; seed <= 2; seed++) {
		fill((uint64_t *)contents, SIZE, seed);
		OK(cuMemcpyHtoD(p, contents, SIZE));
		OK(cuCtxSynchronize());
	}
	for (size_t block = 0; block < SIZE / BLOCK; block++)
		fill((uint64_t *)(contents + block * BLOCK), BLOCK, block % 2 ? (block % 270 == 31 ? 9 : 7) : 1000 + block);
	OK(cuMemcpyHtoD(p, contents, SIZE));
	OK(cuCtxSynchronize());
	print_device("at last", p, SIZE);
	return 0;
}
