/*
 * MS: a stream is captured in global mode for so many milliseconds after work whose times are known. Then the graph runs.
 */
#include "program.h"

#include <time.h>

int main(int argc, char **argv)
{
	long ms = argc > 1 ? atol(argv[1]) : 0;
	unsigned n = 1000, one = 1;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	CUdeviceptr p = allocate(n * 4);
	OK(launch(fill, n, NULL, PARAMS(&p, &n, &n)));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 2; i++) {
		OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
		SHOW(launch(fill, n, stream, PARAMS(&p, &n, &one)));
		SHOW(cuStreamEndCapture(stream, &graph));
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphLaunch(exec, stream)); /* its nodes are timed during the next capture */
	}
	OK(cuStreamSynchronize(stream));
	print_device("filled", p, n * 4);
	return 0;
}
