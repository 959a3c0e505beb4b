/* What the programs with tt_epoch in a captured stream share: kernels that add to a or to b, and their epochs. */
#include <dlfcn.h>

#include "program.h"

#define N 5000

static CUfunction add;
static CUdeviceptr a, b;

/* A kernel, and an epoch after it if the program is recorded. */
static void count(CUstream stream, CUdeviceptr p, unsigned by, const char *label)
{
	int (*cut)(void *, const char *) = (int (*)(void *, const char *))dlsym(RTLD_DEFAULT, "tt_epoch");
	unsigned n = N;

	OK(cuLaunchKernel(add, (N + 127) / 128, 1, 1, 128, 1, 1, 0, stream, PARAMS(&p, &n, &by), NULL));
	if (cut && cut(stream, label))
		fprintf(stderr, "no epoch\n");
}

/* The memory, filled with a byte each, and a stream. */
static CUstream begin(unsigned char of_a, unsigned char of_b)
{
	CUstream stream;

	add = get_kernel(load_kernels(), "add");
	a = allocate(N * 4), b = allocate(N * 4);
	OK(cuMemsetD8(a, of_a, N * 4));
	OK(cuMemsetD8(b, of_b, N * 4));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void launch_thrice(CUgraphExec exec, CUstream stream)
{
	for (unsigned i = 0; i < 3; i++)
		OK(cuGraphLaunch(exec, stream));
}

static void finish(CUgraphExec exec, CUstream stream)
{
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	print_device("a", a, N * 4);
	print_device("b", b, N * 4);
	OK(cuGraphExecDestroy(exec));
}
