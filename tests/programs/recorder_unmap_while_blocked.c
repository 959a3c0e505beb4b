/*
 * Memory is unmapped, which waits for no work, while an epoch that reads it waits for a host function in a graph.
 * Another thread lets that go a little later.
 */
#include "held_back.h"

#include <pthread.h>

/* The graph hides the host function from the recorder's waits for streams. */
static void blocks_until_go(CUstream stream)
{
	CUDA_HOST_NODE_PARAMS host = {.fn = wait_for_go};
	CUgraphExec executable;
	CUgraphNode node;
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuGraphLaunch(executable, stream));
}

static void *lets_go(void *unused)
{
	usleep(100000);
	go = 1;
	return unused;
}

int main(void)
{
	CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemGenericAllocationHandle memory;
	unsigned n = 5000, none = 0, one = 1;
	CUdeviceptr mapped;
	CUstream held, free_stream;
	pthread_t thread;
	size_t size;

	props.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, start()};
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr a = allocate(n * 4);
	OK(cuMemGetAllocationGranularity(&size, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	OK(cuMemAddressReserve(&mapped, size, 0, 0, 0));
	OK(cuMemCreate(&memory, size, &props, 0));
	OK(cuMemMap(mapped, size, 0, memory, 0));
	OK(cuMemSetAccess(mapped, size, &(CUmemAccessDesc){props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, 1));
	OK(cuMemsetD8(a, 1, n * 4));
	OK(cuMemsetD8(mapped, 2, size));
	OK(launch(mix, n, NULL, PARAMS(&a, &n, &none))); /* loads it: that may wait for all streams */
	OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSynchronize()); /* an epoch */
	blocks_until_go(held);
	OK(launch(mix, n, free_stream, PARAMS(&a, &n, &one)));
	OK(cuStreamSynchronize(free_stream)); /* an epoch that waits for the graph */
	OK(launch(mix, n, free_stream, PARAMS(&a, &n, &one)));
	while (cuStreamQuery(free_stream) == CUDA_ERROR_NOT_READY)
		usleep(1000);
	if (pthread_create(&thread, NULL, lets_go, NULL))
		return 3;
	OK(cuMemUnmap(mapped, size));
	pthread_join(thread, NULL);
	OK(cuStreamSynchronize(held));
	OK(cuMemRelease(memory));
	OK(cuMemAddressFree(mapped, size));
	print_device("unmapped", a, n * 4);
	return 0;
}
