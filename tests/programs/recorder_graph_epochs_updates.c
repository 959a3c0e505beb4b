/*
 * A graph whose kernels are captured after, updated as a whole from graphs of the same form whose
 * nodes were added in other orders. Each replay i works with 1000 * i.
 *
 *   fill a ── add a ──┬── add a again
 *   fill b ── add b ──┘
 *   set c ──── add c
 */
#include "program.h"

#define N 40000
#define NODES 7

enum { FILL_A, ADD_A, FILL_B, ADD_B, AGAIN, SET_C, ADD_C };

static const unsigned before[NODES][3] = { /* how many, and which */
	[ADD_A] = {1, FILL_A}, [ADD_B] = {1, FILL_B}, [AGAIN] = {2, ADD_A, ADD_B}, [ADD_C] = {1, SET_C},
};
/* The last has what nothing comes after in another order, by which drivers know the nodes. */
static const unsigned orders[][NODES] = {
	{FILL_A, ADD_A, FILL_B, ADD_B, AGAIN, SET_C, ADD_C},
	{SET_C, FILL_B, FILL_A, ADD_B, ADD_A, AGAIN, ADD_C},
	{FILL_B, SET_C, ADD_B, FILL_A, ADD_A, AGAIN, ADD_C},
	{FILL_A, ADD_A, FILL_B, ADD_B, AGAIN, SET_C, ADD_C},
	{SET_C, ADD_C, FILL_A, ADD_A, FILL_B, ADD_B, AGAIN},
};

static CUcontext context;
static CUfunction fill, add;
static CUdeviceptr a, b, c;

static CUgraphNode add_node(CUgraph graph, unsigned which, const CUgraphNode *after, size_t count, unsigned base)
{
	const struct {
		CUfunction f;
		CUdeviceptr p;
		unsigned value;
	} kernels[NODES] = {
		{fill, a, base}, {add, a, 1}, {fill, b, base + 100}, {add, b, 2}, {add, a, 10}, {NULL, c, base + 200},
		{add, c, 3},
	};
	unsigned n = N, value = kernels[which].value;
	CUdeviceptr p = kernels[which].p;
	CUgraphNode node;
	CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = value, .elementSize = 4, .width = N, .height = 1};
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.func = kernels[which].f, .gridDimX = (N + 127) / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128,
		.blockDimY = 1, .blockDimZ = 1, .kernelParams = PARAMS(&p, &n, &value),
	};

	if (which == SET_C)
		OK(cuGraphAddMemsetNode(&node, graph, after, count, &set, context));
	else
		OK(cuGraphAddKernelNode(&node, graph, after, count, &kernel));
	return node;
}

static CUgraph make(unsigned i)
{
	CUgraphNode nodes[NODES], after[2];
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	for (unsigned k = 0; k < NODES; k++) {
		unsigned which = orders[i][k];
		for (unsigned e = 0; e < before[which][0]; e++)
			after[e] = nodes[before[which][e + 1]];
		nodes[which] = add_node(graph, which, after, before[which][0], 1000 * (i + 1));
	}
	return graph;
}

int main(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;
	CUstream stream;

	start();
	OK(cuCtxGetCurrent(&context));
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	a = allocate(N * 4), b = allocate(N * 4), c = allocate(N * 4);
	OK(cuMemsetD8(a, 0, N * 4));
	OK(cuMemsetD8(b, 0, N * 4));
	OK(cuMemsetD8(c, 0, N * 4));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUgraph graph = make(0);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	for (unsigned i = 1; i < sizeof(orders) / sizeof(orders[0]); i++) {
		CUgraph other = make(i);
		SHOW(cuGraphExecUpdate(exec, other, &info));
		printf("update %d\n", (int)info.result);
		OK(cuGraphDestroy(other)); /* the next may have its handles */
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
		print_words("a", a, 3);
		print_words("b", b, 3);
		print_words("c", c, 3);
	}
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	return 0;
}
