/*
 * Copies graphs, puts kernels that record into the copies, and launches these. See graph_launches.h for the invariant.
 */
#include "instrument/graph_launches.h"

#include <pthread.h>
#include <stdlib.h>

#include "capture/graph_clone.h"
#include "inspect/contexts.h"
#include "options/options.h"
#include "session/session.h"
#include "track/functions.h"

struct traced_graph {
	struct traced_graph *next;
	pthread_mutex_t launching; /* held from traced_graph_begin to traced_graph_end */
	const struct exec *exec;
	struct graph_clone clone;
	CUgraphExec copy;
	const char *refused; /* why the copy is not launched, or NULL */
	bool changed;        /* its kernels were replaced once */
	CUevent last;        /* behind the last launch of the program's graph or of the copy */
	struct flight **flights; /* of the launch that is being submitted */
	const struct function **functions;
	size_t count;
};

static struct {
	pthread_mutex_t lock;
	struct traced_graph *all;
} graphs = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct traced_graph *find(const struct exec *x)
{
	if (!x || !options.instrument)
		return NULL;
	pthread_mutex_lock(&graphs.lock);
	struct traced_graph *g = graphs.all;
	while (g && g->exec != x)
		g = g->next;
	pthread_mutex_unlock(&graphs.lock);
	return g;
}

struct traced_graph *traced_graph_of(const struct exec *x)
{
	struct traced_graph *g = find(x);

	return g && !g->refused ? g : NULL;
}

/* ---- copies ---- */

/* How many kernels of a graph have a chosen function. */
static size_t count_chosen(struct exec *x)
{
	size_t count, chosen = 0;
	struct graph_kernel *kernels = graph_kernels(x, &count);
	CUfunction handle;

	for (size_t i = 0; i < count; i++) {
		const struct function *f = function_numbered(kernels[i].record.function, &handle);
		chosen += f && f->traced;
	}
	free(kernels);
	return chosen;
}

static const char *make_copy(struct traced_graph *g, struct exec *x, CUgraph graph, uint64_t flags)
{
	if (graph_allocates(x))
		return "their graph allocates memory";
	flags &= ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; /* needs a stream */
	if (!graph_clone_make(&g->clone, graph) ||
	    real.cuGraphInstantiateWithFlags(&g->copy, g->clone.graph, flags) != CUDA_SUCCESS)
		return "the driver does not copy their graph";
	return NULL;
}

void traced_graph_made(struct thread *t, struct exec *x, CUgraph graph, uint64_t flags)
{
	size_t chosen = options.instrument ? count_chosen(x) : 0;
	struct traced_graph *g = chosen ? calloc(1, sizeof(*g)) : NULL;

	if (!g)
		return;
	CUstreamCaptureMode mode = recorder_work_begin(t);
	pthread_mutex_init(&g->launching, NULL);
	g->exec = x;
	g->refused = make_copy(g, x, graph, flags);
	recorder_work_end(t, mode);
	pthread_mutex_lock(&graphs.lock);
	g->next = graphs.all;
	graphs.all = g;
	pthread_mutex_unlock(&graphs.lock);
}

static void release(struct traced_graph *g)
{
	if (g->copy)
		real.cuGraphExecDestroy(g->copy);
	if (g->last)
		real.cuEventDestroy_v2(g->last);
	graph_clone_free(&g->clone);
	free(g->flights);
	free(g->functions);
	free(g);
}

/* Releases those of an executable graph, or of a context. */
static void release_all(const struct exec *x, const struct context *c)
{
	struct traced_graph *gone = NULL;

	pthread_mutex_lock(&graphs.lock);
	for (struct traced_graph **link = &graphs.all, *g; (g = *link);) {
		if (g->exec != x && (!c || graph_context(g->exec) != c)) {
			link = &g->next;
			continue;
		}
		*link = g->next;
		g->next = gone;
		gone = g;
	}
	pthread_mutex_unlock(&graphs.lock);
	for (struct traced_graph *next; gone; gone = next) {
		next = gone->next;
		release(gone);
	}
}

void traced_graph_gone(const struct exec *x)
{
	if (find(x))
		release_all(x, NULL);
}

void traced_graphs_context_ends(const struct context *c)
{
	release_all(NULL, c);
}

void traced_graphs_forget(void)
{
	pthread_mutex_init(&graphs.lock, NULL);
	graphs.all = NULL;
}

/* ---- changes ---- */

CUgraphExec traced_graph_copy(const struct traced_graph *g)
{
	return g->copy;
}

CUgraphNode traced_graph_node(const struct traced_graph *g, CUgraphNode node)
{
	return graph_clone_node(&g->clone, node);
}

void traced_graph_diverged(struct traced_graph *g)
{
	g->refused = "the driver refuses the program's changes to the copy of their graph";
}

