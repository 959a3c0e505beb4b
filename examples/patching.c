/*
 * A graph that is instantiated once and replayed with other parameters: every --toggle-every
 * iterations its set gets another value and its copy another destination, and with --kernel-patch
 * its kernel another factor. At last it is updated as a whole, from a graph of the same form, which
 * the driver takes, and from one of another form, which it refuses.
 */
#include "common.h"

#define SLOTS 2

EMBED(ptx, "patching.ptx");

/* What a replay works with. */
struct parameters {
	unsigned value, factor;
	int slot;
};

/* The same for all of them. */
static CUfunction shape;
static CUcontext context;
static CUdeviceptr source, shaped, slots[SLOTS];
static int n;

static struct graph {
	CUgraph graph;
	CUgraphNode set, kernel, copy;
} usual;

static CUDA_MEMSET_NODE_PARAMS set_params(const struct parameters *p)
{
	return (CUDA_MEMSET_NODE_PARAMS){
		.dst = source, .value = p->value, .elementSize = sizeof(unsigned), .width = (size_t)n, .height = 1,
	};
}

static CUDA_MEMCPY3D copy_params(const struct parameters *p)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = shaped,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = slots[p->slot],
		.WidthInBytes = (size_t)n * sizeof(unsigned), .Height = 1, .Depth = 1,
	};
}

static CUDA_KERNEL_NODE_PARAMS kernel_params(void **arguments)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = shape, .gridDimX = (unsigned)BLOCKS(n), .gridDimY = 1, .gridDimZ = 1,
		.blockDimX = 256, .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments,
	};
}

/* The set, then the kernel, then the copy. */
static struct graph build(struct parameters p)
{
	CUDA_MEMSET_NODE_PARAMS set = set_params(&p);
	CUDA_MEMCPY3D copy = copy_params(&p);
	CUDA_KERNEL_NODE_PARAMS call = kernel_params(PARAMS(&shaped, &source, &n, &p.factor));
	struct graph g;

	CHECK(cuGraphCreate(&g.graph, 0));
	CHECK(cuGraphAddMemsetNode(&g.set, g.graph, NULL, 0, &set, context));
	CHECK(cuGraphAddKernelNode(&g.kernel, g.graph, &g.set, 1, &call));
	CHECK(cuGraphAddMemcpyNode(&g.copy, g.graph, &g.kernel, 1, &copy, context));
	return g;
}

static void patch(CUgraphExec executable, struct parameters p, bool kernel_too)
{
	CUDA_MEMSET_NODE_PARAMS set = set_params(&p);
	CUDA_MEMCPY3D copy = copy_params(&p);

	CHECK(cuGraphExecMemsetNodeSetParams(executable, usual.set, &set, context));
	CHECK(cuGraphExecMemcpyNodeSetParams(executable, usual.copy, &copy, context));
	if (!kernel_too)
		return;
	CUDA_KERNEL_NODE_PARAMS call = kernel_params(PARAMS(&shaped, &source, &n, &p.factor));
	CHECK(cuGraphExecKernelNodeSetParams(executable, usual.kernel, &call));
}

static void replay(CUgraphExec executable, CUstream stream, struct parameters p, unsigned *out)
{
	size_t bytes = (size_t)n * sizeof(*out);
	long wrong = 0;

	CHECK(cuGraphLaunch(executable, stream));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemcpyDtoH(out, slots[p.slot], bytes));
	for (int i = 0; i < n; i++)
		wrong += out[i] != p.value * p.factor + (unsigned)i;
	printf("value %u, factor %u, slot %d: checksum %016llx, %ld wrong\n", p.value, p.factor, p.slot,
	       (unsigned long long)checksum(out, bytes), wrong);
}

/* The graph as it would be with other parameters, or with one node more, takes the place of what is replayed. */
static CUresult update(CUgraphExec executable, struct parameters p, bool more)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode node;
	struct graph g = build(p);

	if (more)
		CHECK(cuGraphAddEmptyNode(&node, g.graph, &g.copy, 1));
	CUresult r = cuGraphExecUpdate(executable, g.graph, &info);
	CHECK(cuGraphDestroy(g.graph));
	return r;
}

int main(int argc, char **argv)
{
	long toggle_every = 4;
	bool kernel_patch = false;
	struct own_option own[] = {
		{"--toggle-every", &toggle_every, NULL}, {"--kernel-patch", NULL, &kernel_patch}, {NULL, NULL, NULL},
	};
	struct options o = read_options(argc, argv, (struct options){
		.size = 20000, .steps = 12, .seed = 1, .steps_name = "--iterations", .own = own});
	size_t bytes = (size_t)o.size * sizeof(unsigned);
	struct parameters p = {.value = (unsigned)o.seed, .factor = 2, .slot = 0};
	CUgraphExec executable;
	CUmodule module;
	CUstream stream;

	n = (int)o.size;
	unsigned *out = malloc(bytes);
	start_device();
	CHECK(cuCtxGetCurrent(&context));
	CHECK(cuModuleLoadData(&module, ptx));
	shape = kernel(module, "shape");
	CHECK(cuMemAlloc(&source, bytes));
	CHECK(cuMemAlloc(&shaped, bytes));
	for (int i = 0; i < SLOTS; i++) {
		CHECK(cuMemAlloc(&slots[i], bytes));
		CHECK(cuMemsetD8(slots[i], 0, bytes));
	}
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuCtxSynchronize());
	usual = build(p);
	CHECK(cuGraphInstantiate(&executable, usual.graph, 0));

	for (long i = 0; i < o.steps; i++) {
		if (toggle_every && i && i % toggle_every == 0) {
			p.value += 100;
			p.factor += kernel_patch;
			p.slot = !p.slot;
			patch(executable, p, kernel_patch);
		}
		printf("iteration %ld: ", i);
		replay(executable, stream, p, out);
	}

	struct parameters other = {.value = 7, .factor = 11, .slot = !p.slot};
	printf("update to a graph of the same form: %s\n", update(executable, other, false) ? "refused" : "taken");
	replay(executable, stream, other, out);
	printf("update to a graph with a node more: %s\n", update(executable, p, true) ? "refused" : "taken");
	replay(executable, stream, other, out);

	CHECK(cuGraphExecDestroy(executable));
	CHECK(cuGraphDestroy(usual.graph));
	CHECK(cuStreamDestroy(stream));
	for (int i = 0; i < SLOTS; i++)
		CHECK(cuMemFree(slots[i]));
	CHECK(cuMemFree(source));
	CHECK(cuMemFree(shaped));
	CHECK(cuDevicePrimaryCtxRelease(0));
	free(out);
	return 0;
}
