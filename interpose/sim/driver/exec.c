/*
 * Instantiated graphs: creating and launching them. exec_update.c changes them.
 *
 * Invariants: an instantiated graph has its own work, so a change affects neither its graph nor running
 * launches. To its stream, a launch is one operation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

/* ---- making ---- */

void exec_unref(CUgraphExec exec)
{
	if (--exec->refs)
		return;
	for (unsigned i = 0; i < exec->count; i++) {
		work_unref(exec->nodes[i].work);
		for (unsigned k = 0; k < exec_inside_count(&exec->nodes[i]); k++)
			exec_unref(exec_inside(&exec->nodes[i], k));
		free(exec->nodes[i].bodies);
		free(exec->nodes[i].trace);
		free(exec->nodes[i].before);
	}
	user_references_release(exec->objects, exec->object_count);
	op_unref(exec->last);
	free(exec->objects);
	free(exec->nodes);
	free(exec->ends);
	free(exec);
}

void exec_delete(CUgraphExec exec)
{
	handle_remove(exec);
	exec_unref(exec);
}

static CUresult exec_node_make(struct exec_node *to, CUgraphNode from, CUcontext ctx, CUgraphNode *failed)
{
	to->source = from;
	to->number = from->number;
	to->type = from->type;
	to->work = from->work ? work_ref(from->work) : NULL;
	to->before = sim_alloc(from->before.count * sizeof *to->before);
	/* graph_order has stored each node's position in its mark. */
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

CUresult exec_make(CUcontext ctx, CUgraph graph, unsigned long long flags, CUgraphExec *out, CUgraphNode *failed)
{
	CUresult result = CUDA_SUCCESS;
	CUgraphNode *order = graph_order(graph), node;

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
	exec->ends = sim_alloc(graph->count * sizeof *exec->ends);
	TAILQ_FOREACH(node, &graph->last, end)
	exec->ends[exec->end_count++] = (unsigned)node->mark;
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

/* Kernels may launch graphs that have only such nodes. (Here no kernel does: PTX has no call for it.) */
static bool suits_device(CUgraph graph)
{
	CUgraphNode node;

	TAILQ_FOREACH(node, &graph->nodes, all)
	{
		bool suits = node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
			     node->type == CU_GRAPH_NODE_TYPE_MEMSET ||
			     (node->type == CU_GRAPH_NODE_TYPE_GRAPH && suits_device(node->child));
		if (!suits)
			return false;
	}
	return graph->count > 0;
}

/*
 * Calls visit for its conditions and those of child graphs until visit returns true. Returns whether it
 * did.
 */
static bool each_condition(CUgraphExec exec, bool (*visit)(struct condition *c))
{
	bool enough = false;

	for (unsigned i = 0; i < exec->count && !enough; i++) {
		const struct exec_node *n = &exec->nodes[i];
		enough = n->condition && visit(n->condition);
		for (unsigned k = 0; k < exec_inside_count(n) && !enough; k++)
			enough = each_condition(exec_inside(n, k), visit);
	}
	return enough;
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags, CUgraphNode *failed)
{
	unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
				   CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	INVALID_IF(!out || !handle_is(graph, HANDLE_GRAPH) || flags & ~known);
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH && !suits_device(graph))
		return sim_leave(sim_unsupported("cuGraphInstantiate of such nodes for launches from the device"));
	result = capture_forbids();
	if (!result)
		result = exec_make(ctx, graph, flags, out, failed);
	if (!result && each_condition(*out, conditional_is_taken)) {
		exec_unref(*out);
		result = CUDA_ERROR_NOT_SUPPORTED;
	}
	if (!result) {
		each_condition(*out, conditional_take);
		handle_add(*out, HANDLE_EXEC);
	}
	return sim_leave(result);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	return instantiate(out, graph, flags, NULL);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log, size_t log_size)
{
	if (failed)
		*failed = NULL;
	if (log && log_size)
		*log = '\0';
	return instantiate(out, graph, 0, failed);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	if (!params)
		return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE;
	params->hErrNode_out = NULL;
	CUresult result = instantiate(out, graph, params->flags, &params->hErrNode_out);
	params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return result;
}

CUresult exec_enter(CUgraphExec exec)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	INVALID_IF(!result && !handle_is(exec, HANDLE_EXEC));
	return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	CUresult result = exec_enter(exec);

	if (result)
		return result;
	result = capture_forbids();
	if (!result) {
		each_condition(exec, conditional_give_back);
		exec_delete(exec);
	}
	return sim_leave(result);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
	ENTER(exec_enter(exec));
	INVALID_IF(!flags);
	/* Without flags that matter only at instantiation. */
	*flags = exec->flags & (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
	return sim_leave(CUDA_SUCCESS);
}

/* ---- launching ---- */

/* Whether the work can still run: its context, function and event exist. */
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
		for (unsigned k = 0; k < exec_inside_count(n) && !result; k++)
			result = check_launch(exec_inside(n, k), auto_free);
		/* Memory that the last launch allocated must be free before the next launch. */
		if (!result && n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !auto_free && pool_graph_memory_live(n->work))
			result = CUDA_ERROR_INVALID_VALUE;
	}
	return result;
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

