/* A thread that relaxed its capture mode allocates memory while a stream is being captured. */
#include "program.h"

int main(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	unsigned n = 3000, value = 4;
	CUdeviceptr before, p, large;
	CUgraphExec executable;
	CUstream stream;
	CUgraph graph;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill"), add = get_kernel(load_kernels(), "add");
	before = allocate(n * 4);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD8(before, 0, n * 4));
	OK(cuCtxSynchronize());
	SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	SHOW(cuMemAlloc(&p, n * 4));
	SHOW(cuMemAlloc(&large, 5 << 20));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	SHOW(launch(fill, n, stream, PARAMS(&p, &n, &value)));
	SHOW(launch(add, n, stream, PARAMS(&p, &n, &value)));
	SHOW(cuMemcpyDtoDAsync(large, p, n * 4, stream));
	SHOW(cuMemcpyDtoDAsync(before, large, n * 2, stream));
	SHOW(cuStreamEndCapture(stream, &graph));
	SHOW(cuGraphInstantiate(&executable, graph, 0));
	for (unsigned i = 0; i < 2; i++) {
		SHOW(cuGraphLaunch(executable, stream));
		SHOW(cuStreamSynchronize(stream));
		print_device("before", before, n * 4);
		print_device("during", p, n * 4);
	}
	SHOW(cuMemFree(p));
	SHOW(cuMemFree(large));
	SHOW(cuMemFree(before));
	return 0;
}
