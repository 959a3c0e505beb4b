/*
 * A stream captured into a graph, which is then launched once each step: clear, two time steps
 * of a wave, a sum, and the download of the sum.
 */
#include "common.h"

EMBED(ptx, "graph.ptx");

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv, (struct options){.size = 4096, .steps = 5, .seed = 1});
	size_t bytes = (size_t)o.size * sizeof(float);
	float *start = random_floats(o.size, o.seed), *end = malloc(bytes);
	unsigned long long *sum;
	int n = (int)o.size;
	CUmodule module;
	CUstream stream;
	CUgraph graph;
	CUgraphExec executable;
	CUdeviceptr a, b, device_sum;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction step = kernel(module, "step"), energy = kernel(module, "energy");
	CHECK(cuMemAlloc(&a, bytes));
	CHECK(cuMemAlloc(&b, bytes));
	CHECK(cuMemAlloc(&device_sum, sizeof(*sum)));
	CHECK(cuMemAllocHost((void **)&sum, sizeof(*sum)));
	CHECK(cuMemcpyHtoD(a, start, bytes));
	CHECK(cuMemcpyHtoD(b, start, bytes));

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuMemsetD8Async(device_sum, 0, sizeof(*sum), stream));
	launch(step, o.size, stream, PARAMS(&a, &b, &n));
	launch(step, o.size, stream, PARAMS(&b, &a, &n));
	launch(energy, o.size, stream, PARAMS(&a, &device_sum, &n));
	CHECK(cuMemcpyDtoHAsync(sum, device_sum, sizeof(*sum), stream));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiate(&executable, graph, 0));

	for (long i = 0; i < o.steps; i++) {
		CHECK(cuGraphLaunch(executable, stream));
		CHECK(cuStreamSynchronize(stream));
		printf("step %ld: energy %llu\n", i, *sum);
	}

	CHECK(cuMemcpyDtoH(end, a, bytes));
	printf("graph: %ld elements, checksum %016llx\n", o.size, (unsigned long long)checksum(end, bytes));
	CHECK(cuGraphExecDestroy(executable));
	CHECK(cuGraphDestroy(graph));
	CHECK(cuStreamDestroy(stream));
	CHECK(cuMemFree(a));
	CHECK(cuMemFree(b));
	CHECK(cuMemFree(device_sum));
	CHECK(cuMemFreeHost(sum));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(start);
	free(end);
	return 0;
}