/* Submits the nodes between begin and end. root: the launched graph. */
static void submit(CUgraphExec root, CUgraphExec exec, struct sim_op *begin, struct sim_op *end)
{
	struct sim_op **ops = sim_alloc(exec->count * sizeof *ops);

	for (unsigned i = 0; i < exec->count; i++) {
		struct exec_node *n = &exec->nodes[i];
		bool runs = n->work && !n->disabled;
		struct sim_work *work = !runs      ? work_new(WORK_NOTHING, begin->ctx)
					: n->trace ? work_traced(n->work, n->trace)
						   : work_ref(n->work);
		n->trace = NULL;
		struct sim_op *inner = NULL;
		struct sim_op *op = op_new(work->ctx, work);
		op->node = (uint64_t)exec->number << 32 | n->number;
		/* Nested nodes run between two operations of their own. */
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
		ops[i] = op;
	}
	for (size_t i = 0; i < exec->end_count; i++)
		op_after(end, ops[exec->ends[i]]);
	for (unsigned i = 0; i < exec->count; i++)
		op_unref(ops[i]);
	free(ops);
}

/* The body is known only now; a loop asks again after each run of the body. */
void exec_condition(struct sim_op *op)
{
	struct sim_work *w = op->work;
	const struct exec_node *n = w->condition.node;
	struct sim_op *again = NULL, *end = w->condition.end;

	if (!n) {
		each_condition(w->condition.root, conditional_begin);
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
	struct sim_work *first = each_condition(exec, conditional_is_any) ? condition_work(ctx, exec, NULL, NULL)
									  : work_new(WORK_NOTHING, ctx);
	struct sim_op *begin = stream_push(stream, first, exec->last);
	struct sim_op *end = op_new(ctx, work_new(WORK_NOTHING, ctx));
	op_after(end, begin);
	submit(exec, exec, begin, end);
	op_submit(end);
	op_unref(exec->last);
	exec->last = op_ref(end);
	/* begin held the stream's position in the order; end replaces it. */
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
	INVALID_IF(!handle_is(exec, HANDLE_EXEC));
	result = stream_get(ctx, handle, stream);
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	CUstream stream;

	ENTER(enter_exec_and_stream(exec, handle, &stream));
	if (stream->capture) {
		capture_invalidate(stream->capture);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return sim_leave(exec_launch(exec, stream));
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
	CUstream stream;

	ENTER(enter_exec_and_stream(exec, handle, &stream));
	if (stream->capture) {
		capture_invalidate(stream->capture);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return sim_leave(stream_submit(stream, work_new(WORK_NOTHING, stream->ctx), NULL));
}
