/*
 * Five kernels that end, and four mistakes after which one of them never does: --spin leaves a lock taken, --barrier
 * and --mbarrier lack a thread that arrives, and --exchange has no free slot, so that a producer and a consumer wait
 * for each other. With --turns, a correct kernel takes long.
 */
#include "common.h"

EMBED(ptx, "hangs.ptx");

#define THREADS 64

static void run(CUmodule module, const char *name, unsigned blocks, unsigned threads, void **arguments)
{
	CHECK(cuLaunchKernel(kernel(module, name), blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL));
	CHECK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	bool spin = false, barrier = false, mbarrier = false, mutual = false;
	long turns = 1000;
	const struct own_option own[] = {{"--spin", NULL, &spin},	  {"--barrier", NULL, &barrier},
					 {"--mbarrier", NULL, &mbarrier}, {"--exchange", NULL, &mutual},
					 {"--turns", &turns, NULL},	  {NULL, NULL, NULL}};
	struct options o = read_options(argc, argv, (struct options){.size = THREADS, .steps = 8, .seed = 1, .own = own});
	unsigned first[3] = {mutual ? 0 : 1, 0, 0}, taken = spin, come = barrier ? 32 : 64, arrivals = mbarrier ? 1 : 2;
	unsigned rounds = (unsigned)o.steps, count = (unsigned)turns, out[THREADS];
	CUdeviceptr words, slot, results;
	CUmodule module;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuMemAlloc(&words, 2 * sizeof(unsigned)));
	CHECK(cuMemAlloc(&slot, sizeof(first)));
	CHECK(cuMemAlloc(&results, sizeof(out)));
	CHECK(cuMemsetD32(results, (unsigned)o.seed, THREADS));
	CHECK(cuMemcpyHtoD(slot, first, sizeof(first)));
	CHECK(cuMemsetD32(words, 0, 2));
	CHECK(cuMemcpyHtoD(words, &taken, sizeof(taken)));
	CUdeviceptr sum = words + sizeof(unsigned);

	run(module, "count_locked", 2, THREADS, PARAMS(&words, &sum));
	run(module, "meet", 1, THREADS, PARAMS(&results, &come));
	run(module, "pass_on", 1, THREADS, PARAMS(&results, &arrivals));
	run(module, "exchange", 2, 32, PARAMS(&slot, &results, &rounds));
	run(module, "compute", 1, THREADS, PARAMS(&results, &count));

	CHECK(cuMemcpyDtoH(out, results, sizeof(out)));
	CHECK(cuMemcpyDtoH(first, words, 2 * sizeof(unsigned)));
	printf("hangs: %u counted, %016llx\n", first[1], (unsigned long long)checksum(out, sizeof(out)));
	CHECK(cuMemFree(words));
	CHECK(cuMemFree(slot));
	CHECK(cuMemFree(results));
	CHECK(cuDevicePrimaryCtxRelease(0));
	return 0;
}
