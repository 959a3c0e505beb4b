/*
 * Inserts our nodes into a graph, and removes them. See graph_epochs.h for the invariant.
 *
 *       earlier nodes ── stamp ── kernel ── stamp ── digest ── gather ── later nodes
 *
 * Stamps are there if times are wanted, digest and gather if an epoch is wanted. The capture
 * kernels use one list of changed blocks, so all epochs of a graph form one chain, in an order in
 * which its nodes may run. One more node before all of them fetches what they are to do, and one
 * after them ends the turn of the launch.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "options/options.h"
#include "session/session.h"
#include "inspect/functions.h"
#include "capture/graph_instrumentation.h"
#include "capture/graph_epochs.h"
#include "capture/graph_topology.h"

static _Atomic bool marked; /* graphs of the program may have marks */

/* ---- chosen kernels ---- */

/* The kernel of a node if it was chosen and runs in this context, else NULL. */
static const struct function *chosen_function(const struct context *c, CUgraphNode node, uint32_t *label)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};
	CUgraphNodeType type;
	CUfunction f;

	bool told = real.cuGraphNodeGetType(node, &type) == CUDA_SUCCESS;
	bool kernel = told && type == CU_GRAPH_NODE_TYPE_KERNEL;
	if (!told || (kernel && real.cuGraphKernelNodeGetParams_v2(node, &p) != CUDA_SUCCESS)) {
		session_lost("a kernel in a graph may have no epochs and times: the driver does not describe it");
		return NULL;
	}
	if (!kernel || (p.ctx && p.ctx != c->handle))
		return NULL;
	f = p.func;
	if (!f && (!p.kern || !real.cuKernelGetFunction || real.cuKernelGetFunction(&f, p.kern) != CUDA_SUCCESS))
		return NULL;
	const struct function *known = function_of(f);
	if (known && known->marks && p.kernelParams)
		memcpy(label, p.kernelParams[0], sizeof(*label));
	return known && (known->inside || known->stamped) ? known : NULL;
}

static void add_chosen(struct instrumentation *q, uint32_t position, const struct function *f, uint32_t label, bool times)
{
	struct chosen_kernel s = {
		.position = position,
		.node = {TT_NO_ID, f->marks ? label : f->name_string},
		.captured = f->inside,
		.marks = f->marks,
		.stamped = f->stamped && times,
	};

	if (s.captured && q->point_count == POINTS_MOST) {
		session_lost("at most %d kernels in a graph have epochs: the other chosen kernels have none", POINTS_MOST);
		s.captured = false;
	}
	if (s.stamped && q->stamped_count == STAMPED_MOST) {
		session_lost("at most %d kernels in a graph have times: the other chosen kernels have none", STAMPED_MOST);
		s.stamped = false;
	}
	if (!s.captured && !s.stamped)
		return;
	s.point = q->point_count;
	s.stamp = q->stamped_count;
	q->point_count += s.captured;
	q->stamped_count += s.stamped;
	q->chosen[q->chosen_count++] = s;
}

/* The chosen kernels in execution order; *found NULL: none. False: no memory. */
static bool find_chosen(struct context *c, const struct topology *g, struct instrumentation **found)
{
	bool times = node_timer.wanted && node_timer.wanted();
	struct instrumentation *q = calloc(1, sizeof(*q));
	uint32_t *order = topology_order(g);
	bool ok = q && order && (q->chosen = calloc(POINTS_MOST + STAMPED_MOST, sizeof(*q->chosen)));

	for (size_t i = 0; ok && i < g->count; i++) {
		uint32_t label = TT_NO_ID;
		const struct function *f = chosen_function(c, g->nodes[order[i]], &label);
		if (f)
			add_chosen(q, order[i], f, label, times);
	}
	free(order);
	bool none = ok && !q->chosen_count;
	ok = ok && !none && (q->points = calloc(q->point_count + 1, sizeof(*q->points))) &&
	     (q->launches = calloc(TURNS, sizeof(*q->launches))) &&
	     (q->stamped = calloc((size_t)TURNS * q->stamped_count + 1, sizeof(*q->stamped)));
	if (!ok && q) {
		instrumentation_free(q);
		q = NULL;
	}
	for (unsigned i = 0; ok && i < q->chosen_count; i++)
		if (q->chosen[i].captured)
			q->points[q->chosen[i].point].chosen = &q->chosen[i];
	*found = q;
	return ok || none;
}

/* ---- insertion and removal ---- */

static bool add_with(void **params, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, CUfunction f,
		     unsigned threads, unsigned grid)
{
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = f,
		.gridDimX = grid,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = params,
	};

	return real.cuGraphAddKernelNode_v2(node, graph, after, n, &p) == CUDA_SUCCESS;
}

static bool add_kernel(const struct instrumentation *q, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
		       CUfunction f, unsigned threads, unsigned grid, uint32_t which)
{
	CUdeviceptr launch = q->launch;

	return add_with((void *[]){&launch, &which}, node, graph, after, n, f, threads, grid);
}

