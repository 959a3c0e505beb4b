/* A graph that allocates the memory of its kernels: the recorder cannot add nodes to it. */
#include "program.h"

int main(void)
{
	unsigned n = 3000, value = 4;
	CUDA_MEM_ALLOC_NODE_PARAMS allocation = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
		.bytesize = n * 4,
	};
	CUgraphNode alloc, kernel, copy;
	CUgraphExec exec;
	CUdeviceptr out;
	CUcontext context;
	CUgraph graph;
	size_t count;

	start();
	OK(cuCtxGetCurrent(&context));
	CUfunction fill = get_kernel(load_kernels(), "fill");
	out = allocate(n * 4);
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &allocation));
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = fill, .gridDimX = 24, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&allocation.dptr, &n, &value),
	};
	OK(cuGraphAddKernelNode(&kernel, graph, &alloc, 1, &p));
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = allocation.dptr, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = out, .WidthInBytes = n * 4, .Height = 1, .Depth = 1,
	};
	OK(cuGraphAddMemcpyNode(&copy, graph, &kernel, 1, &c, context));
	OK(cuGraphAddMemFreeNode(&alloc, graph, &copy, 1, allocation.dptr));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphGetNodes(graph, NULL, &count));
	printf("nodes %zu\n", count);
	for (int i = 0; i < 2; i++)
		OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	print_device("out", out, n * 4);
	return 0;
}
