/*
 * Instantiated graphs: launching them and changing what they will do next.
 *
 * Invariants: an instantiated graph holds work of its own, so neither its graph nor launches
 * under way notice a change; a launch is, to its stream, one operation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* ---- making ---- */

/* The graphs that a node holds: a child graph, or the bodies of a condition. */
static unsigned inside_count(const struct exec_node *n)
{
	return n->child ? 1 : n->body_count;
}

static CUgraphExec inside(const struct exec_node *n, unsigned i)
{
	return n->child ? n->child : n->bodies[i];
}

void exec_unref(CUgraphExec exec)
{
	if (--exec->refs)
		return;
	for (unsigned i = 0; i < exec->count; i++) {
		work_unref(exec->nodes[i].work);
		for (unsigned k = 0; k < inside_count(&exec->nodes[i]); k++)
			exec_unref(inside(&exec->nodes[i], k));
		free(exec->nodes[i].bodies);
		free(exec->nodes[i].before);
	}
	user_references_release(exec->objects, exec->object_count);
	op_unref(exec->last);
	free(exec->objects);
	free(exec->nodes);
	free(exec);
}

static void exec_delete(CUgraphExec exec)
{
	handle_remove(exec);
	exec_unref(exec);
}

static CUresult exec_node_make(struct exec_node *to, CUgraphNode from, CUcontext ctx,
	CUgraphNode *failed)
{
	to->source = from;
	to->number = from->number;
	to->type = from->type;
	to->work = from->work ? work_ref(from->work) : NULL;
	to->has_dependents = from->after.count > 0;
	to->before = sim_alloc(from->before.count * sizeof *to->before);
	/* graph_order has left each node's place in its mark. */
	for (size_t i = 0; i < from->before.count; i++)
		to->before[to->before_count++] = (unsigned)from->before.items[i].node->mark;
	CUresult result = from->child ? exec_make(ctx, from->child, 0, &to->child, failed) : CUDA_SUCCESS;
	to->bodies = sim_alloc(from->body_count * sizeof *to->bodies);
	to->condition = from->condition;
	to->condition_type = from->condition_type;
	for (unsigned i = 0; i < from->body_count && !result; i++) {
		result = exec_make(ctx, from->bodies[i], 0, &to->bodies[i], failed);
		to->body_count += !result;
	}
	return result;
}

CUresult exec_make(CUcontext ctx, CUgraph graph, unsigned long long flags, CUgraphExec *out,
	CUgraphNode *failed)
{
	CUresult result = CUDA_SUCCESS;
	CUgraphNode *order = graph_order(graph);

	if (!order)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphExec exec = sim_alloc(sizeof *exec);
	exec->refs = 1;
	exec->ctx = ctx;
	exec->number = graph_next_number();
	exec->flags = flags;
	exec->nodes = sim_alloc(graph->count * sizeof *exec->nodes);
	for (size_t i = 0; i < graph->count; i++)
		order[i]->mark = i;
	for (size_t i = 0; i < graph->count && !result; i++) {
		result = exec_node_make(&exec->nodes[exec->count++], order[i], ctx, failed);
		if (result && failed && !*failed)
			*failed = order[i];
	}
	free(order);
	exec->object_count = graph->object_count;
	exec->objects = sim_copy(graph->objects, graph->object_count * sizeof *graph->objects);
	user_references_keep(exec->objects, exec->object_count);
	if (result) {
		exec_delete(exec);
		return result;
	}
	*out = exec;
	return CUDA_SUCCESS;
}

/* Kernels may launch graphs that have only such nodes. (Here none does: there is no call for it in PTX.) */
static bool suits_device(CUgraph graph)
{
	CUgraphNode node;

	TAILQ_FOREACH(node, &graph->nodes, all) {
		bool suits = node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY
			|| node->type == CU_GRAPH_NODE_TYPE_MEMSET
			|| (node->type == CU_GRAPH_NODE_TYPE_GRAPH && suits_device(node->child));
		if (!suits)
			return false;
	}
	return graph->count > 0;
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags,
	CUgraphNode *failed)
{
	unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
		| CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
		| CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!out || !handle_is(graph, HANDLE_GRAPH) || flags & ~known)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH && !suits_device(graph))
		return sim_leave(sim_unsupported("cuGraphInstantiate of such nodes for launches from the device"));
	result = capture_forbids();
	if (!result)
		result = exec_make(ctx, graph, flags, out, failed);
	if (!result)
		handle_add(*out, HANDLE_EXEC);
	return sim_leave(result);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	return instantiate(out, graph, flags, NULL);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log,
	size_t log_size)
{
	if (failed)
		*failed = NULL;
	if (log && log_size)
		*log = '\0';
	return instantiate(out, graph, 0, failed);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
	CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	if (!params)
		return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE;
	params->hErrNode_out = NULL;
	CUresult result = instantiate(out, graph, params->flags, &params->hErrNode_out);
	params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return result;
}

