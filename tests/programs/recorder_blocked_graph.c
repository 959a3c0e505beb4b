/*
 * An epoch is cut while a host function inside a graph blocks that graph. "off": the program waits until
 * another stream, which waits for that epoch, continues. "late": it lets the graph continue while the
 * recorder cancels the epoch. "end": it never lets it continue. Then another epoch and more work follow.
 */
#include "held_back.h"

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "off";
	unsigned n = 5000, none = 0, one = 1;
	CUDA_HOST_NODE_PARAMS host = {.fn = wait_for_go};
	CUstream held, free_stream;
	CUgraphExec executable;
	CUgraphNode first, second;
	CUcontext context;
	CUgraph graph;

	start();
	OK(cuCtxGetCurrent(&context));
	CUfunction mix = get_kernel(load_kernels(), "mix");
	CUdeviceptr a = allocate(n * 4), b = allocate(n * 4);
	OK(cuMemsetD8(a, 1, n * 4));
	OK(cuMemsetD8(b, 2, n * 4));
	OK(launch(mix, n, NULL, PARAMS(&b, &n, &none))); /* loads it: that may wait for all streams */
	OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	CUDA_MEMSET_NODE_PARAMS set = {.dst = a, .value = 3, .elementSize = 1, .width = n * 4, .height = 1};
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddHostNode(&first, graph, NULL, 0, &host));
	OK(cuGraphAddMemsetNode(&second, graph, &first, 1, &set, context));
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuCtxSynchronize()); /* an epoch */
	OK(cuGraphLaunch(executable, held));
	OK(launch(mix, n, free_stream, PARAMS(&b, &n, &one)));
	OK(cuStreamSynchronize(free_stream)); /* an epoch that waits for the graph */
	if (!strcmp(how, "end")) {
		fflush(stdout);
		_exit(0);
	}
	OK(launch(mix, n, free_stream, PARAMS(&b, &n, &one)));
	if (!strcmp(how, "late"))
		usleep(400000);
	while (!strcmp(how, "off") && cuStreamQuery(free_stream) == CUDA_ERROR_NOT_READY)
		usleep(1000);
	go = 1;
	while (cuStreamQuery(held) == CUDA_ERROR_NOT_READY)
		usleep(1000);
	usleep(100000); /* for the capture behind it */
	OK(cuStreamSynchronize(held)); /* an epoch */
	print_device("let go", a, n * 4);
	if (!strcmp(how, "late"))
		usleep(1000000);
	OK(launch(mix, n, free_stream, PARAMS(&b, &n, &one)));
	OK(cuStreamSynchronize(free_stream));
	print_device("and on", b, n * 4);
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
	return 0;
}
