/*
 * Streams: ordered queues, and the order of the default streams among others.
 *
 * Invariant: an operation of the legacy default stream runs after everything submitted before it to the
 * context's blocking streams, and their operations run after everything before them in the legacy stream.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

static unsigned long long last_id;

static bool blocking(const struct CUstream_st *stream)
{
	return !stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

static void stream_free(CUstream stream)
{
	LIST_REMOVE(stream, all);
	op_unref(stream->last);
	free(stream->deps.items);
	free(stream->info_nodes);
	free(stream->info_data);
	free(stream);
}

static void bury_destroyed(CUcontext ctx)
{
	CUstream stream = LIST_FIRST(&ctx->streams), next;

	for (; stream; stream = next) {
		next = LIST_NEXT(stream, all);
		if (stream->destroyed && (!stream->last || stream->last->done))
			stream_free(stream);
	}
}

CUstream stream_make(CUcontext ctx, unsigned flags, int priority)
{
	CUstream stream = sim_alloc(sizeof *stream);

	bury_destroyed(ctx);
	stream->ctx = ctx;
	stream->flags = flags;
	stream->priority = priority;
	stream->id = ++last_id;
	stream->attributes[CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY].syncPolicy = CU_SYNC_POLICY_AUTO;
	stream->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = priority;
	LIST_INSERT_HEAD(&ctx->streams, stream, all);
	return stream;
}

void stream_delete(CUstream stream)
{
	if (stream->capture) {
		capture_invalidate(stream->capture);
		capture_leave(stream);
	}
	handle_remove(stream);
	if (stream->last && !stream->last->done)
		stream->destroyed = true;
	else
		stream_free(stream);
}

static CUstream per_thread_stream(CUcontext ctx)
{
	uint64_t thread = sim_thread()->number;
	CUstream stream;

	LIST_FOREACH(stream, &ctx->streams, all)
	{
		if (stream->thread == thread)
			return stream;
	}
	stream = stream_make(ctx, CU_STREAM_DEFAULT, 0);
	stream->thread = thread;
	return stream;
}

CUresult stream_get(CUcontext ctx, CUstream handle, CUstream *out)
{
	if (!handle || handle == CU_STREAM_LEGACY)
		*out = ctx->legacy;
	else if (handle == CU_STREAM_PER_THREAD)
		*out = per_thread_stream(ctx);
	else if (handle_is(handle, HANDLE_STREAM))
		*out = handle;
	else
		return CUDA_ERROR_INVALID_HANDLE;
	return (*out)->ctx->fault;
}

struct sim_op *stream_push(CUstream stream, struct sim_work *work, struct sim_op *also)
{
	struct sim_op *op = op_new(stream->ctx, work);
	CUstream other;

	op_after(op, stream->last);
	op_after(op, also);
	if (stream->legacy) {
		LIST_FOREACH(other, &stream->ctx->streams, all)
		{
			if (blocking(other))
				op_after(op, other->last);
		}
	} else if (blocking(stream)) {
		op_after(op, stream->ctx->legacy->last);
	}
	if (sim_settings.one_queue && stream->priority) {
		op_after(op, stream->ctx->queued);
		op_unref(stream->ctx->queued);
		stream->ctx->queued = op_ref(op);
	}
	op_submit(op);
	op_unref(stream->last);
	stream->last = op;
	return op;
}

CUresult stream_check_legacy(CUstream stream)
{
	struct capture *capture = stream->legacy ? capture_blocking(stream->ctx) : NULL;

	if (!capture)
		return CUDA_SUCCESS;
	capture_invalidate(capture);
	return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult stream_submit(CUstream stream, struct sim_work *work, struct sim_op **out)
{
	CUresult result;

	if (out)
		*out = NULL;
	if (stream->capture)
		return capture_add(stream, work);
	result = stream_check_legacy(stream);
	if (result) {
		work_unref(work);
		return result;
	}
	struct sim_op *op = stream_push(stream, work, NULL);
	if (out)
		*out = op;
	return CUDA_SUCCESS;
}

/* Waiting for the legacy stream is an operation in it, so it also waits for blocking streams. */
static void settle_legacy(CUstream stream)
{
	CUstream other;

	if (!stream->legacy)
		return;
	LIST_FOREACH(other, &stream->ctx->streams, all)
	{
		if (blocking(other) && other->last && !other->last->done) {
			stream_push(stream, work_new(WORK_NOTHING, stream->ctx), NULL);
			return;
		}
	}
}

