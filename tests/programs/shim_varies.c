/*
 * Does the same in each run, or not, as its first argument says: shim_varies MODE STEPS COUNTER.
 * The file COUNTER has the number of the run, from 0. Each step works on three buffers and then
 * waits; what varies does so in the middle one.
 */
#include "program.h"

#include <unistd.h>

enum { N = 1024, BYTES = N * 4 };

static unsigned next_turn(const char *path)
{
	unsigned turn = 0;
	FILE *file = fopen(path, "r");

	if (file && fscanf(file, "%u", &turn) != 1)
		turn = 0;
	if (file)
		fclose(file);
	if (!(file = fopen(path, "w")) || fprintf(file, "%u\n", turn + 1) < 0 || fclose(file))
		exit(2);
	return turn;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *mode = argv[1];
	unsigned steps = (unsigned)atoi(argv[2]), turn = next_turn(argv[3]), n = N, rounds = 3;
	static uint32_t input[N];

	start();
	CUmodule module = load_kernels();
	CUfunction fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	CUfunction mix = get_kernel(module, "mix"), copy = get_kernel(module, "copy");
	CUdeviceptr x = allocate(BYTES), y = allocate(BYTES), z = allocate(BYTES);
	OK(cuMemsetD32(z, 0, N));
	for (unsigned step = 0; step < steps; step++) {
		bool here = step == steps / 2;
		unsigned seed = here && !strcmp(mode, "seed") ? 100 + turn : 100;

		input[7] = here && !strcmp(mode, "input") ? turn : step;
		if (here && turn && !strcmp(mode, "crash"))
			abort();
		if (here && turn && !strcmp(mode, "hang"))
			pause();
		if (here && !strcmp(mode, "memory") && cuMemAlloc(&y, (size_t)1 << 50) != CUDA_SUCCESS)
			return 3;
		if (here && !strcmp(mode, "fails"))
			return 4;
		OK(cuMemcpyHtoD(x, input, BYTES));
		OK(launch(mix, n, NULL, PARAMS(&x, &n, &rounds)));
		OK(launch(fill, n, NULL, PARAMS(&y, &n, &step)));
		OK(launch(add, n, NULL, PARAMS(&y, &n, &seed)));
		if (here && turn % 2 && !strcmp(mode, "launches"))
			OK(launch(mix, n, NULL, PARAMS(&y, &n, &rounds)));
		OK(launch(mix, n, NULL, PARAMS(&y, &n, &rounds)));
		OK(launch(copy, n, NULL, PARAMS(&z, &y, &n)));
		OK(launch(mix, n, NULL, PARAMS(&z, &n, &rounds)));
		OK(cuCtxSynchronize());
	}
	return 0;
}
