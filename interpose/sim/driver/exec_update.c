/*
 * Changes of instantiated graphs: of single nodes, or from a graph of the same topology.
 *
 * Invariant: a refused change has no effect.
 */
#include <stdlib.h>

#include "sim/driver/driver.h"
#include "sim_trace.h"

/* ---- single nodes ---- */

static struct exec_node *find_node(CUgraphExec exec, CUgraphNode node)
{
	for (unsigned i = 0; i < exec->count; i++) {
		if (exec->nodes[i].source == node)
			return &exec->nodes[i];
		for (unsigned k = 0; k < exec_inside_count(&exec->nodes[i]); k++) {
			struct exec_node *inner = find_node(exec_inside(&exec->nodes[i], k), node);
			if (inner)
				return inner;
		}
	}
	return NULL;
}

static bool is_flat(const struct copy *c)
{
	return c->height == 1 && c->depth == 1;
}

static bool same_end(const struct copy_end *a, const struct copy_end *b)
{
	return a->type == b->type && a->host == b->host && a->device == b->device && a->array == b->array && a->x == b->x &&
	       a->y == b->y && a->z == b->z && a->pitch == b->pitch && a->height == b->height;
}

/* Copies of more than one row may not change. */
static bool copy_may_become(const struct copy *a, const struct copy *b)
{
	if (!is_flat(a) || !is_flat(b))
		return a->width == b->width && a->height == b->height && a->depth == b->depth && same_end(&a->src, &b->src) &&
		       same_end(&a->dst, &b->dst);
	return a->src.type == b->src.type && a->dst.type == b->dst.type;
}

static bool fill_may_become(const struct sim_work *a, const struct sim_work *b)
{
	return a->fill.height == b->fill.height &&
	       (a->fill.height == 1 ||
		(a->fill.width == b->fill.width && a->fill.element == b->fill.element && a->fill.pitch == b->fill.pitch));
}

static bool may_become(const struct sim_work *a, const struct sim_work *b)
{
	switch (a->type) {
	case WORK_COPY:
		return copy_may_become(&a->copy.copy, &b->copy.copy);
	case WORK_FILL:
		return fill_may_become(a, b);
	default:
		return true;
	}
}

CUresult exec_set_work(CUgraphExec exec, CUgraphNode node, struct sim_work *work)
{
	struct exec_node *n = handle_is(exec, HANDLE_EXEC) ? find_node(exec, node) : NULL;

	if (!n || !may_become(n->work, work))
		return CUDA_ERROR_INVALID_VALUE;
	work_unref(n->work);
	n->work = work_ref(work);
	return CUDA_SUCCESS;
}

static CUresult enter_exec_and_node(CUgraphExec exec, CUgraphNode node, struct exec_node **out)
{
	ENTER(exec_enter(exec));
	*out = handle_is(node, HANDLE_NODE) ? find_node(exec, node) : NULL;
	return *out ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_VALUE);
}

static bool may_be_disabled(const struct exec_node *n)
{
	return n->type == CU_GRAPH_NODE_TYPE_KERNEL || n->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	       n->type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	struct exec_node *n;

	ENTER(enter_exec_and_node(exec, node, &n));
	INVALID_IF(!may_be_disabled(n));
	n->disabled = !enabled;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
	struct exec_node *n;

	ENTER(enter_exec_and_node(exec, node, &n));
	INVALID_IF(!enabled || !may_be_disabled(n));
	*enabled = !n->disabled;
	return sim_leave(CUDA_SUCCESS);
}

__attribute__((visibility("default"))) void ttSimTraceNode(CUgraphExec exec, CUgraphNode node, const struct tt_sim_trace *trace)
{
	struct exec_node *n;

	if (exec_enter(exec))
		return;
	if ((n = find_node(exec, node))) {
		free(n->trace);
		n->trace = trace ? launch_trace(trace) : NULL;
	}
	sim_leave(CUDA_SUCCESS);
}

/* ---- whole graphs ---- */

/* Why an update is impossible: a node of the new graph, and one of its dependencies. */
struct mismatch {
	CUgraphNode node, from;
};

/*
 * Pairs the nodes of two graphs: the last nodes in order, and from there backwards their dependencies in
 * order. NULL: the topology differs. (NVIDIA's driver was observed to do this. So it refuses graphs of the
 * same topology whose edges were added in another order.)
 */
