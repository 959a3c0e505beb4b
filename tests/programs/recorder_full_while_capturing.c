/* FREED TAKEN: frees so many percent of the device's memory, then allocates so many while a stream is captured. */
#include "program.h"

static size_t part(size_t all, const char *percent)
{
	return (all / 100 * (size_t)atoi(percent)) & ~(size_t)0x1fffff;
}

int main(int argc, char **argv)
{
	size_t available, total;
	unsigned n = 5000;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	OK(argc == 3 ? cuMemGetInfo(&available, &total) : CUDA_ERROR_INVALID_VALUE);
	CUdeviceptr freed = allocate(part(available, argv[1]));
	OK(launch(fill, n, NULL, PARAMS(&freed, &n, &n)));
	OK(cuCtxSynchronize());
	OK(cuMemFree(freed));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUdeviceptr taken = allocate(part(available, argv[2]));
	OK(launch(fill, n, stream, PARAMS(&taken, &n, &n)));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	print_device("taken", taken, n * 4);
	return 0;
}