static CUresult enter_exec(CUgraphExec exec)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (!result && !handle_is(exec, HANDLE_EXEC))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	CUresult result = enter_exec(exec);

	if (result)
		return result;
	result = capture_forbids();
	if (!result)
		exec_delete(exec);
	return sim_leave(result);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
	CUresult result = enter_exec(exec);

	if (result)
		return result;
	if (!flags)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	/* Not what mattered to its making only. */
	*flags = exec->flags & (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
		| CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
	return sim_leave(CUDA_SUCCESS);
}

/* ---- launching ---- */

/* Whether the work still can run: its context, its function and its event are there. */
static CUresult check_alive(const struct sim_work *w)
{
	if (!w)
		return CUDA_SUCCESS;
	if (!context_alive(w->ctx))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (w->type == WORK_KERNEL && !handle_is(w->kernel.function, HANDLE_FUNCTION))
		return CUDA_ERROR_INVALID_HANDLE;
	if ((w->type == WORK_RECORD || w->type == WORK_WAIT_EVENT) && !handle_is(w->event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	return CUDA_SUCCESS;
}

static CUresult check_launch(CUgraphExec exec, bool auto_free)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned i = 0; i < exec->count && !result; i++) {
		const struct exec_node *n = &exec->nodes[i];
		result = check_alive(n->work);
		for (unsigned k = 0; k < inside_count(n) && !result; k++)
			result = check_launch(inside(n, k), auto_free);
		/* Memory that the last launch allocated must have been freed before the next. */
		if (!result && n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !auto_free
			&& pool_graph_memory_live(n->work))
			result = CUDA_ERROR_INVALID_VALUE;
	}
	return result;
}

static bool has_conditions(CUgraphExec exec)
{
	bool has = false;

	for (unsigned i = 0; i < exec->count && !has; i++) {
		has = exec->nodes[i].condition;
		for (unsigned k = 0; k < inside_count(&exec->nodes[i]) && !has; k++)
			has = has_conditions(inside(&exec->nodes[i], k));
	}
	return has;
}

static struct sim_work *condition_work(CUcontext ctx, CUgraphExec root, const struct exec_node *n, struct sim_op *end)
{
	struct sim_work *work = work_new(WORK_CONDITION, ctx);

	root->refs++;
	work->condition.root = root;
	work->condition.node = n;
	work->condition.end = end ? op_ref(end) : NULL;
	return work;
}

/* Submits the nodes; each comes after begin, and end comes after each. root: what was launched. */
static void submit(CUgraphExec root, CUgraphExec exec, struct sim_op *begin, struct sim_op *end)
{
	struct sim_op **ops = sim_alloc(exec->count * sizeof *ops);

	for (unsigned i = 0; i < exec->count; i++) {
		const struct exec_node *n = &exec->nodes[i];
		bool runs = n->work && !n->disabled;
		struct sim_work *work = runs ? work_ref(n->work) : work_new(WORK_NOTHING, begin->ctx);
		struct sim_op *inner = NULL;
		struct sim_op *op = op_new(work->ctx, work);
		op->node = (uint64_t)exec->number << 32 | n->number;
		/* The nodes inside run between an operation of their own and this one. */
		if (n->child)
			inner = op_new(begin->ctx, work_new(WORK_NOTHING, begin->ctx));
		else if (n->condition && !n->disabled)
			inner = op_new(begin->ctx, condition_work(begin->ctx, root, n, op));
		struct sim_op *first = inner ? inner : op;
		op_after(first, begin);
		for (unsigned k = 0; k < n->before_count; k++)
			op_after(first, ops[n->before[k]]);
		if (runs && work->type == WORK_WAIT_EVENT)
			op_after(op, work->event->op);
		if (runs && (work->type == WORK_POOL_ALLOC || work->type == WORK_POOL_FREE))
			pool_graph_launched(work);
		if (inner) {
			op_submit(inner);
			op_after(op, inner);
			if (n->child)
				submit(root, n->child, inner, op);
			op_unref(inner);
		}
		op_submit(op);
		if (runs && work->type == WORK_RECORD)
			event_recorded(work->event, op);
		if (!n->has_dependents)
			op_after(end, op);
		ops[i] = op;
	}
	for (unsigned i = 0; i < exec->count; i++)
		op_unref(ops[i]);
	free(ops);
}