static struct exec_node **pair(CUgraphExec old, CUgraphExec new, struct mismatch *where)
{
	size_t room = old->count + new->count;
	struct exec_node **pairs = sim_alloc(room * sizeof *pairs), **a = sim_alloc(room * sizeof *a);
	struct exec_node **b = sim_alloc(room * sizeof *b);
	size_t count = old->end_count;
	bool same = old->count == new->count && new->end_count == count;

	for (size_t i = 0; same && i < count; i++) {
		a[i] = &old->nodes[old->ends[i]];
		b[i] = &new->nodes[new->ends[i]];
		pairs[a[i] - old->nodes] = b[i];
	}
	for (size_t i = 0; same && i < count; i++) {
		same = a[i]->before_count == b[i]->before_count;
		if (!same)
			where->node = b[i]->source;
		for (unsigned k = 0; same && k < a[i]->before_count; k++) {
			struct exec_node **known = &pairs[a[i]->before[k]], *other = &new->nodes[b[i]->before[k]];
			same = !*known || *known == other;
			if (!same)
				*where = (struct mismatch){b[i]->source, other->source};
			if (*known)
				continue;
			*known = b[count] = other;
			a[count++] = &old->nodes[a[i]->before[k]];
		}
	}
	free(a);
	free(b);
	if (same)
		return pairs;
	free(pairs);
	return NULL;
}

static CUgraphExecUpdateResult compare(CUgraphExec old, CUgraphExec new, struct mismatch *where);

static CUgraphExecUpdateResult compare_node(const struct exec_node *a, const struct exec_node *b, struct mismatch *where)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	where->node = b->source;
	if (a->type != b->type)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	if (a->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || a->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	if (a->type == CU_GRAPH_NODE_TYPE_KERNEL && a->work->ctx != b->work->ctx)
		return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
	if (exec_inside_count(a) != exec_inside_count(b))
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	if (a->work && !may_become(a->work, b->work))
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	for (unsigned k = 0; k < exec_inside_count(a) && !result; k++)
		result = compare(exec_inside(a, k), exec_inside(b, k), where);
	return result;
}

static CUgraphExecUpdateResult compare(CUgraphExec old, CUgraphExec new, struct mismatch *where)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	struct exec_node **pairs = pair(old, new, where);

	if (!pairs)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (unsigned i = 0; i < old->count && !result; i++)
		result = compare_node(&old->nodes[i], pairs[i], where);
	free(pairs);
	if (!result)
		where->node = NULL;
	return result;
}

/* Of compared graphs. The sources stay: nodes of the original graph still name its nodes. */
static void take_work(CUgraphExec to, CUgraphExec from)
{
	struct exec_node **pairs = pair(to, from, &(struct mismatch){0});

	for (unsigned i = 0; i < to->count; i++) {
		struct sim_work *work = to->nodes[i].work;
		to->nodes[i].work = pairs[i]->work;
		pairs[i]->work = work;
		for (unsigned k = 0; k < exec_inside_count(&to->nodes[i]); k++)
			take_work(exec_inside(&to->nodes[i], k), exec_inside(pairs[i], k));
	}
	free(pairs);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	CUgraphExec new;
	struct mismatch where = {0};
	CUresult result = exec_enter(exec);

	if (result)
		return result;
	INVALID_IF(!info || !handle_is(graph, HANDLE_GRAPH));
	*info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
	result = exec_make(exec->ctx, graph, exec->flags, &new, NULL);
	if (result)
		return sim_leave(result);
	info->result = compare(exec, new, &where);
	info->errorNode = where.node;
	info->errorFromNode = where.from;
	if (!info->result)
		take_work(exec, new);
	exec_delete(new);
	return sim_leave(info->result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *failed, CUgraphExecUpdateResult *why)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);

	if (failed)
		*failed = info.errorNode;
	if (why)
		*why = info.result;
	return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	struct exec_node *n;
	CUgraphExec new;
	struct mismatch where = {0};
	CUresult result = enter_exec_and_node(exec, node, &n);

	if (result)
		return result;
	INVALID_IF(!n->child || !handle_is(child, HANDLE_GRAPH));
	result = exec_make(exec->ctx, child, 0, &new, NULL);
	if (result)
		return sim_leave(result);
	if (compare(n->child, new, &where))
		result = CUDA_ERROR_INVALID_VALUE;
	else
		take_work(n->child, new);
	exec_delete(new);
	return sim_leave(result);
}
