/*
 * Uses memory that it did not write, or not, as its argument says; a wait ends each step.
 *
 *	clean      a part of each allocation stays unwritten, and nobody reads it
 *	computes   a kernel adds to memory that nobody wrote
 *	copies     a copy that goes on beyond what was written
 *	prints     the program prints such memory
 *	fails      the program ends with another status
 *	launches   the program decides by such memory
 *	varies     the results depend on the order of threads
 *	both       computes and varies
 */
#include "program.h"

#include <unistd.h>

enum { N = 1024, BYTES = N * 4, STEPS = 3 };

static const char LAST[] = PTX_HEADER
	PTX_BEGIN("last", ".param .u64 p, .param .u32 n",
		  "n") "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd1, %rd1;\nst.global.u32 [%rd1], %r1;\n" PTX_END;

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "clean";
	unsigned n = N, half = N / 2, value = 7, rounds = 2, words[N];
	bool both = !strcmp(mode, "both"), varies = both || !strcmp(mode, "varies");
	char seed[16];
	CUmodule module;

	snprintf(seed, sizeof(seed), "%d", (int)getpid());
	if (varies && (setenv("TT_SIM_SCHEDULE", "random", 1) || setenv("TT_SIM_SEED", seed, 1)))
		return 2;
	start();
	OK(cuModuleLoadData(&module, LAST));
	CUfunction last = get_kernel(module, "last");
	module = load_kernels();
	CUfunction fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	CUfunction mix = get_kernel(module, "mix"), copy = get_kernel(module, "copy");
	CUdeviceptr x = allocate(BYTES), y = allocate(BYTES), z = allocate(BYTES), order = allocate(BYTES);
	for (unsigned step = 0; step < STEPS; step++) {
		bool here = step == 1;

		OK(launch(fill, half, NULL, PARAMS(&x, &half, &step)));
		OK(launch(mix, half, NULL, PARAMS(&x, &half, &rounds)));
		OK(launch(copy, half, NULL, PARAMS(&y, &x, &half)));
		if (here && (both || !strcmp(mode, "computes")))
			OK(launch(add, n, NULL, PARAMS(&x, &n, &value)));
		if (here && !strcmp(mode, "copies"))
			OK(launch(copy, n, NULL, PARAMS(&z, &x, &n)));
		if (varies)
			OK(launch(last, n, NULL, PARAMS(&order, &n)));
		OK(launch(add, half, NULL, PARAMS(&y, &half, &value)));
		OK(cuCtxSynchronize());
	}
	OK(cuMemcpyDtoH(words, x, BYTES));
	if (!strcmp(mode, "prints"))
		printf("%u\n", words[N - 1]);
	if (!strcmp(mode, "fails"))
		return words[N - 1] != 0;
	if (!strcmp(mode, "launches") && words[N - 1])
		OK(launch(mix, half, NULL, PARAMS(&x, &half, &rounds)));
	OK(cuCtxSynchronize());
	return 0;
}