static bool add_front(struct instrumentation *q, CUgraph graph, const struct kernels *k)
{
	CUdeviceptr replay = q->device, launch = q->launch;

	return add_with((void *[]){&replay, &launch}, &q->front, graph, NULL, 0, k->front, TT_FRONT_THREADS, 1);
}

/* The node that a kernel's successors must wait for. */
static CUgraphNode behind(const struct chosen_kernel *s)
{
	return s->captured ? s->gather : s->end;
}

/* The same for any node: a chosen kernel's is its last inserted node. */
static CUgraphNode behind_node(const struct instrumentation *q, CUgraphNode node, const struct chosen_kernel *before)
{
	for (const struct chosen_kernel *s = q->chosen; s < before; s++)
		if (s->in == node)
			return behind(s);
	return node;
}

static bool add_stamps(struct instrumentation *q, struct chosen_kernel *s, CUgraph graph, const struct topology *g,
		       const struct kernels *k)
{
	CUgraphNode *after = malloc((g->edges + 1) * sizeof(*after));
	size_t n = 0;

	if (after)
		after[n++] = q->front;
	for (size_t e = 0; after && e < g->edges; e++)
		if (g->to[e] == s->in)
			after[n++] = behind_node(q, g->from[e], s);
	bool ok = after && add_kernel(q, &s->begin, graph, after, n, k->stamp_at, 1, 1, 2 * s->stamp) &&
		  real.cuGraphAddDependencies(graph, &s->begin, &s->in, 1) == CUDA_SUCCESS &&
		  add_kernel(q, &s->end, graph, &s->in, 1, k->stamp_at, 1, 1, 2 * s->stamp + 1);
	free(after);
	return ok;
}

/* last: the previous epoch's last node, or the first inserted node. */
static bool add_nodes_around(struct instrumentation *q, struct chosen_kernel *s, CUgraphNode *last, CUgraph graph,
			     const struct topology *g, const struct kernels *k)
{
	int processors = 1;

	if (s->stamped && !add_stamps(q, s, graph, g, k))
		return false;
	if (s->captured) {
		CUgraphNode after[2] = {s->stamped ? s->end : s->in, *last};
		real.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, q->context->device);
		if (!add_kernel(q, &s->digest, graph, after, 2, k->digest, TT_DIGEST_THREADS,
				(unsigned)processors * TT_DIGEST_CTAS_PER_SM, s->point) ||
		    !add_kernel(q, &s->gather, graph, &s->digest, 1, k->gather, TT_DIGEST_THREADS,
				(unsigned)processors * TT_DIGEST_CTAS_PER_SM, s->point))
			return false;
		*last = s->gather;
	}
	CUgraphNode from = behind(s);
	for (size_t e = 0; e < g->edges; e++)
		if (g->from[e] == s->in && real.cuGraphAddDependencies(graph, &from, &g->to[e], 1) != CUDA_SUCCESS)
			return false;
	return true;
}

static bool add_last(struct instrumentation *q, CUgraphNode last, CUgraph graph, const struct kernels *k)
{
	CUgraphNode after[STAMPED_MOST + 1] = {last};
	size_t n = 1;

	for (unsigned i = 0; i < q->chosen_count; i++)
		if (!q->chosen[i].captured)
			after[n++] = q->chosen[i].end;
	return add_kernel(q, &q->last, graph, after, n, k->turn, 1, 1, 0);
}

static void destroy_node(CUgraphNode *node)
{
	if (*node && real.cuGraphDestroyNode(*node) != CUDA_SUCCESS)
		session_warn("a graph of the program keeps a node of the recorder: the driver does not remove it");
	*node = NULL;
}

void instrumentation_withdraw(struct instrumentation *q)
{
	destroy_node(&q->last);
	for (unsigned i = q->chosen_count; i-- > 0;) {
		struct chosen_kernel *s = &q->chosen[i];
		destroy_node(&s->gather);
		destroy_node(&s->digest);
		destroy_node(&s->end);
		destroy_node(&s->begin);
	}
	destroy_node(&q->front);
}

bool instrumentation_add(struct instrumentation *q, CUgraph graph, struct topology *g, const struct graph_clone *t,
			 const struct kernels *k)
{
	for (unsigned i = 0; i < q->chosen_count; i++)
		q->chosen[i].kernel = g->nodes[q->chosen[i].position];
	for (size_t i = 0; t && i < g->count; i++)
		g->nodes[i] = graph_clone_node(t, g->nodes[i]);
	for (size_t e = 0; t && e < g->edges; e++) {
		g->from[e] = graph_clone_node(t, g->from[e]);
		g->to[e] = graph_clone_node(t, g->to[e]);
	}
	for (unsigned i = 0; i < q->chosen_count; i++)
		q->chosen[i].in = g->nodes[q->chosen[i].position];
	bool ok = add_front(q, graph, k);
	CUgraphNode last = q->front;

	for (unsigned i = 0; ok && i < q->chosen_count; i++)
		ok = add_nodes_around(q, &q->chosen[i], &last, graph, g, k);
	ok = ok && add_last(q, last, graph, k);
	if (!ok)
		instrumentation_withdraw(q);
	return ok;
}

