/*
 * Inserts our nodes into a graph, and removes them. See graph_epochs.h for the invariant.
 *
 *       earlier nodes ── stamp ── kernel ── stamp ── digest ── gather ── later nodes
 *
 * Stamps are there if times are wanted, digest and gather if an epoch is wanted. The capture
 * kernels use one list of changed blocks, so all epochs of a graph form one chain, in an order in
 * which its nodes may run. A child graph with epochs is a link of the chain of the graph around it,
 * and has a chain of its own. One more node before all of them fetches what they are to do, and one
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

static void add_chosen(struct instrumentation *q, uint32_t graph, uint32_t position, const struct function *f, uint32_t label)
{
	struct chosen_kernel s = {
		.graph = graph,
		.position = position,
		.node = {TT_NO_ID, f->marks ? label : f->name_string},
		.captured = f->inside,
		.marks = f->marks,
		.stamped = f->stamped && node_timer.wanted && node_timer.wanted(),
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

/* Adds the chosen kernels of a graph, and of its child graphs if `whole`, in execution order. False: no memory. */
static bool add_chosen_of(struct instrumentation *q, struct context *c, const struct graph_tree *t, uint32_t graph, bool whole)
{
	const struct topology *g = &t->graphs[graph].g;
	uint32_t *order = topology_order(g);
	bool ok = order;

	for (size_t i = 0; ok && i < g->count; i++) {
		uint32_t label = TT_NO_ID, child = graph_tree_child(t, graph, order[i]);
		const struct function *f = child ? NULL : chosen_function(c, g->nodes[order[i]], &label);
		if (child)
			ok = !whole || add_chosen_of(q, c, t, child, whole);
		else if (f)
			add_chosen(q, graph, order[i], f, label);
	}
	free(order);
	return ok;
}

/* *found NULL: none was chosen. False: no memory. */
static bool find_chosen(struct context *c, const struct graph_tree *t, bool whole, struct instrumentation **found)
{
	struct instrumentation *q = calloc(1, sizeof(*q));
	bool ok = q && (q->chosen = calloc(POINTS_MOST + STAMPED_MOST, sizeof(*q->chosen))) && add_chosen_of(q, c, t, 0, whole);

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

/* The nodes of one graph of the tree. */
struct place {
	struct instrumentation *q;
	const struct graph_tree *tree;
	uint32_t graph; /* in the tree */
	CUgraph handle;
	const struct kernels *kernels;
	CUgraphNode last; /* of the chain; NULL: none here */
};

static bool add_stamps(struct place *p, struct chosen_kernel *s)
{
	const struct topology *g = &p->tree->graphs[p->graph].g;
	CUgraphNode *after = malloc((g->edges + 1) * sizeof(*after));
	size_t n = 0;

	if (after && !p->graph) /* the node of a child graph waits for the front */
		after[n++] = p->q->front;
	for (size_t e = 0; after && e < g->edges; e++)
		if (g->to[e] == s->in)
			after[n++] = behind_node(p->q, g->from[e], s);
	bool ok = after && add_kernel(p->q, &s->begin, p->handle, after, n, p->kernels->stamp_at, 1, 1, 2 * s->stamp) &&
		  real.cuGraphAddDependencies(p->handle, &s->begin, &s->in, 1) == CUDA_SUCCESS &&
		  add_kernel(p->q, &s->end, p->handle, &s->in, 1, p->kernels->stamp_at, 1, 1, 2 * s->stamp + 1);
	free(after);
	return ok;
}

static bool add_nodes_around(struct place *p, struct chosen_kernel *s)
{
	const struct topology *g = &p->tree->graphs[p->graph].g;
	int processors = 1;

	if (s->stamped && !add_stamps(p, s))
		return false;
	if (s->captured) {
		CUgraphNode after[2] = {s->stamped ? s->end : s->in, p->last};
		real.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, p->q->context->device);
		if (!add_kernel(p->q, &s->digest, p->handle, after, p->last ? 2 : 1, p->kernels->digest, TT_DIGEST_THREADS,
				(unsigned)processors * TT_DIGEST_CTAS_PER_SM, s->point) ||
		    !add_kernel(p->q, &s->gather, p->handle, &s->digest, 1, p->kernels->gather, TT_DIGEST_THREADS,
				(unsigned)processors * TT_DIGEST_CTAS_PER_SM, s->point))
			return false;
		p->last = s->gather;
	}
	CUgraphNode from = behind(s);
	for (size_t e = 0; e < g->edges; e++)
		if (g->from[e] == s->in && real.cuGraphAddDependencies(p->handle, &from, &g->to[e], 1) != CUDA_SUCCESS)
			return false;
	return true;
}