void stream_wait(CUstream stream)
{
	settle_legacy(stream);
	if (stream->last)
		op_wait(stream->last);
}

/* ---- calls ---- */

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	CUcontext ctx;
	int least, greatest;
	CUresult result = cuCtxGetStreamPriorityRange(&least, &greatest);

	if (result || (result = sim_enter(&ctx)))
		return result;
	INVALID_IF(!out || flags & ~(unsigned)CU_STREAM_NON_BLOCKING);
	if (priority > least)
		priority = least;
	if (priority < greatest)
		priority = greatest;
	*out = stream_make(ctx, flags, priority);
	handle_add(*out, HANDLE_STREAM);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	if (!handle_is(stream, HANDLE_STREAM))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	stream_delete(stream);
	return sim_leave(CUDA_SUCCESS);
}

static CUresult enter_stream(CUstream handle, CUcontext *ctx, CUstream *stream)
{
	CUresult result = sim_enter(ctx);

	if (result)
		return result;
	result = stream_get(*ctx, handle, stream);
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

/* A wait for a captured stream is refused and invalidates the capture. */
static CUresult check_observable(CUstream stream)
{
	if (!stream->capture) {
		CUresult result = stream_check_legacy(stream);
		return result ? result : capture_forbids();
	}
	capture_invalidate(stream->capture);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuStreamSynchronize(CUstream handle)
{
	CUcontext ctx;
	CUstream stream;
	CUresult result = enter_stream(handle, &ctx, &stream);

	if (result)
		return result;
	result = check_observable(stream);
	if (result)
		return sim_leave(result);
	ctx = stream->ctx;
	stream_wait(stream);
	return sim_leave(ctx->fault);
}

CUresult cuStreamQuery(CUstream handle)
{
	CUcontext ctx;
	CUstream stream;
	CUresult result = enter_stream(handle, &ctx, &stream);

	if (result)
		return result;
	result = check_observable(stream);
	if (result)
		return sim_leave(result);
	ctx = stream->ctx;
	settle_legacy(stream);
	if (!stream->last)
		return sim_leave(CUDA_SUCCESS);
	struct sim_op *last = op_ref(stream->last);
	op_look(last);
	result = last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	op_unref(last);
	return sim_leave(ctx->fault ? ctx->fault : result);
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!priority);
	*priority = stream->priority;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!flags);
	*flags = stream->flags;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!id);
	*id = stream->id;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *out, CUgreenCtx *green)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!out);
	*out = stream->ctx;
	if (green)
		*green = NULL;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *out)
{
	return cuStreamGetCtx_v2(handle, out, NULL);
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!device);
	*device = stream->ctx->device;
	return sim_leave(CUDA_SUCCESS);
}

static bool attribute_known(CUstreamAttrID attribute)
{
	return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
	       attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY || attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY ||
	       attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP || attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!value || !attribute_known(attribute));
	stream->attributes[attribute] = *value;
	if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		stream->priority = value->priority;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!value || !attribute_known(attribute));
	*value = stream->attributes[attribute];
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
	CUcontext ctx;
	CUstream target, source;
	CUresult result = enter_stream(to, &ctx, &target);

	if (result)
		return result;
	result = stream_get(ctx, from, &source);
	if (!result)
		memcpy(target->attributes, source->attributes, sizeof target->attributes);
	return sim_leave(result);
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length, unsigned int flags)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	struct region *r = region_find(address);
	if (!r || r->kind != REGION_MANAGED || r->base != address || (length && length != r->size) ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (stream->capture) {
		capture_invalidate(stream->capture);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return sim_leave(stream_submit(stream, work_new(WORK_NOTHING, stream->ctx), NULL));
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned int flags)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!callback || flags);
	if (stream->capture) {
		capture_invalidate(stream->capture);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	struct sim_work *work = work_new(WORK_CALLBACK, stream->ctx);
	work->callback.function = callback;
	work->callback.stream = handle;
	work->callback.data = data;
	return sim_leave(stream_submit(stream, work, NULL));
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
	CUcontext ctx;
	CUstream stream;

	ENTER(enter_stream(handle, &ctx, &stream));
	INVALID_IF(!function);
	struct sim_work *work = work_new(WORK_HOST, stream->ctx);
	work->host.function = function;
	work->host.data = data;
	return sim_leave(stream_submit(stream, work, NULL));
}
