/*
 * Stream capture: submitted work becomes a graph and does not run.
 *
 * Invariant: a stream belongs to at most one capture. Calls that invalidate a capture in NVIDIA's driver
 * invalidate it here; its end then returns no graph.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

static LIST_HEAD(, capture) captures = LIST_HEAD_INITIALIZER(captures);
static unsigned long long last_id;

/* ---- which captures are touched by what ---- */

struct capture *capture_by_id(unsigned long long id)
{
	struct capture *c;

	LIST_FOREACH(c, &captures, all)
	{
		if (c->id == id)
			return c;
	}
	return NULL;
}

bool capture_builds(CUgraph graph)
{
	struct capture *c;

	LIST_FOREACH(c, &captures, all)
	{
		if (c->graph == graph)
			return true;
	}
	return false;
}

void capture_invalidate(struct capture *c)
{
	c->invalid = true;
}

struct capture *capture_blocking(CUcontext ctx)
{
	CUstream stream;

	LIST_FOREACH(stream, &ctx->streams, all)
	{
		if (stream->capture && !(stream->flags & CU_STREAM_NON_BLOCKING))
			return stream->capture;
	}
	return NULL;
}

CUresult capture_forbids(void)
{
	const struct sim_thread *thread = sim_thread();
	CUresult result = CUDA_SUCCESS;
	struct capture *c;

	if (thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	LIST_FOREACH(c, &captures, all)
	{
		bool mine = c->thread == thread->number && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool anyones = thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			       c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
		if (mine || anyones) {
			capture_invalidate(c);
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return result;
}

CUresult capture_forbids_context(CUcontext ctx)
{
	CUresult result = CUDA_SUCCESS;
	CUstream stream;

	LIST_FOREACH(stream, &ctx->streams, all)
	{
		if (stream->capture) {
			capture_invalidate(stream->capture);
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return result;
}

/* ---- joining and leaving ---- */

static void leave(CUstream stream)
{
	stream->capture = NULL;
	edges_set(&stream->deps, NULL, 0);
}

static CUstream next_stream(struct capture *c, CUcontext *ctx, CUstream after)
{
	CUstream stream = after ? LIST_NEXT(after, all) : NULL;

	for (;;) {
		for (; stream; stream = LIST_NEXT(stream, all)) {
			if (stream->capture == c)
				return stream;
		}
		do
			*ctx = *ctx ? (*ctx)->older : context_newest();
		while (*ctx && !(*ctx)->alive);
		if (!*ctx)
			return NULL;
		stream = LIST_FIRST(&(*ctx)->streams);
	}
}

static void capture_end(struct capture *c, CUgraph *graph)
{
	CUcontext ctx = NULL;
	CUstream stream = NULL;

	while ((stream = next_stream(c, &ctx, stream)))
		leave(stream);
	LIST_REMOVE(c, all);
	if (graph)
		*graph = c->graph;
	else if (c->own_graph)
		graph_delete(c->graph);
	free(c);
}

void capture_leave(CUstream stream)
{
	if (stream->capture->origin == stream)
		capture_end(stream->capture, NULL);
	else
		leave(stream);
}

/* ---- work ---- */

CUresult capture_add(CUstream stream, struct sim_work *work)
{
	CUgraphNode node;
	struct capture *c = stream->capture;
	CUgraphNodeType type = work_node_type(work);
	CUresult result = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;

	if (!result && type == CU_GRAPH_NODE_TYPE_EMPTY) {
		work_unref(work);
		work = NULL;
	}
	if (!result)
		result = graph_add(c->graph, type, work, NULL, stream->deps.items, stream->deps.count, &node);
	if (result) {
		work_unref(work);
		return result;
	}
	edges_set(&stream->deps, &(struct edge){.node = node}, 1);
	return CUDA_SUCCESS;
}

CUresult capture_record(CUstream stream, CUevent event)
{
	struct capture *c = stream->capture;

	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	op_unref(event->op);
	event->op = NULL;
	event->capture_id = c->id;
	edges_set(&event->deps, stream->deps.items, stream->deps.count);
	return CUDA_SUCCESS;
}

CUresult capture_wait(CUstream stream, CUevent event)
{
	struct capture *c = capture_by_id(event->capture_id);

	if (!stream->capture) {
		if (c->invalid)
			return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		if (stream->legacy) {
			capture_invalidate(c);
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
		stream->capture = c;
		edges_set(&stream->deps, event->deps.items, event->deps.count);
		return CUDA_SUCCESS;
	}
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!event->capture_id && !event->op)
		return CUDA_SUCCESS;
	if (c == stream->capture) {
		edges_add(&stream->deps, event->deps.items, event->deps.count);
		return CUDA_SUCCESS;
	}
	capture_invalidate(stream->capture);
	if (!c)
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	capture_invalidate(c);
	return CUDA_ERROR_STREAM_CAPTURE_MERGE;
}

/* ---- calls ---- */

static CUresult enter_stream(CUstream handle, CUstream *stream)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = stream_get(ctx, handle, stream);
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

static bool mode_good(CUstreamCaptureMode mode)
{
	return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
	       mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

static CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
		      CUstreamCaptureMode mode)
{
	CUstream stream;
	struct edge *deps = NULL;
	CUresult result = enter_stream(handle, &stream);

	if (result)
		return result;
	INVALID_IF(!mode_good(mode));
	if (stream->legacy)
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (stream->capture)
		return sim_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (graph)
		result = graph_edges_from(graph, nodes, data, count, &deps);
	if (result)
		return sim_leave(result);
	struct capture *c = sim_alloc(sizeof *c);
	c->id = ++last_id;
	c->own_graph = !graph;
	c->graph = graph ? graph : graph_make();
	c->mode = mode;
	c->thread = sim_thread()->number;
	c->origin = stream;
	LIST_INSERT_HEAD(&captures, c, all);
	stream->capture = c;
	edges_set(&stream->deps, deps, graph ? count : 0);
	free(deps);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	return begin(stream, NULL, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
				     size_t count, CUstreamCaptureMode mode)
{
	if (!graph)
		return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE;
	return begin(stream, graph, nodes, data, count, mode);
}

/* Whether all work of the capture's streams precedes the end of its first stream. */
static bool joined(struct capture *c)
{
	CUcontext ctx = NULL;
	CUstream stream = NULL;
	CUgraphNode *order = graph_order(c->graph);
	size_t i, k;

	if (!order)
		return false;
	for (i = 0; i < c->graph->count; i++)
		order[i]->mark = 0;
	for (i = 0; i < c->origin->deps.count; i++)
		c->origin->deps.items[i].node->mark = 1;
	/* Backwards: a node is marked before its dependencies are visited. */
	for (i = c->graph->count; i-- > 0;) {
		for (k = 0; order[i]->mark && k < order[i]->before.count; k++)
			order[i]->before.items[k].node->mark = 1;
	}
	free(order);
	while ((stream = next_stream(c, &ctx, stream))) {
		for (i = 0; i < stream->deps.count; i++) {
			if (!stream->deps.items[i].node->mark)
				return false;
		}
	}
	return true;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	CUstream stream;
	CUresult result = enter_stream(handle, &stream);

	if (result)
		return result;
	struct capture *c = stream->capture;
	INVALID_IF(!graph);
	*graph = NULL;
	if (!c)
		return sim_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (c->origin != stream) {
		capture_invalidate(c);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	}
	/* The capture ends even if it fails. */
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != sim_thread()->number)
		result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	else if (c->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!joined(c))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	capture_end(c, result ? NULL : graph);
	return sim_leave(result);
}

static CUstreamCaptureStatus status_of(const struct CUstream_st *stream)
{
	if (!stream->capture)
		return CU_STREAM_CAPTURE_STATUS_NONE;
	return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static bool meets_capture(CUstream stream)
{
	return stream->legacy && capture_blocking(stream->ctx);
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	CUstream stream;

	ENTER(enter_stream(handle, &stream));
	INVALID_IF(!status);
	if (meets_capture(stream))
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	*status = status_of(stream);
	return sim_leave(CUDA_SUCCESS);
}

static bool has_data(const struct edges *e)
{
	static const CUgraphEdgeData none;

	for (size_t i = 0; i < e->count; i++) {
		if (memcmp(&e->items[i].data, &none, sizeof none))
			return true;
	}
	return false;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
				   const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *count)
{
	CUstream stream;

	ENTER(enter_stream(handle, &stream));
	INVALID_IF(!status);
	if (meets_capture(stream))
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	*status = status_of(stream);
	if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return sim_leave(CUDA_SUCCESS);
	const struct edges *deps = &stream->deps;
	if (nodes && !data && has_data(deps))
		return sim_leave(CUDA_ERROR_LOSSY_QUERY);
	/* Returned arrays stay valid until the next call of this kind for the stream. */
	free(stream->info_nodes);
	free(stream->info_data);
	stream->info_nodes = sim_alloc(deps->count * sizeof *stream->info_nodes);
	stream->info_data = sim_alloc(deps->count * sizeof *stream->info_data);
	for (size_t i = 0; i < deps->count; i++) {
		stream->info_nodes[i] = deps->items[i].node;
		stream->info_data[i] = deps->items[i].data;
	}
	if (id)
		*id = stream->capture->id;
	if (graph)
		*graph = stream->capture->graph;
	if (nodes)
		*nodes = stream->info_nodes;
	if (data)
		*data = stream->info_data;
	if (count)
		*count = deps->count;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
				   const CUgraphNode **nodes, size_t *count)
{
	return cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, NULL, count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
					      unsigned int flags)
{
	CUstream stream;
	struct edge *deps;
	CUresult result = enter_stream(handle, &stream);

	if (result)
		return result;
	if (!stream->capture)
		return sim_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (stream->capture->invalid)
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	INVALID_IF(flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES && flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES);
	result = graph_edges_from(stream->capture->graph, nodes, data, count, &deps);
	if (result)
		return sim_leave(result);
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		edges_set(&stream->deps, NULL, 0);
	edges_add(&stream->deps, deps, count);
	free(deps);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags)
{
	return cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	struct sim_thread *thread = sim_thread();

	ENTER(sim_enter_driver());
	INVALID_IF(!mode || !mode_good(*mode));
	CUstreamCaptureMode before = thread->capture_mode;
	thread->capture_mode = *mode;
	*mode = before;
	return sim_leave(CUDA_SUCCESS);
}