static void begin_conditions(CUgraphExec exec)
{
	for (unsigned i = 0; i < exec->count; i++) {
		if (exec->nodes[i].condition)
			conditional_begin(exec->nodes[i].condition);
		for (unsigned k = 0; k < inside_count(&exec->nodes[i]); k++)
			begin_conditions(inside(&exec->nodes[i], k));
	}
}

/* What runs is known only now; of a loop it is asked again after the body. */
void exec_condition(struct sim_op *op)
{
	struct sim_work *w = op->work;
	const struct exec_node *n = w->condition.node;
	struct sim_op *again = NULL, *end = w->condition.end;

	if (!n) {
		begin_conditions(w->condition.root);
		return;
	}
	unsigned body = conditional_body(n->condition, n->condition_type, n->body_count);
	if (body == n->body_count)
		return;
	if (n->condition_type == CU_GRAPH_COND_TYPE_WHILE) {
		again = op_new(op->ctx, work_ref(w));
		op_after(again, op);
		op_after(end, again);
	}
	submit(w->condition.root, n->bodies[body], op, again ? again : end);
	if (again) {
		op_submit(again);
		op_unref(again);
	}
}

static CUresult exec_launch(CUgraphExec exec, CUstream stream)
{
	CUcontext ctx = stream->ctx;
	CUresult result = check_launch(exec, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);

	if (!result)
		result = stream_check_legacy(stream);
	if (result)
		return result;
	struct sim_work *first = has_conditions(exec) ? condition_work(ctx, exec, NULL, NULL) : work_new(WORK_NOTHING, ctx);
	struct sim_op *begin = stream_push(stream, first, exec->last);
	struct sim_op *end = op_new(ctx, work_new(WORK_NOTHING, ctx));
	op_after(end, begin);
	submit(exec, exec, begin, end);
	op_submit(end);
	op_unref(exec->last);
	exec->last = op_ref(end);
	/* begin held the stream's place in the order; end takes it over. */
	op_unref(stream->last);
	stream->last = end;
	return CUDA_SUCCESS;
}