/* The graph among those of `parent` that contains the graph or is it; 0: `parent` does not contain it. */
static uint32_t graph_below(const struct graph_tree *t, uint32_t parent, uint32_t graph)
{
	while (graph && t->graphs[graph].parent != parent)
		graph = t->graphs[graph].parent;
	return graph;
}

/* Whether an epoch is in a child graph of `parent`, or in a graph below. */
static bool captures(const struct instrumentation *q, const struct graph_tree *t, uint32_t parent, uint32_t child)
{
	for (unsigned i = 0; i < q->chosen_count; i++)
		if (q->chosen[i].captured && graph_below(t, parent, q->chosen[i].graph) == child)
			return true;
	return false;
}

static CUgraphNode owner_of(const struct graph_tree *t, uint32_t child)
{
	return t->graphs[t->graphs[child].parent].g.nodes[t->graphs[child].owner];
}

/* Whether a node already follows `before`, because it follows the kernel of the epoch that ends there. */
static bool follows(const struct place *p, CUgraphNode node, CUgraphNode before, const struct chosen_kernel *next)
{
	const struct topology *g = &p->tree->graphs[p->graph].g;

	for (size_t e = 0; e < g->edges; e++)
		if (g->to[e] == node && behind_node(p->q, g->from[e], next) == before)
			return true;
	return false;
}

static bool add_to_graph(struct place *p, unsigned *i);

/* The node of a child graph with epochs becomes a link of the chain; one with times alone waits for the front. */
static bool add_to_child(struct place *p, uint32_t child, unsigned *i)
{
	CUgraphNode owner = owner_of(p->tree, child), front = p->graph ? NULL : p->q->front;
	bool link = captures(p->q, p->tree, p->graph, child);
	CUgraphNode before = link ? p->last : front;
	struct place inside = *p;

	if (before && !follows(p, owner, before, &p->q->chosen[*i]) &&
	    real.cuGraphAddDependencies(p->handle, &before, &owner, 1) != CUDA_SUCCESS)
		return false;
	inside.graph = child;
	inside.last = NULL;
	if (real.cuGraphChildGraphNodeGetGraph(owner, &inside.handle) != CUDA_SUCCESS || !add_to_graph(&inside, i))
		return false;
	p->last = link ? owner : p->last;
	return true;
}

/* From the i-th chosen kernel on, as far as they are in this graph or in its child graphs. */
static bool add_to_graph(struct place *p, unsigned *i)
{
	while (*i < p->q->chosen_count) {
		struct chosen_kernel *s = &p->q->chosen[*i];
		uint32_t child = s->graph == p->graph ? 0 : graph_below(p->tree, p->graph, s->graph);
		if (s->graph == p->graph) {
			(*i)++;
			if (!add_nodes_around(p, s))
				return false;
		} else if (!child) {
			break;
		} else if (!add_to_child(p, child, i)) {
			return false;
		}
	}
	return true;
}

