/*
 * An executable graph is changed in every possible way, with a launch after each change: node by node,
 * nodes disabled and enabled, as a whole, a child graph, and updates that are refused.
 */
#include "program.h"

#define N 1000

static CUcontext context;
static CUfunction fill, add, copy;
static CUdeviceptr a, b, c;
static unsigned calls[2];

struct nodes {
	CUgraphNode clear, first, second, down, host, record, wait, child, inner;
};

static void count_call(void *data)
{
	++*(unsigned *)data;
}

static CUDA_KERNEL_NODE_PARAMS kernel(CUfunction f, void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = f, .gridDimX = (N + 63) / 64, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = params,
	};
}

static CUDA_MEMCPY3D part(CUdeviceptr to, CUdeviceptr from, unsigned items)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = to, .WidthInBytes = items * 4, .Height = 1, .Depth = 1,
	};
}

/* b = value, beside a = first + i, then a += second, then b[0 … items) = a; then the graph inside: c = inner + i. */
static CUgraph build(struct nodes *n, CUevent event, unsigned value, unsigned first, unsigned second, unsigned inner)
{
	unsigned count = N;
	CUgraph graph, child;
	CUDA_MEMSET_NODE_PARAMS set = {.dst = b, .value = value, .elementSize = 4, .width = N, .height = 1};
	CUDA_HOST_NODE_PARAMS call = {.fn = count_call, .userData = &calls[0]};
	CUDA_KERNEL_NODE_PARAMS p = kernel(fill, PARAMS(&a, &count, &first));
	CUDA_MEMCPY3D down = part(b, a, 500);

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddMemsetNode(&n->clear, graph, NULL, 0, &set, context));
	OK(cuGraphAddKernelNode(&n->first, graph, NULL, 0, &p));
	p = kernel(add, PARAMS(&a, &count, &second));
	OK(cuGraphAddKernelNode(&n->second, graph, &n->first, 1, &p));
	OK(cuGraphAddMemcpyNode(&n->down, graph, (CUgraphNode[]){n->clear, n->second}, 2, &down, context));
	OK(cuGraphAddHostNode(&n->host, graph, &n->down, 1, &call));
	OK(cuGraphAddEventRecordNode(&n->record, graph, &n->down, 1, event));
	OK(cuGraphAddEventWaitNode(&n->wait, graph, &n->host, 1, event));
	p = kernel(fill, PARAMS(&c, &count, &inner));
	OK(cuGraphAddKernelNode(&n->inner, child, NULL, 0, &p));
	OK(cuGraphAddChildGraphNode(&n->child, graph, (CUgraphNode[]){n->record, n->wait}, 2, child));
	OK(cuGraphDestroy(child));
	return graph;
}

static void run(const char *what, CUgraphExec executable)
{
	OK(cuGraphLaunch(executable, NULL));
	OK(cuCtxSynchronize());
	printf("%s: calls %u %u\n", what, calls[0], calls[1]);
	print_device("a", a, N * 4);
	print_device("b", b, N * 4);
	print_device("c", c, N * 4);
}

int main(void)
{
	unsigned count = N, value;
	CUgraph graph, other, child;
	struct nodes n, m;
	CUgraphNode inner;
	CUgraphExec executable, second;
	CUgraphExecUpdateResultInfo info;
	CUevent event, later;

	start();
	OK(cuCtxGetCurrent(&context));
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill");
	add = get_kernel(module, "add");
	copy = get_kernel(module, "copy");
	a = allocate(N * 4), b = allocate(N * 4), c = allocate(N * 4);
	OK(cuMemsetD8(a, 0, N * 4));
	OK(cuMemsetD8(b, 0, N * 4));
	OK(cuMemsetD8(c, 0, N * 4));
	OK(cuEventCreate(&event, 0));
	OK(cuEventCreate(&later, 0));
	graph = build(&n, event, 7, 100, 5, 900);
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	run("as it was made", executable);

	value = 50;
	CUDA_KERNEL_NODE_PARAMS p = kernel(add, PARAMS(&a, &count, &value));
	SHOW(cuGraphExecKernelNodeSetParams(executable, n.second, &p));
	run("a kernel's parameters", executable);
	p = kernel(copy, PARAMS(&a, &c, &count));
	p.gridDimX = 4;
	SHOW(cuGraphExecKernelNodeSetParams(executable, n.second, &p));
	run("another kernel", executable);
	CUDA_MEMSET_NODE_PARAMS set = {.dst = b + 400, .value = 0x1234, .elementSize = 2, .width = 300, .height = 1};
	SHOW(cuGraphExecMemsetNodeSetParams(executable, n.clear, &set, context));
	run("a memset", executable);
	CUDA_MEMCPY3D down = part(b, a, 250);
	SHOW(cuGraphExecMemcpyNodeSetParams(executable, n.down, &down, context));
	run("a copy", executable);
	CUDA_HOST_NODE_PARAMS call = {.fn = count_call, .userData = &calls[1]};
	SHOW(cuGraphExecHostNodeSetParams(executable, n.host, &call));
	run("a host function", executable);
	SHOW(cuGraphExecEventRecordNodeSetEvent(executable, n.record, later));
	SHOW(cuGraphExecEventWaitNodeSetEvent(executable, n.wait, later));
	run("events", executable);
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	value = 77;
	p = kernel(fill, PARAMS(&a, &count, &value));
	memcpy(&any.kernel, &p, sizeof(p));
	SHOW(cuGraphExecNodeSetParams(executable, n.first, &any));
	run("any node", executable);

	SHOW(cuGraphNodeSetEnabled(executable, n.clear, 0));
	SHOW(cuGraphNodeSetEnabled(executable, n.second, 0));
	run("two nodes off", executable);
	SHOW(cuGraphNodeSetEnabled(executable, n.second, 1));
	run("one on again", executable);

	value = 1000;
	OK(cuGraphCreate(&child, 0));
	p = kernel(fill, PARAMS(&c, &count, &value));
	OK(cuGraphAddKernelNode(&inner, child, NULL, 0, &p));
	SHOW(cuGraphExecChildGraphNodeSetParams(executable, n.child, child));
	OK(cuGraphDestroy(child));
	run("the graph inside", executable);

	other = build(&m, event, 8, 200, 6, 800);
	SHOW(cuGraphExecUpdate(executable, other, &info));
	printf("update %d\n", (int)info.result);
	run("as a whole", executable);
	SHOW(cuGraphNodeSetEnabled(executable, n.clear, 1));
	run("the first on again", executable);
	OK(cuGraphAddMemsetNode(&m.clear, other, NULL, 0, &set, context));
	SHOW(cuGraphExecUpdate(executable, other, &info));
	printf("update %d\n", (int)info.result);
	run("refused", executable);

	SHOW(cuGraphInstantiate(&second, graph, 0));
	value = 3;
	p = kernel(add, PARAMS(&a, &count, &value));
	SHOW(cuGraphExecKernelNodeSetParams(second, n.second, &p));
	SHOW(cuGraphDestroy(other));
	run("the second", second);
	run("the first", executable);
	SHOW(cuGraphDestroy(graph));
	run("without the graph", executable);
	SHOW(cuGraphExecDestroy(executable));
	run("only the second", second);
	SHOW(cuGraphExecDestroy(second));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	OK(cuMemFree(c));
	return 0;
}
