/*
 * Chooses kernels of a graph that get epochs or times. See graph_epochs.h for the invariant.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session.h"
#include "inspect/functions.h"
#include "capture/graph_epochs.h"
#include "capture/graph_instrumentation.h"
#include "capture/graph_topology.h"

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

static void add_chosen(struct instrumentation *q, uint32_t graph, uint32_t position, const struct function *f, uint32_t label,
		       bool times)
{
	struct chosen_kernel s = {
		.graph = graph,
		.position = position,
		.node = {TT_NO_ID, f->marks ? label : f->name_string},
		.captured = f->inside,
		.marks = f->marks,
		.stamped = f->stamped && times && node_timer.wanted && node_timer.wanted(),
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

/*
 * Adds the chosen kernels of a graph in execution order. `copy`: those of its child graphs as well, because the nodes go into
 * a copy. Else those of bodies: graphs with conditional nodes have no copies. False: no memory.
 */
static bool add_chosen_of(struct instrumentation *q, struct context *c, const struct graph_tree *t, uint32_t graph, bool copy)
{
	const struct subgraph *s = &t->graphs[graph];
	uint32_t *order = topology_order(&s->g);
	bool ok = order;

	for (size_t i = 0; ok && i < s->g.count; i++) {
		uint32_t label = TT_NO_ID, child = graph_tree_child(t, graph, order[i], 0);
		const struct function *f = child ? NULL : chosen_function(c, s->g.nodes[order[i]], &label);
		if (f)
			add_chosen(q, graph, order[i], f, label, !s->body);
		for (; ok && child; child = graph_tree_child(t, graph, order[i], child))
			ok = t->graphs[child].body == copy || add_chosen_of(q, c, t, child, copy);
	}
	free(order);
	return ok;
}

/* *found NULL: none was chosen. False: no memory. */
static bool find_chosen(struct context *c, const struct graph_tree *t, bool copy, struct instrumentation **found)
{
	struct instrumentation *q = calloc(1, sizeof(*q));
	bool ok = q && (q->chosen = calloc(POINTS_MOST + STAMPED_MOST, sizeof(*q->chosen))) && add_chosen_of(q, c, t, 0, copy);

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

static bool any_in_child(const struct instrumentation *q)
{
	for (unsigned i = 0; i < q->chosen_count; i++)
		if (q->chosen[i].graph)
			return true;
	return false;
}

bool instrumentation_choose(struct context *c, CUgraph graph, const struct graph_tree *t, struct instrumentation **q)
{
	if (!find_chosen(c, t, true, q))
		return false;
	if (*q && !t->conditional && graph_clone_make(&(*q)->clone, graph))
		return true;
	if (*q && any_in_child(*q))
		session_lost("kernels in child graphs have no epochs and times: the driver does not copy the graph");
	if (*q)
		instrumentation_free(*q);
	return find_chosen(c, t, false, q);
}
