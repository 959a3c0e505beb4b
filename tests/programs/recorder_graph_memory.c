/*
 * Memory that a graph allocates and leaves: freed by its next launch, by another graph, and by a call. Each launch
 * fills it with the number of the launch.
 */
#include "program.h"

#define ITEMS 1000
#define BYTES (4 * ITEMS)

static CUgraphExec allocating(CUdevice device, CUdeviceptr from, CUdeviceptr *memory)
{
	CUgraph graph;
	CUgraphNode made, copied;
	CUcontext context;
	CUgraphExec executable;
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
		.bytesize = BYTES,
	};

	OK(cuCtxGetCurrent(&context));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemAllocNode(&made, graph, NULL, 0, &params));
	*memory = params.dptr;
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = *memory, .WidthInBytes = BYTES, .Height = 1, .Depth = 1,
	};
	OK(cuGraphAddMemcpyNode(&copied, graph, &made, 1, &copy, context));
	OK(cuGraphInstantiate(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	OK(cuGraphDestroy(graph));
	return executable;
}

static CUgraphExec freeing(CUdeviceptr memory)
{
	CUgraph graph;
	CUgraphNode freed;
	CUgraphExec executable;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemFreeNode(&freed, graph, NULL, 0, memory));
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuGraphDestroy(graph));
	return executable;
}

static void run(CUgraphExec executable, CUdeviceptr from, CUdeviceptr memory, unsigned number, CUstream stream)
{
	unsigned found[ITEMS];

	OK(cuMemsetD32Async(from, number, ITEMS, stream));
	OK(cuGraphLaunch(executable, stream));
	OK(cuMemcpyDtoHAsync(found, memory, BYTES, stream));
	OK(cuStreamSynchronize(stream));
	printf("launch %u: %u to %u\n", number, found[0], found[ITEMS - 1]);
}

int main(void)
{
	CUdevice device = start();
	CUdeviceptr from = allocate(BYTES), memory;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUgraphExec allocates = allocating(device, from, &memory), frees = freeing(memory);
	for (unsigned number = 1; number <= 3; number++)
		run(allocates, from, memory, number, stream);
	OK(cuGraphLaunch(frees, stream));
	run(allocates, from, memory, 4, stream);
	OK(cuMemFreeAsync(memory, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuGraphExecDestroy(allocates));
	OK(cuGraphExecDestroy(frees));
	OK(cuMemFree(from));
	return 0;
}