void traced_graph_follow(struct thread *t, struct traced_graph *g, CUgraph graph)
{
	struct graph_clone clone = {0};
	CUstreamCaptureMode mode = recorder_work_begin(t);
	bool ok = graphs_pairs_known() && graph_clone_make(&clone, graph) && graph_clone_update(g->copy, clone.graph);

	graph_clone_free(&clone);
	recorder_work_end(t, mode);
	if (!ok)
		traced_graph_diverged(g);
}

/* ---- launches ---- */

/* A kernel node of the copy gets other code, or its own again. */
static bool set_kernel(const struct traced_graph *g, CUgraphNode node, const struct tt_graph_record *r,
		       const struct launch_arguments *a)
{
	bool kernel = function_is_kernel(a->f);
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = kernel ? NULL : a->f,
		.kern = kernel ? (CUkernel)a->f : NULL,
		.gridDimX = r->grid[0],
		.gridDimY = r->grid[1],
		.gridDimZ = r->grid[2],
		.blockDimX = r->block[0],
		.blockDimY = r->block[1],
		.blockDimZ = r->block[2],
		.sharedMemBytes = r->shared,
		.kernelParams = a->params,
		.extra = a->extra,
	};

	return real.cuGraphExecKernelNodeSetParams_v2 &&
	       real.cuGraphExecKernelNodeSetParams_v2(g->copy, node, &p) == CUDA_SUCCESS;
}

/* False: the copy can't be launched. */
static bool begin_kernel(const struct graph_launch *l, struct graph_kernel *k, const struct function *f, CUfunction handle)
{
	struct traced_graph *g = l->graph;
	struct tt_graph_record *r = &k->record;
	size_t size = r->data_size;
	CUgraphNode node = graph_clone_node(&g->clone, k->handle);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)k->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	struct traced_launch t = {
		.program = {handle, NULL, extra, r->block[0] * r->block[1] * r->block[2], launch_is_flat(r->grid, r->block),
			    l->stream},
		.grid = r->grid,
		.block = r->block,
		.seq = l->seq,
		.exec = g->copy,
		.node = node,
		.number = r->node,
		.refused = g->refused                        ? g->refused
			   : graph_instrumentation(l->exec)  ? "epochs are cut inside their graph"
			   : !node                           ? "the program updated their graph with another"
			   : r->flags & TT_GRAPHF_UNREAD     ? "their parameters are unknown"
			   : r->context != l->context->index ? "their graph runs in several contexts"
							     : NULL,
	};
	struct flight *flight = instrument_begin(l->context, f, &t);

	if (flight) {
		g->flights[g->count] = flight;
		g->functions[g->count++] = f;
	}
	if (!t.runs.f)
		return !g->changed || t.refused || set_kernel(g, node, r, &t.program);
	g->changed = true;
	return set_kernel(g, node, r, &t.runs);
}

static void end_flights(struct graph_launch *l, bool failed)
{
	for (size_t i = 0; i < l->graph->count; i++)
		instrument_submitted(l->graph->flights[i], l->graph->functions[i], l->stream, failed);
	l->graph->count = 0;
}

static bool begin_kernels(const struct graph_launch *l)
{
	size_t count;
	struct graph_kernel *kernels = graph_kernels(l->exec, &count);
	struct traced_graph *g = l->graph;
	bool ok = true;

	free(g->flights);
	free(g->functions);
	g->flights = calloc(count + 1, sizeof(*g->flights));
	g->functions = calloc(count + 1, sizeof(*g->functions));
	for (size_t i = 0; ok && g->flights && g->functions && i < count; i++) {
		CUfunction handle;
		const struct function *f = function_numbered(kernels[i].record.function, &handle);
		if (f && f->traced)
			ok = begin_kernel(l, &kernels[i], f, handle);
	}
	free(kernels);
	return ok;
}

CUgraphExec traced_graph_begin(struct graph_launch *l)
{
	l->graph = find(l->exec);
	if (!l->graph)
		return NULL;
	pthread_mutex_lock(&l->graph->launching);
	if (l->graph->last)
		real.cuStreamWaitEvent(l->stream, l->graph->last, 0);
	if (!instrument_next())
		return NULL;
	if (!begin_kernels(l)) {
		traced_graph_refused(l, CUDA_ERROR_NOT_SUPPORTED);
		return NULL;
	}
	return l->graph->count ? l->graph->copy : NULL;
}

void traced_graph_refused(struct graph_launch *l, CUresult r)
{
	const char *error = NULL;

	real.cuGetErrorName(r, &error);
	session_lost("a launch of a graph is not traced: the driver refused its patched code (%s)", error ? error : "?");
	end_flights(l, true);
	l->graph->refused = "the driver refused their patched code in a graph";
}

void traced_graph_end(struct graph_launch *l, bool failed)
{
	if (!l->graph)
		return;
	end_flights(l, failed);
	if (!failed && !l->graph->last && real.cuEventCreate(&l->graph->last, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		l->graph->last = NULL;
	if (!failed && l->graph->last)
		real.cuEventRecord(l->graph->last, l->stream);
	pthread_mutex_unlock(&l->graph->launching);
}
