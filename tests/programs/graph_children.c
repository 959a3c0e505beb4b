/*
 * Graphs made of other graphs: clones, child graphs, one updated from a graph whose nodes were added in
 * another order, memory that a graph allocates, and many executable graphs in turn, perhaps at the same
 * address.
 */
#include "program.h"

#define N 1000

static CUcontext context;
static CUfunction fill, add;

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *after, CUfunction f, CUdeviceptr p, unsigned value)
{
	unsigned n = N;
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = f, .gridDimX = 16, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&p, &n, &value),
	};

	OK(cuGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &k));
	return node;
}

static void run(const char *what, CUgraphExec executable, CUdeviceptr a, CUdeviceptr b)
{
	OK(cuGraphLaunch(executable, NULL));
	OK(cuCtxSynchronize());
	printf("%s\n", what);
	print_words("a", a, 3);
	print_words("b", b, 3);
}

int main(void)
{
	CUgraph inner, middle, outer, clone, other;
	CUgraphNode node, first, second, in_clone;
	CUgraphExec executable, of_clone;
	CUgraphExecUpdateResultInfo info;

	start();
	OK(cuCtxGetCurrent(&context));
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill"), add = get_kernel(module, "add");
	CUdeviceptr a = allocate(N * 4), b = allocate(N * 4);
	OK(cuMemsetD8(a, 0, N * 4));
	OK(cuMemsetD8(b, 0, N * 4));

	/* outer: a = 1 + i, then middle { inner { a += 10 }, then a += 100 }, beside b = 5 + i, then b += 50. */
	OK(cuGraphCreate(&inner, 0));
	OK(cuGraphCreate(&middle, 0));
	OK(cuGraphCreate(&outer, 0));
	add_kernel(inner, NULL, add, a, 10);
	OK(cuGraphAddChildGraphNode(&node, middle, NULL, 0, inner));
	add_kernel(middle, &node, add, a, 100);
	first = add_kernel(outer, NULL, fill, a, 1);
	OK(cuGraphAddChildGraphNode(&node, outer, &first, 1, middle));
	second = add_kernel(outer, NULL, fill, b, 5);
	add_kernel(outer, &second, add, b, 50);
	SHOW(cuGraphInstantiate(&executable, outer, 0));
	run("graphs inside graphs", executable, a, b);

	SHOW(cuGraphClone(&clone, outer));
	SHOW(cuGraphNodeFindInClone(&in_clone, second, clone));
	SHOW(cuGraphInstantiateWithParams(&of_clone, clone, &(CUDA_GRAPH_INSTANTIATE_PARAMS){0}));
	CUDA_KERNEL_NODE_PARAMS k;
	unsigned n = N, value = 7;
	OK(cuGraphKernelNodeGetParams(in_clone, &k));
	k.kernelParams = PARAMS(&b, &n, &value);
	SHOW(cuGraphExecKernelNodeSetParams(of_clone, in_clone, &k));
	run("of the clone", of_clone, a, b);
	run("of the original", executable, a, b);
	SHOW(cuGraphDestroy(clone));
	SHOW(cuGraphDestroy(inner));
	SHOW(cuGraphDestroy(middle));
	run("of the clone that is gone", of_clone, a, b);
	SHOW(cuGraphExecDestroy(of_clone));

	/* The same form, but that its nodes came in another order. */
	OK(cuGraphCreate(&other, 0));
	OK(cuGraphCreate(&inner, 0));
	OK(cuGraphCreate(&middle, 0));
	add_kernel(inner, NULL, add, a, 20);
	OK(cuGraphAddChildGraphNode(&node, middle, NULL, 0, inner));
	add_kernel(middle, &node, add, a, 200);
	first = add_kernel(other, NULL, fill, a, 2);
	second = add_kernel(other, NULL, fill, b, 6);
	OK(cuGraphAddChildGraphNode(&node, other, &first, 1, middle));
	add_kernel(other, &second, add, b, 60);
	CUresult r = cuGraphExecUpdate(executable, other, &info);
	printf("~ update %s %d\n", result_name(r), (int)info.result);
	if (r != CUDA_SUCCESS) {
		OK(cuGraphExecDestroy(executable));
		OK(cuGraphInstantiate(&executable, other, 0));
	}
	run("in another order", executable, a, b);
	SHOW(cuGraphExecDestroy(executable));

	for (unsigned i = 0; i < 20; i++) {
		CUgraph small;
		OK(cuGraphCreate(&small, 0));
		add_kernel(small, NULL, add, a, i);
		OK(cuGraphInstantiate(&executable, small, 0));
		OK(cuGraphDestroy(small));
		OK(cuGraphLaunch(executable, NULL));
		OK(cuGraphExecDestroy(executable));
	}
	OK(cuCtxSynchronize());
	print_words("a", a, 3);
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	return 0;
}