static CUresult enter_exec_and_stream(CUgraphExec exec, CUstream handle, CUstream *stream)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!handle_is(exec, HANDLE_EXEC))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	result = stream_get(ctx, handle, stream);
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	CUstream stream;
	CUresult result = enter_exec_and_stream(exec, handle, &stream);

	if (result)
		return result;
	if (stream->capture) {
		capture_invalidate(stream->capture);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return sim_leave(exec_launch(exec, stream));
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
	CUstream stream;
	CUresult result = enter_exec_and_stream(exec, handle, &stream);

	if (result)
		return result;
	if (stream->capture) {
		capture_invalidate(stream->capture);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return sim_leave(stream_submit(stream, work_new(WORK_NOTHING, stream->ctx), NULL));
}

/* ---- changing ---- */

static struct exec_node *find_node(CUgraphExec exec, CUgraphNode node)
{
	for (unsigned i = 0; i < exec->count; i++) {
		if (exec->nodes[i].source == node)
			return &exec->nodes[i];
		for (unsigned k = 0; k < inside_count(&exec->nodes[i]); k++) {
			struct exec_node *inner = find_node(inside(&exec->nodes[i], k), node);
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

/* Copies of rows have to stay what they are. */
static bool copy_may_become(const struct copy *a, const struct copy *b)
{
	if (!is_flat(a) || !is_flat(b))
		return a->width == b->width && a->height == b->height && a->depth == b->depth &&
		       same_end(&a->src, &b->src) && same_end(&a->dst, &b->dst);
	return a->src.type == b->src.type && a->dst.type == b->dst.type;
}

static bool fill_may_become(const struct sim_work *a, const struct sim_work *b)
{
	return a->fill.height == b->fill.height &&
	       (a->fill.height == 1 || (a->fill.width == b->fill.width && a->fill.element == b->fill.element
					&& a->fill.pitch == b->fill.pitch));
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
	CUresult result = enter_exec(exec);

	if (result)
		return result;
	*out = handle_is(node, HANDLE_NODE) ? find_node(exec, node) : NULL;
	return *out ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_VALUE);
}

static bool may_be_disabled(const struct exec_node *n)
{
	return n->type == CU_GRAPH_NODE_TYPE_KERNEL || n->type == CU_GRAPH_NODE_TYPE_MEMCPY
		|| n->type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	struct exec_node *n;
	CUresult result = enter_exec_and_node(exec, node, &n);

	if (result)
		return result;
	if (!may_be_disabled(n))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	n->disabled = !enabled;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
	struct exec_node *n;
	CUresult result = enter_exec_and_node(exec, node, &n);

	if (result)
		return result;
	if (!enabled || !may_be_disabled(n))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*enabled = !n->disabled;
	return sim_leave(CUDA_SUCCESS);
}

static int by_number(const void *a, const void *b)
{
	const struct exec_node *x = *(struct exec_node *const *)a, *y = *(struct exec_node *const *)b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* Nodes that nothing comes after, in the order in which they were added. */
static size_t last_nodes(CUgraphExec exec, struct exec_node **last)
{
	size_t n = 0;

	for (unsigned i = 0; i < exec->count; i++) {
		if (!exec->nodes[i].has_dependents)
			last[n++] = &exec->nodes[i];
	}
	qsort(last, n, sizeof *last, by_number);
	return n;
}

/*
 * The node of the new graph for each of the old: the last nodes in order, and from there back what
 * each comes after, in order. Where that ends, the topology differs: NULL.
 */
static struct exec_node **pair(CUgraphExec old, CUgraphExec new)
{
	size_t room = old->count + new->count;
	struct exec_node **pairs = sim_alloc(room * sizeof *pairs), **a = sim_alloc(room * sizeof *a);
	struct exec_node **b = sim_alloc(room * sizeof *b);
	size_t count = last_nodes(old, a);
	bool same = old->count == new->count && last_nodes(new, b) == count;

	for (size_t i = 0; same && i < count; i++)
		pairs[a[i] - old->nodes] = b[i];
	for (size_t i = 0; same && i < count; i++) {
		same = a[i]->before_count == b[i]->before_count;
		for (unsigned k = 0; same && k < a[i]->before_count; k++) {
			struct exec_node **known = &pairs[a[i]->before[k]], *other = &new->nodes[b[i]->before[k]];
			same = !*known || *known == other;
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

static CUgraphExecUpdateResult compare(CUgraphExec old, CUgraphExec new, CUgraphNode *where);

static CUgraphExecUpdateResult compare_node(const struct exec_node *a, const struct exec_node *b, CUgraphNode *where)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	*where = b->source;
	if (a->type != b->type)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	if (a->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || a->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	if (a->type == CU_GRAPH_NODE_TYPE_KERNEL && a->work->ctx != b->work->ctx)
		return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
	if (inside_count(a) != inside_count(b))
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	if (a->work && !may_become(a->work, b->work))
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	for (unsigned k = 0; k < inside_count(a) && !result; k++)
		result = compare(inside(a, k), inside(b, k), where);
	return result;
}

static CUgraphExecUpdateResult compare(CUgraphExec old, CUgraphExec new, CUgraphNode *where)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	struct exec_node **pairs = pair(old, new);

	if (!pairs)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (unsigned i = 0; i < old->count && !result; i++)
		result = compare_node(&old->nodes[i], pairs[i], where);
	free(pairs);
	if (!result)
		*where = NULL;
	return result;
}

/* Of graphs that were compared. The sources stay: nodes of the graph it was made from go on naming its nodes. */
static void take_work(CUgraphExec to, CUgraphExec from)
{
	struct exec_node **pairs = pair(to, from);

	for (unsigned i = 0; i < to->count; i++) {
		struct sim_work *work = to->nodes[i].work;
		to->nodes[i].work = pairs[i]->work;
		pairs[i]->work = work;
		for (unsigned k = 0; k < inside_count(&to->nodes[i]); k++)
			take_work(inside(&to->nodes[i], k), inside(pairs[i], k));
	}
	free(pairs);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	CUgraphExec new;
	CUgraphNode where = NULL;
	CUresult result = enter_exec(exec);

	if (result)
		return result;
	if (!info || !handle_is(graph, HANDLE_GRAPH))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*info = (CUgraphExecUpdateResultInfo){ .result = CU_GRAPH_EXEC_UPDATE_ERROR };
	result = exec_make(exec->ctx, graph, exec->flags, &new, NULL);
	if (result)
		return sim_leave(result);
	info->result = compare(exec, new, &where);
	info->errorNode = where;
	if (!info->result)
		take_work(exec, new);
	exec_delete(new);
	return sim_leave(info->result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *failed,
	CUgraphExecUpdateResult *why)
{
	CUgraphExecUpdateResultInfo info = { 0 };
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
	CUgraphNode where;
	CUresult result = enter_exec_and_node(exec, node, &n);

	if (result)
		return result;
	if (!n->child || !handle_is(child, HANDLE_GRAPH))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
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
