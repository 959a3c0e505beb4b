/*
 * Does the same in each run, or not, as its first argument says: recorder_nondeterminism MODE STEPS
 * COUNTER. The file COUNTER has the number of the run, from 0. Each step uses three buffers and then waits;
 * the middle buffer is the one that varies.
 */
#include "program.h"

#include <unistd.h>

enum { N = 1024, BYTES = N * 4, RACES = 12 };

/* Its result depends on the order of its threads: each stores its number in the same place. */
static const char LAST[] = PTX_HEADER
	PTX_BEGIN("last", ".param .u64 p, .param .u32 n, .param .u32 unused",
		  "n") "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd1, %rd1;\nst.global.u32 [%rd1], %r1;\n" PTX_END;

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

/* One kernel after another, in a graph. */
static void launch_graph(CUfunction first, void **first_params, CUfunction second, void **second_params)
{
	CUDA_KERNEL_NODE_PARAMS k = {
		.gridDimX = 256, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1};
	CUgraphExec executable;
	CUgraphNode nodes[2];
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	k.func = first, k.kernelParams = first_params;
	OK(cuGraphAddKernelNode(&nodes[0], graph, NULL, 0, &k));
	k.func = second, k.kernelParams = second_params;
	OK(cuGraphAddKernelNode(&nodes[1], graph, nodes, 1, &k));
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuGraphLaunch(executable, NULL));
}

__attribute__((noinline)) static void retry(CUfunction kernel, void **params)
{
	OK(launch(kernel, N, NULL, params));
}

/* Small launches with one wait, at the end; one of them, two thirds of the way, adds another value. */
static void launch_many(CUfunction add, unsigned launches, unsigned turn)
{
	CUdeviceptr p = allocate(4);
	unsigned n = 1;

	OK(cuMemsetD32(p, 0, n));
	for (unsigned i = 0; i < launches; i++)
		OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL,
				  PARAMS(&p, &n, i == launches / 3 * 2 ? &turn : &n), NULL));
	OK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *mode = argv[1];
	unsigned steps = (unsigned)atoi(argv[2]), turn = next_turn(argv[3]), n = N, many = 16 * N, one = 1, zero = 0, rounds = 3;
	static uint32_t input[N];
	char seed_text[16];
	CUstream streams[2];

	snprintf(seed_text, sizeof(seed_text), "%u", turn + 1);
	if ((strstr(mode, "kernel") || !strcmp(mode, "order")) &&
	    (setenv("TT_SIM_SCHEDULE", "random", 1) || setenv("TT_SIM_SEED", seed_text, 1)))
		return 2;
	start();
	for (int i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	CUmodule module = load_kernels(), last_module;
	OK(cuModuleLoadData(&last_module, LAST));
	CUfunction last = get_kernel(last_module, "last");
	CUfunction fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	CUfunction mix = get_kernel(module, "mix"), copy = get_kernel(module, "copy");
	CUdeviceptr x = allocate(BYTES), y = allocate(BYTES), z = allocate(BYTES);
	OK(cuMemsetD32(z, 0, N));
	if (!strcmp(mode, "many"))
		launch_many(add, steps, turn), steps = 0;
	for (unsigned step = 0; step < steps; step++) {
		bool here = step == steps / 2;
		unsigned seed = step >= steps / 2 && !strncmp(mode, "seed", 4) ? 100 + turn : 100;

		if (here && turn > 2 && !strcmp(mode, "later-seed"))
			seed = 0;
		input[7] = here && !strcmp(mode, "input") ? turn : step;
		if (here && turn && !strcmp(mode, "crash"))
			abort();
		if (here && turn > 1 && !strcmp(mode, "seed-then-crash"))
			abort();
		if (here && turn && !strcmp(mode, "hang"))
			pause();
		if (here && !strcmp(mode, "memory") && cuMemAlloc(&y, (size_t)1 << 50) != CUDA_SUCCESS)
			return 3;
		if (here && !strcmp(mode, "fails"))
			return 4;
		OK(cuMemcpyHtoD(x, input, BYTES));
		OK(launch(mix, n, NULL, PARAMS(&x, &n, &rounds)));
		if (here && turn % 2 && !strcmp(mode, "set"))
			OK(cuMemsetD32(y, 0, 1));
		OK(launch(fill, n, NULL, PARAMS(&y, &n, &step)));
		if (here && turn % 2 && !strcmp(mode, "retry"))
			retry(add, PARAMS(&y, &n, &zero));
		OK(launch(add, n, NULL, PARAMS(&y, &n, &seed)));
		if (here && turn % 2 && !strcmp(mode, "launches"))
			OK(launch(mix, n, NULL, PARAMS(&y, &n, &rounds)));
		if (here && turn % 2 && !strcmp(mode, "allocation"))
			allocate(64);
		if (here && !strcmp(mode, "kernel-after-set"))
			OK(cuMemsetD32(y, 0, N));
		if (!strncmp(mode, "kernel", 6))
			OK(launch(last, here ? many : 1, NULL, PARAMS(&y, here ? &many : &one, &turn)));
		if (here && !strncmp(mode, "graph", 5))
			launch_graph(add, PARAMS(&y, &n, !strcmp(mode, "graph") ? &turn : &one), last,
				     PARAMS(&y, !strcmp(mode, "graph-kernel") ? &many : &one, &one));
		if (here && !strcmp(mode, "order")) {
			OK(cuCtxSynchronize());
			for (int i = 0; i < 2 * RACES; i++) {
				OK(launch(i % 2 ? mix : add, n, streams[i % 2], PARAMS(&y, &n, &rounds)));
				if (i % 2)
					OK(cuCtxSynchronize());
			}
		}
		OK(launch(mix, n, NULL, PARAMS(&y, &n, &rounds)));
		OK(launch(copy, n, NULL, PARAMS(&z, &y, &n)));
		OK(launch(mix, n, NULL, PARAMS(&z, &n, &rounds)));
		OK(cuCtxSynchronize());
	}
	return 0;
}