/* Drivers before CUDA 12 lack some of these calls. */
static bool driver_has_calls(void)
{
	return real.cuGraphGetNodes && (real.cuGraphGetEdges_v2 || real.cuGraphGetEdges) && real.cuGraphNodeGetType &&
	       real.cuGraphKernelNodeGetParams_v2 && real.cuGraphChildGraphNodeGetGraph && real.cuGraphAddKernelNode_v2 &&
	       real.cuGraphAddDependencies && real.cuGraphDestroyNode && real.cuGraphInstantiateWithFlags &&
	       real.cuGraphExecDestroy && real.cuGraphDestroy && (real.cuGraphExecUpdate_v2 || real.cuGraphExecUpdate);
}

/* Adds the nodes to a copy of the graph, or to the graph if it can't be copied. */
static bool add_somewhere(struct instrumentation *q, CUgraph graph, struct topology *g, const struct kernels *k)
{
	if (graph_clone_make(&q->clone, graph))
		return instrumentation_add(q, q->clone.graph, g, &q->clone, k);
	graph_clone_free(&q->clone);
	return instrumentation_add(q, graph, g, NULL, k);
}

static struct instrumentation *insert(struct context *c, CUgraph graph, uint64_t flags)
{
	const struct kernels *k;
	struct instrumentation *q = NULL;
	struct topology g;
	const char *why = NULL;

	if (!topology_read(&g, graph)) {
		why = "its nodes can't be read";
	} else if (!find_chosen(c, &g, &q)) {
		why = "no host memory";
	} else if (q) {
		if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
			why = "it is for launches from the device";
		else if (topology_allocates(&g))
			why = "it allocates memory";
		q->form = g.form;
		if (!why && (!(k = kernels_of(c)) || !instrumentation_allocate(q, c) || !add_somewhere(q, graph, &g, k)))
			why = "the driver refuses the recorder's nodes";
		if (!why && q->stamped_count)
			node_timer.prepare(c);
	}
	if (why) {
		bool epochs = q ? q->point_count : options.epoch.inside.count || atomic_load(&marked);
		session_lost("no %s inside a graph: %s", epochs ? "epochs" : "times", why);
		if (q)
			instrumentation_free(q);
		q = NULL;
	}
	topology_free(&g);
	return q;
}

struct instrumentation *instrumentation_insert(struct thread *t, struct context *c, CUgraph graph, uint64_t flags)
{
	if (!options.epoch.inside.count && !options.stamps.count && !atomic_load(&marked))
		return NULL;
	if (!driver_has_calls()) {
		session_lost("no epochs and times inside graphs: the driver lacks calls for them");
		return NULL;
	}
	CUstreamCaptureMode mode = recorder_work_begin(t);
	struct instrumentation *q = insert(c, graph, flags);
	recorder_work_end(t, mode);
	return q;
}

static const char *mark(struct context *c, CUstream stream, uint32_t label)
{
	const struct kernels *k = kernels_of(c);
	struct function *f = k ? function_seen(k->mark, TT_MARK, NULL) : NULL;

	if (!f)
		return "the driver refuses the recorder's kernels";
	f->inside = f->marks = true;
	atomic_store(&marked, true);
	if (real.cuLaunchKernel(k->mark, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&label}, NULL) != CUDA_SUCCESS)
		return "the driver refuses a node";
	return NULL;
}

bool instrumentation_mark(struct thread *t, struct context *c, CUstream stream, uint32_t label)
{
	const char *why = NULL;

	if (options.contents.every)
		why = "with --contents every, because they are no snapshots";
	else if (options.overwrite == OVERWRITE_DROP_OLDEST)
		why = "with --overwrite drop-oldest";
	else {
		CUstreamCaptureMode mode = recorder_work_begin(t);
		why = mark(c, stream, label);
		recorder_work_end(t, mode);
	}
	if (why)
		session_lost("no epoch of tt_epoch inside a graph: %s", why);
	return !why;
}

bool instrumentation_insert_again(struct instrumentation *q, CUgraph graph)
{
	const struct kernels *k = kernels_of(q->context);
	struct topology g;
	bool ok = topology_read(&g, graph) && k && g.form == q->form && !topology_allocates(&g) &&
		  instrumentation_add(q, graph, &g, NULL, k);

	topology_free(&g);
	return ok;
}

void instrumentation_disown(const struct instrumentation *q, CUgraphNode *node)
{
	if (*node == q->front || *node == q->last)
		*node = NULL;
	for (unsigned i = 0; i < q->chosen_count && *node; i++) {
		const struct chosen_kernel *s = &q->chosen[i];
		if (*node == s->begin || *node == s->end || *node == s->digest || *node == s->gather)
			*node = s->kernel;
	}
}

void instrumentation_renumber(struct instrumentation *q, struct exec *x)
{
	for (unsigned i = 0; i < q->chosen_count; i++)
		q->chosen[i].node.number = graph_node_number(x, q->chosen[i].kernel);
}
