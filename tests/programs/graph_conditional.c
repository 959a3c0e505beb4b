/* Graphs with conditional nodes whose value no kernel changes: bodies that run and bodies that do not. */
#include "program.h"

#define N 1000

static CUcontext context;
static CUfunction fill;

/* A body: p = value + i. */
static CUgraphNode add_fill(CUgraph graph, CUdeviceptr p, unsigned value)
{
	unsigned n = N;
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = fill, .gridDimX = 16, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&p, &n, &value),
	};

	OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &k));
	return node;
}

static CUgraph *add_condition(CUgraph graph, CUgraphNode after, CUgraphConditionalNodeType type, unsigned size,
			      unsigned value, CUgraphNode *node)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};

	OK(cuGraphConditionalHandleCreate(&p.conditional.handle, graph, context, value, CU_GRAPH_COND_ASSIGN_DEFAULT));
	p.conditional.type = type;
	p.conditional.size = size;
	p.conditional.ctx = context;
	SHOW(cuGraphAddNode(node, graph, &after, NULL, 1, &p));
	return p.conditional.phGraph_out;
}

static void run(CUgraphExec executable, CUdeviceptr *p)
{
	for (unsigned i = 0; i < 3; i++)
		OK(cuMemsetD32(p[i], 0, N));
	SHOW(cuGraphLaunch(executable, NULL));
	SHOW(cuCtxSynchronize());
	for (unsigned i = 0; i < 3; i++)
		print_words("p", p[i], 3);
}

int main(void)
{
	unsigned n = N, value = 500;
	CUgraph graph, *bodies;
	CUgraphNode first, node, inner;
	CUgraphExec executable;
	CUdeviceptr p[3];

	start();
	OK(cuCtxGetCurrent(&context));
	fill = get_kernel(load_kernels(), "fill");
	for (unsigned i = 0; i < 3; i++)
		p[i] = allocate(N * 4);
	OK(cuGraphCreate(&graph, 0));
	first = add_fill(graph, p[0], 10);
	bodies = add_condition(graph, first, CU_GRAPH_COND_TYPE_IF, 1, 1, &node);
	inner = add_fill(bodies[0], p[1], 20);
	bodies = add_condition(graph, node, CU_GRAPH_COND_TYPE_IF, 1, 0, &node);
	add_fill(bodies[0], p[1], 30);
	bodies = add_condition(graph, node, CU_GRAPH_COND_TYPE_SWITCH, 3, 2, &node);
	for (unsigned i = 0; i < 3; i++)
		add_fill(bodies[i], p[2], 100 * (i + 1));
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	run(executable, p);
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = fill, .gridDimX = 16, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&p[0], &n, &value),
	};
	SHOW(cuGraphExecKernelNodeSetParams(executable, first, &k));
	(void)inner;
	run(executable, p);
	SHOW(cuGraphExecDestroy(executable));
	SHOW(cuGraphDestroy(graph));
	for (unsigned i = 0; i < 3; i++)
		OK(cuMemFree(p[i]));
	return 0;
}
