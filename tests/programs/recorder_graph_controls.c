/*
 * Launches a graph repeatedly while the settings of its recording change. Some launches wait for a host
 * function. If the program gets a file, that function returns when the recorder has written there that it
 * cancelled an epoch. Each launch adds 1 to a and changes b.
 */
#include <dlfcn.h>
#include <unistd.h>

#include "program.h"

#define N 20000

static CUfunction add, mix;
static CUdeviceptr a, b;
static CUgraphExec exec;
static CUstream stream;

static void say(const char *what)
{
	int (*control)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "tt_control");

	if (control)
		control(what);
}

static void name(CUdeviceptr p, const char *label)
{
	int (*call)(unsigned long long, const char *) = (int (*)(unsigned long long, const char *))dlsym(RTLD_DEFAULT, "tt_label");

	if (call)
		call(p, label);
}

static void replay(unsigned times)
{
	while (times--)
		OK(cuGraphLaunch(exec, stream));
}

static CUgraphNode add_node(CUgraph graph, CUgraphNode after, CUfunction f, void **params)
{
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = f, .gridDimX = (N + 127) / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = params,
	};

	OK(cuGraphAddKernelNode(&node, graph, &after, after != NULL, &p));
	return node;
}

static bool called_off(const char *path)
{
	char said[4096];
	FILE *file = fopen(path, "r");
	size_t n = file ? fread(said, 1, sizeof(said) - 1, file) : 0;

	said[n] = '\0';
	if (file)
		fclose(file);
	return strstr(said, "was cancelled");
}

int main(int argc, char **argv)
{
	unsigned n = N, one = 1;
	volatile unsigned *flag;
	CUdeviceptr device_flag;
	CUgraph graph;

	start();
	CUmodule module = load_kernels();
	add = get_kernel(module, "add");
	mix = get_kernel(module, "mix");
	a = allocate(N * 4), b = allocate(N * 4);
	OK(cuMemsetD8(a, 0, N * 4));
	OK(cuMemsetD8(b, 0, N * 4));
	OK(cuCtxSynchronize());
	name(a, "weights.a");
	name(b, "b");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemHostAlloc((void **)&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&device_flag, (void *)flag, 0));
	*flag = 0;
	OK(cuGraphCreate(&graph, 0));
	CUgraphNode first = add_node(graph, NULL, add, PARAMS(&a, &n, &one));
	add_node(graph, first, mix, PARAMS(&b, &n, &one));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));

	replay(2);
	say("points=off");
	replay(2);
	say("points=on; stamps=off; regions=^weights");
	replay(1);
	say("regions=1");
	replay(1);
	say("regions=all;snapshot=2");
	replay(2);
	say("stamps=on;snapshot=64");
	OK(cuStreamWaitValue32(stream, device_flag, 1, CU_STREAM_WAIT_VALUE_EQ)); /* the host comes first */
	replay(10);
	say("points=off");
	replay(1);
	SHOW(cuStreamQuery(stream));
	for (unsigned i = 0; argc > 1 && i < 60000 && !called_off(argv[1]); i++)
		usleep(1000);
	*flag = 1;
	SHOW(cuStreamSynchronize(stream));
	if (argc > 1) {
		say("points=on");
		replay(3);
		OK(cuStreamSynchronize(stream));
	}
	print_device("a", a, N * 4);
	print_device("b", b, N * 4);
	OK(cuGraphExecDestroy(exec));
	return 0;
}
