/* A graph built node by node; its executable graph is changed in place and updated from another graph. */
#include "program.h"

static CUfunction fill, add;
static CUcontext context;

static CUgraph build(CUdeviceptr a, CUdeviceptr b, unsigned value, CUgraphNode *second)
{
	unsigned n = 1000;
	CUgraphNode set, first, copy;
	CUgraph graph;
	CUDA_MEMSET_NODE_PARAMS clear = {.dst = b, .value = 0xab, .elementSize = 1, .width = n * 4, .height = 1};
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.func = fill, .gridDimX = 16, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&a, &n, &value),
	};
	CUDA_MEMCPY3D down = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = b,
		.WidthInBytes = 2000, .Height = 1, .Depth = 1,
	};

	SHOW(cuGraphCreate(&graph, 0));
	SHOW(cuGraphAddMemsetNode(&set, graph, NULL, 0, &clear, context));
	SHOW(cuGraphAddKernelNode(&first, graph, NULL, 0, &kernel));
	kernel.func = add;
	SHOW(cuGraphAddKernelNode(second, graph, &first, 1, &kernel));
	SHOW(cuGraphAddMemcpyNode(&copy, graph, (CUgraphNode[]){set, *second}, 2, &down, context));
	return graph;
}

static void run(CUgraphExec executable, CUdeviceptr a, CUdeviceptr b)
{
	SHOW(cuGraphLaunch(executable, NULL));
	SHOW(cuCtxSynchronize());
	print_device("a", a, 4000);
	print_device("b", b, 4000);
}

int main(void)
{
	unsigned n = 1000, value = 5000;
	CUgraph graph, other;
	CUgraphNode node, unused;
	CUgraphExec executable;
	CUgraphNodeType type;
	CUgraphExecUpdateResultInfo info;

	start();
	OK(cuCtxGetCurrent(&context));
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill");
	add = get_kernel(module, "add");
	CUdeviceptr a = allocate(n * 4), b = allocate(n * 4);
	graph = build(a, b, 100, &node);
	SHOW(cuGraphNodeGetType(node, &type));
	printf("type %d\n", (int)type);
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	SHOW(cuGraphUpload(executable, NULL));
	run(executable, a, b);

	CUDA_KERNEL_NODE_PARAMS changed = {
		.func = add, .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&a, &n, &value),
	};
	SHOW(cuGraphExecKernelNodeSetParams(executable, node, &changed));
	run(executable, a, b);
	other = build(a, b, 300, &unused);
	SHOW(cuGraphExecUpdate(executable, other, &info));
	printf("update %d\n", (int)info.result);
	run(executable, a, b);
	SHOW(cuGraphDestroy(graph));
	SHOW(cuGraphDestroy(other));
	run(executable, a, b);
	SHOW(cuGraphExecDestroy(executable));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	return 0;
}
