/*
 * Graphs with an epoch after each kernel, changed in unusual ways: edges removed and added again before a
 * whole-graph update, kernels replaced, updates refused, graphs destroyed in any order.
 */
#include "program.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 64
#define NODES 7
#define TRIALS 12

static CUfunction fill, add;
static CUdeviceptr at[NODES];
static uint32_t state = 7;

static unsigned below(unsigned n)
{
	state = state * 1664525u + 1013904223u;
	return (state >> 16) % n;
}

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *after, size_t count, unsigned which, unsigned value)
{
	unsigned n = N;
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = N, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&at[which], &n, &value),
	};

	OK(cuGraphAddKernelNode(&node, graph, after, count, &p));
	return node;
}

/* Node i comes after those whose bits are set in before[i]. */
struct made {
	CUgraph graph;
	CUgraphNode nodes[NODES];
};

static struct made make(const unsigned *before, unsigned value)
{
	struct made m;

	OK(cuGraphCreate(&m.graph, 0));
	for (unsigned i = 0; i < NODES; i++) {
		CUgraphNode after[NODES];
		size_t n = 0;
		for (unsigned k = 0; k < i; k++)
			if (before[i] >> k & 1)
				after[n++] = m.nodes[k];
		m.nodes[i] = add_kernel(m.graph, after, n, i, value + i);
	}
	return m;
}

/* Takes edges out and puts them in again, and others in and out again. */
static void stir(const struct made *m, const unsigned *before, unsigned times)
{
	while (times--) {
		unsigned to = 1 + below(NODES - 1), from = below(to);
		if (before[to] >> from & 1) {
			OK(cuGraphRemoveDependencies(m->graph, &m->nodes[from], &m->nodes[to], NULL, 1));
			OK(cuGraphAddDependencies(m->graph, &m->nodes[from], &m->nodes[to], NULL, 1));
		} else {
			OK(cuGraphAddDependencies(m->graph, &m->nodes[from], &m->nodes[to], NULL, 1));
			OK(cuGraphRemoveDependencies(m->graph, &m->nodes[from], &m->nodes[to], NULL, 1));
		}
	}
}

static const char *who(const struct made *m, CUgraphNode node)
{
	static const char *const names[NODES] = {"0", "1", "2", "3", "4", "5", "6"};

	for (unsigned i = 0; node && i < NODES; i++)
		if (m->nodes[i] == node)
			return names[i];
	return node ? "another's" : "none";
}

static void print_size(const struct made *m)
{
	size_t nodes, edges, roots;

	if (cuGraphGetNodes(m->graph, NULL, &nodes)) { /* in the child */
		puts("no driver");
		return;
	}
	OK(cuGraphGetEdges(m->graph, NULL, NULL, NULL, &edges));
	OK(cuGraphGetRootNodes(m->graph, NULL, &roots));
	printf("nodes %zu, edges %zu, roots %zu\n", nodes, edges, roots);
}

static void update(CUgraphExec exec, const struct made *m)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult r = cuGraphExecUpdate(exec, m->graph, &info);

	printf("update %s %d, node %s, from %s; ", result_name(r), (int)info.result, who(m, info.errorNode),
	       who(m, info.errorFromNode));
	print_size(m);
}

static void run(CUgraphExec exec)
{
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < NODES; i++)
		print_words("is", at[i], 1);
}

static void updates(unsigned trial)
{
	unsigned before[NODES] = {0};
	CUgraphExec exec;

	for (unsigned i = 1; i < NODES; i++)
		before[i] = below(1u << i) & below(1u << i);
	struct made first = make(before, 100 * trial), other = make(before, 100 * trial + 50);
	stir(&first, before, trial % 3 * 5);
	OK(cuGraphInstantiate(&exec, first.graph, 0));
	print_size(&first);
	stir(&other, before, 1 + trial % 4 * 2);
	update(exec, &other);
	run(exec);
	if (trial % 2)
		OK(cuGraphDestroy(first.graph));
	OK(cuGraphExecDestroy(exec));
	if (!(trial % 2))
		OK(cuGraphDestroy(first.graph));
	OK(cuGraphDestroy(other.graph));
}

/* In a forked child nothing can be done with a graph. */
static void forked(CUgraphExec exec, const struct made *m)
{
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		update(exec, m);
		SHOW(cuGraphNodeSetEnabled(exec, m->nodes[0], 0));
		SHOW(cuGraphExecDestroy(exec));
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void others(CUcontext context)
{
	const unsigned chain[NODES] = {0, 1, 2, 4, 8, 16, 32};
	unsigned n = N, value = 3;
	struct made m = make(chain, 5000), other;
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = N, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = PARAMS(&at[2], &n, &value),
	};
	CUDA_MEMSET_NODE_PARAMS set = {.dst = at[3], .value = 9, .elementSize = 4, .width = N, .height = 1};
	CUDA_MEM_ALLOC_NODE_PARAMS allocation = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
		.bytesize = 4096,
	};

	OK(cuGraphInstantiate(&exec, m.graph, 0));
	run(exec);
	forked(exec, &m);
	SHOW(cuGraphExecKernelNodeSetParams(exec, m.nodes[2], &p));
	run(exec);
	other = make(chain, 6000); /* another kind of node in a place */
	OK(cuGraphDestroyNode(other.nodes[3]));
	OK(cuGraphAddMemsetNode(&other.nodes[3], other.graph, &other.nodes[2], 1, &set, context));
	OK(cuGraphAddDependencies(other.graph, &other.nodes[3], &other.nodes[4], NULL, 1));
	update(exec, &other);
	OK(cuGraphDestroyNode(other.nodes[6])); /* a node less */
	other.nodes[6] = NULL;
	update(exec, &other);
	OK(cuGraphAddMemAllocNode(&other.nodes[6], other.graph, &other.nodes[5], 1, &allocation)); /* memory */
	SHOW(cuGraphExecUpdate(exec, other.graph, &info));
	print_size(&other);
	OK(cuGraphDestroy(other.graph));
	OK(cuGraphDestroy(m.graph));
	run(exec);
	OK(cuGraphLaunch(exec, NULL));
	OK(cuGraphExecDestroy(exec)); /* under way */
	OK(cuCtxSynchronize());
}

static void *make_and_end(void *context)
{
	const unsigned free_nodes[NODES] = {0};
	CUgraphExec exec;

	OK(cuCtxSetCurrent(context));
	struct made m = make(free_nodes, 7000);
	for (int i = 0; i < 4; i++) {
		OK(cuGraphInstantiate(&exec, m.graph, 0));
		OK(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
		OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
		OK(cuGraphExecDestroy(exec));
	}
	OK(cuGraphDestroy(m.graph));
	return NULL;
}

int main(void)
{
	pthread_t threads[3];
	CUcontext context;

	start();
	OK(cuCtxGetCurrent(&context));
	CUmodule module = load_kernels();
	fill = get_kernel(module, "fill");
	add = get_kernel(module, "add");
	for (unsigned i = 0; i < NODES; i++) {
		at[i] = allocate(N * 4);
		OK(cuMemsetD8(at[i], 0, N * 4));
	}
	for (unsigned trial = 0; trial < TRIALS; trial++)
		updates(trial);
	others(context);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, make_and_end, context);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