/* After the chain, and after what is not in it. The chosen kernels of a child graph follow each other. */
static bool add_last(const struct place *p)
{
	struct instrumentation *q = p->q;
	CUgraphNode after[STAMPED_MOST + 1] = {p->last};
	uint32_t before = 0;
	size_t n = 1;

	for (unsigned i = 0; i < q->chosen_count; i++) {
		const struct chosen_kernel *s = &q->chosen[i];
		uint32_t child = graph_below(p->tree, 0, s->graph);
		if (!child && !s->captured)
			after[n++] = s->end;
		else if (child && child != before && !captures(q, p->tree, 0, child))
			after[n++] = owner_of(p->tree, child);
		before = child;
	}
	return add_kernel(q, &q->last, p->handle, after, n, p->kernels->turn, 1, 1, 0);
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

static void use_copies(struct topology *g, const struct graph_clone *c)
{
	for (size_t i = 0; i < g->count; i++)
		g->nodes[i] = graph_clone_node(c, g->nodes[i]);
	for (size_t e = 0; e < g->edges; e++) {
		g->from[e] = graph_clone_node(c, g->from[e]);
		g->to[e] = graph_clone_node(c, g->to[e]);
	}
}

bool instrumentation_add(struct instrumentation *q, CUgraph graph, struct graph_tree *t, const struct graph_clone *c,
			 const struct kernels *k)
{
	unsigned next = 0;

	for (unsigned i = 0; i < q->chosen_count; i++)
		q->chosen[i].kernel = t->graphs[q->chosen[i].graph].g.nodes[q->chosen[i].position];
	for (size_t i = 0; c && i < t->count; i++)
		use_copies(&t->graphs[i].g, c);
	for (unsigned i = 0; i < q->chosen_count; i++)
		q->chosen[i].in = t->graphs[q->chosen[i].graph].g.nodes[q->chosen[i].position];
	bool ok = add_front(q, graph, k);
	struct place p = {q, t, 0, graph, k, q->front};
	ok = ok && add_to_graph(&p, &next) && add_last(&p);
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

static bool any_in_child(const struct instrumentation *q)
{
	for (unsigned i = 0; i < q->chosen_count; i++)
		if (q->chosen[i].graph)
			return true;
	return false;
}

/*
 * Finds the chosen kernels, and copies their graph if possible. Without a copy, the nodes go into the program's graph, but
 * not into its child graphs: the program could not replace these any more. False: no memory.
 */
static bool choose(struct context *c, CUgraph graph, const struct graph_tree *t, struct instrumentation **q)
{
	if (!find_chosen(c, t, true, q))
		return false;
	if (!*q || graph_clone_make(&(*q)->clone, graph))
		return true;
	graph_clone_free(&(*q)->clone);
	if (!any_in_child(*q))
		return true;
	session_lost("kernels in child graphs have no epochs and times: the driver does not copy the graph");
	instrumentation_free(*q);
	return find_chosen(c, t, false, q);
}

static bool add_somewhere(struct instrumentation *q, CUgraph graph, struct graph_tree *t, const struct kernels *k)
{
	const struct graph_clone *clone = q->clone.graph ? &q->clone : NULL;

	return instrumentation_add(q, clone ? clone->graph : graph, t, clone, k);
}

static struct instrumentation *insert(struct context *c, CUgraph graph, uint64_t flags)
{
	const struct kernels *k;
	struct instrumentation *q = NULL;
	struct graph_tree tree;
	const char *why = NULL;

	if (!graph_tree_read(&tree, graph)) {
		why = "its nodes can't be read";
	} else if (!choose(c, graph, &tree, &q)) {
		why = "no host memory";
	} else if (q) {
		if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
			why = "it is for launches from the device";
		else if (graph_tree_allocates(&tree))
			why = "it allocates memory";
		q->form = tree.form;
		if (!why && (!(k = kernels_of(c)) || !instrumentation_allocate(q, c) || !add_somewhere(q, graph, &tree, k)))
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
	graph_tree_free(&tree);
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
	struct graph_tree tree;
	bool ok = graph_tree_read(&tree, graph) && k && tree.form == q->form && !graph_tree_allocates(&tree) &&
		  instrumentation_add(q, graph, &tree, NULL, k);

	graph_tree_free(&tree);
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
