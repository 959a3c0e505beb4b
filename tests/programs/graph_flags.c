/* Executable graphs with each flag, and with an invalid one. */
#include "program.h"

#define N 2000

static CUstream stream;

static void use(const char *name, CUresult made, CUgraphExec executable, CUdeviceptr p)
{
	cuuint64_t flags = 0;

	printf("%s: %s\n", name, result_name(made));
	if (made != CUDA_SUCCESS)
		return;
	SHOW(cuGraphExecGetFlags(executable, &flags));
	printf("flags %llu\n", (unsigned long long)flags);
	for (unsigned i = 0; i < 2; i++)
		SHOW(cuGraphLaunch(executable, stream));
	SHOW(cuStreamSynchronize(stream));
	print_words("p", p, 3);
	SHOW(cuGraphExecDestroy(executable));
}

int main(void)
{
	static const struct {
		const char *name;
		unsigned long long flags;
	} known[] = {
		{"none", 0},
		{"free on launch", CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH},
		{"priorities", CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY},
		{"for the device", CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH},
	};
	unsigned n = N, one = 1;
	CUgraphNode first, second;
	CUgraphExec executable;
	CUcontext context;
	CUresult made;
	CUgraph graph;

	start();
	OK(cuCtxGetCurrent(&context));
	CUfunction add = get_kernel(load_kernels(), "add");
	CUdeviceptr p = allocate(N * 4);
	OK(cuMemsetD32(p, 0, N));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSynchronize());
	CUDA_KERNEL_NODE_PARAMS k = {
		.func = add, .gridDimX = (N + 63) / 64, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = PARAMS(&p, &n, &one),
	};
	CUDA_MEMSET_NODE_PARAMS set = {.dst = p + 4, .value = 50, .elementSize = 4, .width = 1, .height = 1};
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &k));
	OK(cuGraphAddMemsetNode(&second, graph, &first, 1, &set, context));
	for (unsigned i = 0; i < sizeof(known) / sizeof(*known); i++) {
		made = cuGraphInstantiate(&executable, graph, known[i].flags);
		use(known[i].name, made, executable, p);
	}
	SHOW(cuGraphInstantiate(&executable, graph, 1ull << 40));

	CUDA_GRAPH_INSTANTIATE_PARAMS params = {
		.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .hUploadStream = stream,
	};
	made = cuGraphInstantiateWithParams(&executable, graph, &params);
	use("uploaded", made, executable, p);
	printf("result %d, no node %d\n", (int)params.result_out, params.hErrNode_out == NULL);
	params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
	made = cuGraphInstantiateWithParams(&executable, graph, &params);
	use("for the device, uploaded", made, executable, p);
	made = cuGraphInstantiate(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
	if (made == CUDA_SUCCESS)
		SHOW(cuGraphUpload(executable, stream));
	use("for the device, uploaded later", made, executable, p);
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	return 0;
}
