/*
 * Events.
 *
 * Invariant: an event stands for its newest record; a wait for an older record keeps waiting for that one.
 */
#include <stdlib.h>

#include "sim/driver/driver.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

void event_unref(CUevent event)
{
	if (--event->refs == 0)
		free(event);
}

void event_delete(CUevent event)
{
	handle_remove(event);
	LIST_REMOVE(event, all);
	op_unref(event->op);
	event->op = NULL;
	edges_set(&event->deps, NULL, 0);
	event_unref(event);
}

void event_recorded(CUevent event, struct sim_op *op)
{
	op_unref(event->op);
	event->op = op_ref(op);
	event->capture_id = 0;
	edges_set(&event->deps, NULL, 0);
}

static CUresult enter_event(CUevent event)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	if (!handle_is(event, HANDLE_EVENT))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	if (event->ctx->fault)
		return sim_leave(event->ctx->fault);
	return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(!out || flags & ~(unsigned)EVENT_FLAGS ||
		   (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)));
	CUevent event = sim_alloc(sizeof *event);
	event->refs = 1;
	event->ctx = ctx;
	event->flags = flags;
	LIST_INSERT_HEAD(&ctx->events, event, all);
	handle_add(event, HANDLE_EVENT);
	*out = event;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent event)
{
	ENTER(enter_event(event));
	event_delete(event);
	return sim_leave(CUDA_SUCCESS);
}

static CUresult record(CUevent event, CUstream handle, unsigned flags)
{
	CUstream stream;
	CUresult result = enter_event(event);

	if (result)
		return result;
	result = stream_get(context_current(), handle, &stream);
	if (result)
		return sim_leave(result);
	if (event->ctx != stream->ctx)
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	INVALID_IF(flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL);
	if (flags & CU_EVENT_RECORD_EXTERNAL && !stream->capture)
		return sim_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (stream->capture && !(flags & CU_EVENT_RECORD_EXTERNAL))
		return sim_leave(capture_record(stream, event));
	struct sim_work *work = work_new(WORK_RECORD, stream->ctx);
	work->event = event;
	event->refs++;
	struct sim_op *op;
	result = stream_submit(stream, work, &op);
	if (op)
		event_recorded(event, op);
	return sim_leave(result);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return record(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	return record(event, stream, flags);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
	CUstream stream;
	CUresult result = enter_event(event);

	if (result)
		return result;
	result = stream_get(context_current(), handle, &stream);
	if (result)
		return sim_leave(result);
	INVALID_IF(flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL);
	if (flags & CU_EVENT_WAIT_EXTERNAL && !stream->capture)
		return sim_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (flags & CU_EVENT_WAIT_EXTERNAL) {
		struct sim_work *work = work_new(WORK_WAIT_EVENT, stream->ctx);
		work->event = event;
		event->refs++;
		return sim_leave(capture_add(stream, work));
	}
	if (stream->capture || capture_by_id(event->capture_id))
		return sim_leave(capture_wait(stream, event));
	result = stream_check_legacy(stream);
	if (!result && event->op && !event->op->done)
		stream_push(stream, work_new(WORK_NOTHING, stream->ctx), event->op);
	return sim_leave(result);
}

/* Waiting for an event of a stream capture invalidates the capture. After the capture it is an ordinary event. */
static CUresult check_observable(CUevent event)
{
	struct capture *capture = capture_by_id(event->capture_id);

	if (!event->capture_id)
		return capture_forbids();
	if (!capture)
		return CUDA_ERROR_INVALID_VALUE;
	capture_invalidate(capture);
	return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cuEventQuery(CUevent event)
{
	CUresult result = enter_event(event);

	if (result)
		return result;
	result = check_observable(event);
	if (result)
		return sim_leave(result);
	if (!event->op || event->op->done)
		return sim_leave(CUDA_SUCCESS);
	CUcontext ctx = event->ctx;
	struct sim_op *op = op_ref(event->op);
	op_look(op);
	result = op->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	op_unref(op);
	return sim_leave(ctx->fault ? ctx->fault : result);
}

CUresult cuEventSynchronize(CUevent event)
{
	CUresult result = enter_event(event);

	if (result)
		return result;
	result = check_observable(event);
	if (result)
		return sim_leave(result);
	CUcontext ctx = event->ctx;
	if (event->op)
		op_wait(event->op);
	return sim_leave(ctx->fault);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
	ENTER(enter_event(start));
	INVALID_IF(!milliseconds);
	if (!handle_is(end, HANDLE_EVENT) || start->ctx != end->ctx || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING ||
	    !start->op || !end->op)
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!start->op->done || !end->op->done)
		return sim_leave(CUDA_ERROR_NOT_READY);
	int64_t ns = (int64_t)(end->op->finished_ns - start->op->finished_ns);
	*milliseconds = (float)((double)ns / 1e6);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	return cuEventElapsedTime_v2(milliseconds, start, end);
}
