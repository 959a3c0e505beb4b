/*
 * Conditional nodes whose values kernels set: nested loops, branches and switches. (On a GPU the kernel
 * would have to be linked with the library that has cudaGraphSetConditional.)
 */
#include "program.h"

/* p[0] += 1, and the condition is what is left of that divided by `of`. */
static const char turn_ptx[] =
	PTX_HEADER
	".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
	".visible .entry turn(.param .u64 p, .param .u64 handle, .param .u32 of)\n{\n"
	".reg .b32 %r<4>; .reg .b64 %rd<3>;\n"
	"ld.param.u64 %rd1, [p];\nld.param.u64 %rd2, [handle];\nld.param.u32 %r2, [of];\n"
	"ld.global.u32 %r1, [%rd1];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd1], %r1;\nrem.u32 %r3, %r1, %r2;\n"
	"{ .param .b64 a; .param .b32 b;\nst.param.b64 [a], %rd2; st.param.b32 [b], %r3;\n"
	"call.uni cudaGraphSetConditional, (a, b); }\nret;\n}\n";

static CUcontext context;
static CUfunction turn;
static CUdeviceptr counts; /* of 4 bytes each */

static CUgraphConditionalHandle make_handle(CUgraph graph, unsigned value, unsigned flags)
{
	CUgraphConditionalHandle h;

	OK(cuGraphConditionalHandleCreate(&h, graph, context, value, flags));
	return h;
}

static CUgraphNode add_turn(CUgraph graph, CUgraphNode after, unsigned count, CUgraphConditionalHandle h, unsigned of)
{
	CUdeviceptr p = counts + 4 * count;
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = turn, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&p, &h, &of),
	};

	OK(cuGraphAddKernelNode(&node, graph, &after, after != NULL, &k));
	return node;
}

static CUgraph *add_condition(CUgraph graph, CUgraphNode *after, CUgraphConditionalNodeType type, unsigned size,
			      CUgraphConditionalHandle h)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraphNode before = *after;

	p.conditional.handle = h;
	p.conditional.type = type;
	p.conditional.size = size;
	p.conditional.ctx = context;
	OK(cuGraphAddNode(after, graph, &before, NULL, before != NULL, &p));
	return p.conditional.phGraph_out;
}

static void show(const char *what)
{
	unsigned values[8];

	OK(cuMemcpyDtoH(values, counts, sizeof(values)));
	printf("%s:", what);
	for (unsigned i = 0; i < 8; i++)
		printf(" %u", values[i]);
	printf("\n");
	OK(cuMemsetD8(counts, 0, sizeof(values)));
}

static void run(CUgraph graph, unsigned times, const char *what)
{
	CUgraphExec executable;

	OK(cuGraphInstantiate(&executable, graph, 0));
	for (unsigned i = 0; i < times; i++)
		OK(cuGraphLaunch(executable, NULL));
	OK(cuGraphExecDestroy(executable)); /* while it may be at work */
	show(what);
	OK(cuGraphDestroy(graph));
}

int main(void)
{
	CUgraphConditionalHandle h, inner;
	CUgraph graph, *bodies, *others;
	CUgraphNode node;
	CUmodule module;

	start();
	OK(cuCtxGetCurrent(&context));
	OK(cuModuleLoadData(&module, turn_ptx));
	turn = get_kernel(module, "turn");
	counts = allocate(32);
	OK(cuMemsetD8(counts, 0, 32));

	OK(cuGraphCreate(&graph, 0));
	h = make_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	node = NULL;
	bodies = add_condition(graph, &node, CU_GRAPH_COND_TYPE_WHILE, 1, h);
	add_turn(bodies[0], NULL, 0, h, 5);
	add_turn(graph, node, 1, make_handle(graph, 0, 0), 9);
	run(graph, 2, "a loop of 5, twice, and what comes after it");

	OK(cuGraphCreate(&graph, 0));
	h = make_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	inner = make_handle(graph, 0, 0);
	node = NULL;
	bodies = add_condition(graph, &node, CU_GRAPH_COND_TYPE_WHILE, 1, h);
	node = add_turn(bodies[0], NULL, 0, h, 3);
	node = add_turn(bodies[0], node, 1, inner, 1000);
	others = add_condition(bodies[0], &node, CU_GRAPH_COND_TYPE_WHILE, 1, inner);
	add_turn(others[0], NULL, 2, inner, 4);
	add_turn(bodies[0], node, 3, make_handle(graph, 0, 0), 9);
	run(graph, 1, "a loop of 4 in a loop of 3");

	OK(cuGraphCreate(&graph, 0));
	h = make_handle(graph, 0, 0);
	inner = make_handle(graph, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
	node = add_turn(graph, NULL, 0, h, 2);
	bodies = add_condition(graph, &node, CU_GRAPH_COND_TYPE_IF, 2, h);
	add_turn(bodies[0], NULL, 1, h, 9);
	add_turn(bodies[1], NULL, 2, h, 9);
	node = add_turn(graph, node, 3, inner, 4);
	bodies = add_condition(graph, &node, CU_GRAPH_COND_TYPE_SWITCH, 3, inner);
	for (unsigned i = 0; i < 3; i++)
		add_turn(bodies[i], NULL, 4 + i, h, 9);
	run(graph, 7, "a branch and a switch, seven times");

	OK(cuGraphCreate(&graph, 0));
	h = make_handle(graph, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
	node = NULL;
	bodies = add_condition(graph, &node, CU_GRAPH_COND_TYPE_WHILE, 1, h);
	add_turn(bodies[0], NULL, 0, h, 5);
	run(graph, 2, "a loop that does not begin");
	return 0;
}
