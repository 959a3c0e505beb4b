/*
 * A graph whose kernels are captured after: a chain on one buffer, a branch on another, a copy and
 * a set, launched again and again, changed in every way in between. Each replay i works with 1000 * i.
 *
 *   fill a ──┬── add a ── copy a to c ── add c
 *            └── fill b ── add b
 */
#include "program.h"

#define N 40000

static CUfunction fill, add;
static CUdeviceptr a, b, c;
static CUgraphNode nodes[6];

static CUDA_KERNEL_NODE_PARAMS kernel(CUfunction f, void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = f, .gridDimX = (N + 127) / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = params,
	};
}

static CUgraph make(CUcontext context, unsigned base)
{
	unsigned n = N, one = 1, two = 2, hundred = base + 100;
	CUDA_KERNEL_NODE_PARAMS p;
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = c,
		.WidthInBytes = N * 4, .Height = 1, .Depth = 1, .srcPitch = N * 4, .dstPitch = N * 4, .srcHeight = 1,
		.dstHeight = 1,
	};
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	p = kernel(fill, PARAMS(&a, &n, &base));
	OK(cuGraphAddKernelNode(&nodes[0], graph, NULL, 0, &p));
	p = kernel(add, PARAMS(&a, &n, &one));
	OK(cuGraphAddKernelNode(&nodes[1], graph, &nodes[0], 1, &p));
	OK(cuGraphAddMemcpyNode(&nodes[2], graph, &nodes[1], 1, &copy, context));
	p = kernel(add, PARAMS(&c, &n, &two));
	OK(cuGraphAddKernelNode(&nodes[3], graph, &nodes[2], 1, &p));
	p = kernel(fill, PARAMS(&b, &n, &hundred));
	OK(cuGraphAddKernelNode(&nodes[4], graph, &nodes[0], 1, &p));
	p = kernel(add, PARAMS(&b, &n, &one));
	OK(cuGraphAddKernelNode(&nodes[5], graph, &nodes[4], 1, &p));
	return graph;
}

/* The executable graph works with this base from now on. */
static void change(CUgraphExec exec, unsigned base)
{
	unsigned n = N, hundred = base + 100;
	CUDA_KERNEL_NODE_PARAMS p = kernel(fill, PARAMS(&a, &n, &base));

	OK(cuGraphExecKernelNodeSetParams(exec, nodes[0], &p));
	p = kernel(fill, PARAMS(&b, &n, &hundred));
	OK(cuGraphExecKernelNodeSetParams(exec, nodes[4], &p));
}

int main(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, other;
	CUcontext context;
	CUgraphExec exec;
	CUstream stream;
	size_t count;

	start();
	OK(cuCtxGetCurrent(&context));
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill");
	add = get_kernel(module, "add");
	a = allocate(N * 4), b = allocate(N * 4), c = allocate(N * 4);
	OK(cuMemsetD8(a, 0, N * 4));
	OK(cuMemsetD8(b, 0, N * 4));
	OK(cuMemsetD8(c, 0, N * 4));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	graph = make(context, 1000);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphGetNodes(graph, NULL, &count));
	printf("nodes %zu\n", count);
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
	printf("edges %zu\n", count);
	for (unsigned i = 1; i <= 3; i++) { /* one after the other, without a wait */
		if (i > 1)
			change(exec, 1000 * i);
		OK(cuGraphLaunch(exec, stream));
	}
	other = make(context, 4000); /* as a whole */
	SHOW(cuGraphExecUpdate(exec, other, &info));
	printf("update %d\n", (int)info.result);
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphDestroyNode(nodes[5])); /* with other nodes it is refused */
	SHOW(cuGraphExecUpdate(exec, other, &info));
	OK(cuGraphDestroy(other));
	OK(cuGraphDestroy(graph));
	OK(cuGraphLaunch(exec, stream)); /* and still does what it did */
	OK(cuStreamSynchronize(stream));
	print_device("a", a, N * 4);
	print_device("b", b, N * 4);
	print_device("c", c, N * 4);
	OK(cuGraphExecDestroy(exec));
	return 0;
}
