/*
 * Waits after each of many small launches, which is where epochs are cut by default. With an argument, a line on
 * its input ends it.
 */
#include "program.h"

#define STEPS 400

int main(int argc, char **argv)
{
	(void)argv;
	start();
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr data = allocate(4096);
	OK(cuMemsetD8(data, 0, 4096));
	for (unsigned i = 0; i < STEPS; i++) {
		unsigned n = 64, rounds = i % 8 + 1;
		OK(launch(mix, n, NULL, PARAMS(&data, &n, &rounds)));
		OK(cuCtxSynchronize());
	}
	print_device("at last", data, 4096);
	if (argc > 1) {
		puts("ready");
		fflush(stdout);
		getchar();
	}
	return 0;
}
