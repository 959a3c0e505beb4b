/*
 * A kernel writes past an allocation, or reads before the first: recorder_overrun first|last|before BYTES.
 * Small allocations come before and after the moment at which a recorder makes its own. Then the program
 * continues, as far as the device allows, and prints the state of each allocation.
 */
#include "program.h"

#define COUNT 8
#define SMALL 3072u

static CUdeviceptr all[COUNT];
static CUfunction fill, add;

static CUresult work(void)
{
	unsigned n = SMALL / 4, one = 1;
	CUresult r = CUDA_SUCCESS;

	for (unsigned i = 0; !r && i < COUNT; i++)
		if (all[i] && !(r = launch(add, n, NULL, PARAMS(&all[i], &n, &one))))
			r = cuCtxSynchronize();
	return r;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	bool first = !strcmp(argv[1], "first");
	unsigned past = (unsigned)atoi(argv[2]) / 4, value = 100, n = SMALL / 4;

	start();
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill");
	add = get_kernel(module, "add");
	for (unsigned i = 0; i < COUNT; i++) {
		all[i] = allocate(SMALL);
		OK(cuMemsetD32(all[i], i, n));
		if (i == 2)
			OK(cuCtxSynchronize()); /* the first epoch */
	}
	SHOW(work());
	CUdeviceptr end = (first ? all[0] : all[COUNT - 1]) + SMALL, begin = all[0] - past * 4;
	if (!strcmp(argv[1], "before"))
		OK(launch(get_kernel(module, "copy"), past, NULL, PARAMS(&all[COUNT - 1], &begin, &past)));
	else
		OK(launch(fill, past, NULL, PARAMS(&end, &past, &value)));
	if (SHOW(cuCtxSynchronize()) != CUDA_SUCCESS)
		return 3;
	SHOW(work());
	SHOW(work());
	for (unsigned i = 0; i < COUNT - 1; i++)
		print_words("words", all[i], 4);
	return 0;
}
