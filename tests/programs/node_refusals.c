/*
 * Lists of nodes and edges with no room, and changes that copy and set nodes of an executable graph refuse.
 */
#include "program.h"

#define PITCH 256

static CUDA_MEMCPY3D box(CUdeviceptr dst, CUdeviceptr src, size_t rows)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = src, .srcPitch = PITCH, .srcHeight = rows,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = dst, .dstPitch = PITCH, .dstHeight = rows,
		.WidthInBytes = 16, .Height = rows, .Depth = 1,
	};
}

static void lists(CUgraph graph, CUgraphNode node)
{
	CUgraphNode from[4] = {0}, to[4] = {0};
	CUgraphEdgeData data[4];
	size_t none = 0;

	SHOW(cuGraphGetNodes(graph, from, &none));
	SHOW(cuGraphGetRootNodes(graph, from, &none));
	SHOW(cuGraphGetEdges(graph, from, to, data, &none));
	SHOW(cuGraphNodeGetDependencies(node, from, data, &none));
	SHOW(cuGraphNodeGetDependentNodes(node, from, data, &none));
	SHOW(cuGraphGetNodes(graph, NULL, &none));
	printf("%zu nodes\n", none);
}

int main(void)
{
	CUcontext context;
	CUgraph graph, empty;
	CUgraphNode row, rows, set, sets;
	CUgraphExec executable;
	CUdeviceptr a, b;
	unsigned char host[16] = {0};

	start();
	OK(cuCtxGetCurrent(&context));
	OK(cuMemAlloc(&a, 16 * PITCH));
	OK(cuMemAlloc(&b, 16 * PITCH));
	OK(cuMemsetD8(a, 1, 16 * PITCH));
	OK(cuMemsetD8(b, 2, 16 * PITCH));
	OK(cuGraphCreate(&empty, 0));
	OK(cuGraphCreate(&graph, 0));
	CUDA_MEMCPY3D one = box(b, a, 1), three = box(b, a, 3), other = box(b + 4 * PITCH, a, 1);
	CUDA_MEMSET_NODE_PARAMS line = {.dst = a, .value = 3, .elementSize = 1, .width = 16, .height = 1};
	CUDA_MEMSET_NODE_PARAMS lines = {
		.dst = a, .pitch = PITCH, .value = 4, .elementSize = 1, .width = 16, .height = 2,
	};
	OK(cuGraphAddMemcpyNode(&row, graph, NULL, 0, &one, context));
	OK(cuGraphAddMemcpyNode(&rows, graph, &row, 1, &three, context));
	OK(cuGraphAddMemsetNode(&set, graph, &rows, 1, &line, context));
	OK(cuGraphAddMemsetNode(&sets, graph, &set, 1, &lines, context));
	lists(graph, rows);
	lists(empty, row);

	OK(cuGraphInstantiate(&executable, graph, 0));
	SHOW(cuGraphExecMemcpyNodeSetParams(executable, row, &other, context));
	SHOW(cuGraphExecMemcpyNodeSetParams(executable, row, &three, context));
	SHOW(cuGraphExecMemcpyNodeSetParams(executable, rows, &three, context));
	SHOW(cuGraphExecMemcpyNodeSetParams(executable, rows, &one, context));
	other.srcMemoryType = CU_MEMORYTYPE_HOST;
	other.srcHost = host;
	SHOW(cuGraphExecMemcpyNodeSetParams(executable, row, &other, context));
	line.value = 5;
	SHOW(cuGraphExecMemsetNodeSetParams(executable, set, &line, context));
	SHOW(cuGraphExecMemsetNodeSetParams(executable, set, &lines, context));
	lines.dst = a + 8 * PITCH;
	SHOW(cuGraphExecMemsetNodeSetParams(executable, sets, &lines, context));
	lines.height = 3;
	SHOW(cuGraphExecMemsetNodeSetParams(executable, sets, &lines, context));
	OK(cuGraphLaunch(executable, NULL));
	OK(cuCtxSynchronize());
	print_device("a", a, 16 * PITCH);
	print_device("b", b, 16 * PITCH);
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(empty));
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	return 0;
}
