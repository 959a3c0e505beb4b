/*
 * Inserts our nodes into a graph, and removes them. See graph_epochs.h for the invariant.
 *
 *       earlier nodes ── stamp ── kernel ── stamp ── digest ── gather ── later nodes
 *
 * Stamps are there if times are wanted, digest and gather if an epoch is wanted. The capture
 * kernels use one list of changed blocks, so all epochs of a graph form one chain, in an order in
 * which its nodes may run. A child graph with epochs is a link of the chain of the graph around it,
 * and has a chain of its own. So has the body of a conditional node, whose epochs are those of its
 * first run in a launch; after the conditional node, those of bodies that did not run are captured.
 * One more node before all of them fetches what they are to do, and one
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
	return s->taken ? s->taken : s->captured ? s->gather : s->end;
}

/* The same for any node: a chosen kernel's is its last inserted node, a conditional node's the last after it. */
static CUgraphNode behind_node(const struct instrumentation *q, CUgraphNode node, const struct chosen_kernel *before)
{
	for (const struct chosen_kernel *s = q->chosen; s < before; s++)
		if (s->in == node)
			return behind(s);
		else if (s->owner && s->owner == node)
			return s->late_gather;
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

static bool add_capture(struct place *p, const struct chosen_kernel *s, CUgraphNode after, CUgraphNode *digest,
			CUgraphNode *gather)
{
	CUgraphNode both[2] = {after, p->last};
	size_t n = p->last && p->last != after ? 2 : 1;
	int processors = 1;

	real.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, p->q->context->device);
	unsigned grid = (unsigned)processors * TT_DIGEST_CTAS_PER_SM;
	return add_kernel(p->q, digest, p->handle, both, n, p->kernels->digest, TT_DIGEST_THREADS, grid, s->point) &&
	       add_kernel(p->q, gather, p->handle, digest, 1, p->kernels->gather, TT_DIGEST_THREADS, grid, s->point);
}

/* The successors of a node wait for another as well. */
static bool hold_back(const struct place *p, CUgraphNode node, CUgraphNode until)
{
	const struct topology *g = &p->tree->graphs[p->graph].g;

	for (size_t e = 0; e < g->edges; e++)
		if (g->from[e] == node && real.cuGraphAddDependencies(p->handle, &until, &g->to[e], 1) != CUDA_SUCCESS)
			return false;
	return true;
}

static bool add_nodes_around(struct place *p, struct chosen_kernel *s)
{
	if (s->stamped && !add_stamps(p, s))
		return false;
	if (s->captured) {
		if (!add_capture(p, s, s->stamped ? s->end : s->in, &s->digest, &s->gather) ||
		    (p->tree->graphs[p->graph].body &&
		     !add_kernel(p->q, &s->taken, p->handle, &s->gather, 1, p->kernels->taken, 1, 1, s->point)))
			return false;
		p->last = behind(s);
	}
	return hold_back(p, s->in, behind(s));
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

/* Captures after a conditional node what its bodies have not, because they did not run. */
static bool add_late(struct place *p, struct chosen_kernel *s)
{
	if (!s->captured)
		return true;
	if (!add_capture(p, s, p->last, &s->late_digest, &s->late_gather))
		return false;
	p->last = s->late_gather;
	return true;
}

/* The chosen kernels in the bodies of one conditional node. */
static bool add_to_bodies(struct place *p, uint32_t child, unsigned *i)
{
	CUgraphNode owner = owner_of(p->tree, child);
	struct chosen_kernel *first = &p->q->chosen[*i], *end = first;

	if (!follows(p, owner, p->last, first) && real.cuGraphAddDependencies(p->handle, &p->last, &owner, 1) != CUDA_SUCCESS)
		return false;
	while (child && owner_of(p->tree, child) == owner) {
		struct place inside = *p;
		inside.graph = child;
		inside.handle = p->tree->graphs[child].handle;
		inside.last = NULL;
		if (!add_to_graph(&inside, i))
			return false;
		end = &p->q->chosen[*i];
		child = *i < p->q->chosen_count ? graph_below(p->tree, p->graph, end->graph) : 0;
	}
	p->last = owner;
	for (struct chosen_kernel *s = first; s < end; s++)
		if (!add_late(p, s))
			return false;
	end[-1].owner = owner;
	return hold_back(p, owner, p->last);
}

/* From the i-th chosen kernel on, as far as they are in this graph or in graphs below. */
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
		} else if (!(p->tree->graphs[child].body ? add_to_bodies : add_to_child)(p, child, i)) {
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
		s->owner = NULL;
		destroy_node(&s->late_gather);
		destroy_node(&s->late_digest);
		destroy_node(&s->taken);
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
	} else if (!instrumentation_choose(c, graph, &tree, &q)) {
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
		const CUgraphNode ours[] = {s->begin, s->end, s->digest, s->gather, s->taken, s->late_digest, s->late_gather};
		for (size_t k = 0; k < sizeof(ours) / sizeof(*ours); k++)
			*node = *node == ours[k] ? s->kernel : *node;
	}
}

void instrumentation_renumber(struct instrumentation *q, struct exec *x)
{
	for (unsigned i = 0; i < q->chosen_count; i++)
		q->chosen[i].node.number = graph_node_number(x, q->chosen[i].kernel);
}
