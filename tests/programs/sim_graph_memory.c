/* Memory of a graph: allocated and freed by its nodes, added by hand and by capture. */
#include "program.h"

static CUgraphNode add_fill(CUgraph graph, CUgraphNode after, CUdeviceptr p, unsigned value)
{
	CUcontext context;
	CUgraphNode node;
	CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = value, .elementSize = 4, .width = 1000, .height = 1};

	OK(cuCtxGetCurrent(&context));
	OK(cuGraphAddMemsetNode(&node, graph, &after, 1, &set, context));
	return node;
}

static CUgraphNode add_copy(CUgraph graph, CUgraphNode after, CUdeviceptr to, CUdeviceptr from)
{
	CUcontext context;
	CUgraphNode node;
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
		.WidthInBytes = 4000, .Height = 1, .Depth = 1,
	};

	OK(cuCtxGetCurrent(&context));
	OK(cuGraphAddMemcpyNode(&node, graph, &after, 1, &copy, context));
	return node;
}

static CUgraph build(CUdevice device, CUdeviceptr out, bool frees, CUdeviceptr *memory)
{
	CUgraph graph, clone;
	CUgraphNode alloc, last, freed;
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
		.bytesize = 4000,
	};
	CUDA_MEM_ALLOC_NODE_PARAMS back;
	CUdeviceptr free_back;

	OK(cuGraphCreate(&graph, 0));
	SHOW(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
	printf("an address %d\n", params.dptr != 0);
	SHOW(cuGraphMemAllocNodeGetParams(alloc, &back));
	printf("the same %d, %zu bytes\n", back.dptr == params.dptr, back.bytesize);
	last = add_copy(graph, add_fill(graph, alloc, params.dptr, 0x01020304), out, params.dptr);
	if (frees) {
		SHOW(cuGraphAddMemFreeNode(&freed, graph, &last, 1, params.dptr));
		SHOW(cuGraphMemFreeNodeGetParams(freed, &free_back));
		printf("frees it %d\n", free_back == params.dptr);
	}
	SHOW(cuGraphClone(&clone, graph));
	*memory = params.dptr;
	return graph;
}

int main(void)
{
	CUdevice device = start();
	CUdeviceptr out = allocate(4000), memory, captured;
	CUgraphExec executable;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD8(out, 0, 4000));
	CUgraph graph = build(device, out, true, &memory);
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	for (int i = 0; i < 3; i++)
		SHOW(cuGraphLaunch(executable, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("allocated, filled, copied, freed", out, 4000);
	SHOW(cuGraphExecDestroy(executable));
	SHOW(cuGraphDestroy(graph));

	graph = build(device, out, false, &memory);
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	SHOW(cuGraphLaunch(executable, stream));
	SHOW(cuMemsetD32Async(memory, 7, 1000, stream));
	SHOW(cuMemcpyDtoDAsync(out, memory, 4000, stream));
	SHOW(cuMemFreeAsync(memory, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("freed outside", out, 4000);
	SHOW(cuGraphLaunch(executable, stream));
	SHOW(cuStreamSynchronize(stream));
	SHOW(cuMemFree(memory));
	SHOW(cuGraphExecDestroy(executable));
	SHOW(cuGraphDestroy(graph));

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW(cuMemAllocAsync(&captured, 4000, stream));
	SHOW(cuMemsetD32Async(captured, 9, 1000, stream));
	SHOW(cuMemcpyDtoDAsync(out, captured, 4000, stream));
	SHOW(cuMemFreeAsync(captured, stream));
	SHOW(cuStreamEndCapture(stream, &graph));
	SHOW(cuGraphInstantiate(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	for (int i = 0; i < 2; i++)
		SHOW(cuGraphLaunch(executable, stream));
	SHOW(cuStreamSynchronize(stream));
	print_device("captured", out, 4000);
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
	OK(cuMemFree(out));
	return 0;
}
