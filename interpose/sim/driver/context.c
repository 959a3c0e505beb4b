/*
 * Contexts: their lifetime, and the stack of each thread.
 *
 * Invariant: the structure of a destroyed context is kept, so its handle stays recognisable as destroyed.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

static CUcontext newest;
static unsigned long long last_id;

CUcontext context_current(void)
{
	struct sim_thread *thread = sim_thread();

	return thread->depth ? thread->stack[thread->depth - 1] : NULL;
}

CUcontext context_newest(void)
{
	return newest;
}

static bool context_known(CUcontext ctx)
{
	return handle_is(ctx, HANDLE_CONTEXT);
}

bool context_alive(CUcontext ctx)
{
	return context_known(ctx) && ctx->alive;
}

void context_fault(CUcontext ctx, CUresult fault)
{
	if (!ctx->fault)
		ctx->fault = fault;
}

struct wait_until {
	CUcontext ctx;
	uint64_t seq;
};

static bool all_done(void *argument)
{
	const struct wait_until *until = argument;
	const struct sim_op *first = TAILQ_FIRST(&until->ctx->pending);

	return !first || first->seq > until->seq;
}

void context_wait(CUcontext ctx)
{
	struct sim_op *newest_op = TAILQ_LAST(&ctx->pending, op_list);

	if (newest_op)
		engine_wait(all_done, &(struct wait_until){ctx, newest_op->seq});
}

void context_settle(CUcontext ctx)
{
	do {
		context_wait(ctx);
		engine_quiesce();
	} while (!TAILQ_EMPTY(&ctx->pending));
}

void contexts_wait(void)
{
	for (CUcontext ctx = newest; ctx; ctx = ctx->older) {
		if (ctx->alive)
			context_wait(ctx);
	}
	engine_quiesce();
}

uint64_t context_reach(CUcontext ctx)
{
	return ctx->peers | 1ull << ctx->device;
}

void context_start(CUcontext ctx, unsigned flags)
{
	ctx->flags = flags;
	ctx->alive = true;
	ctx->fault = CUDA_SUCCESS;
	ctx->id = ++last_id;
	ctx->version = 3020;
	ctx->peers = 0;
	context_default_settings(ctx);
	LIST_INIT(&ctx->streams);
	LIST_INIT(&ctx->events);
	LIST_INIT(&ctx->modules);
	LIST_INIT(&ctx->arrays);
	LIST_INIT(&ctx->mipmaps);
	TAILQ_INIT(&ctx->pending);
	ctx->legacy = stream_make(ctx, CU_STREAM_DEFAULT, 0);
	ctx->legacy->legacy = true;
}

CUcontext context_make(int device, unsigned flags)
{
	CUcontext ctx = sim_alloc(sizeof *ctx);

	ctx->device = device;
	ctx->older = newest;
	newest = ctx;
	handle_add(ctx, HANDLE_CONTEXT);
	context_start(ctx, flags);
	return ctx;
}

static void region_end(struct region *r)
{
	switch (r->kind) {
	case REGION_DEVICE:
	case REGION_GLOBAL:
		region_delete(r);
		return;
	case REGION_MANAGED:
	case REGION_HOST:
		storage_delete(r->memory, r->size);
		/* fall through */
	default:
		region_remove(r);
	}
}

void context_end(CUcontext ctx)
{
	uint64_t end;

	ctx->alive = false;
	while (!LIST_EMPTY(&ctx->streams))
		stream_delete(LIST_FIRST(&ctx->streams));
	while (!LIST_EMPTY(&ctx->events))
		event_delete(LIST_FIRST(&ctx->events));
	while (!LIST_EMPTY(&ctx->modules))
		module_delete(LIST_FIRST(&ctx->modules));
	while (!LIST_EMPTY(&ctx->mipmaps))
		mipmap_delete(LIST_FIRST(&ctx->mipmaps));
	while (!LIST_EMPTY(&ctx->arrays))
		array_delete(LIST_FIRST(&ctx->arrays));
	for (struct region *r = region_from(0); r; r = region_from(end)) {
		end = r->base + r->size;
		if (r->ctx == ctx)
			region_end(r);
	}
	ctx->legacy = NULL;
}

/* ---- explicit contexts ---- */

static CUresult create(CUcontext *out, unsigned flags, CUdevice device)
{
	struct sim_thread *thread = sim_thread();

	ENTER(sim_enter_driver());
	INVALID_IF(!out || !context_flags_good(flags) || thread->depth == sizeof thread->stack / sizeof *thread->stack);
	if (!device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	*out = context_make(device, flags);
	thread->stack[thread->depth++] = *out;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device)
{
	return create(out, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice device)
{
	(void)affinity;
	return count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(out, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v3(out, NULL, params ? params->numExecAffinityParams : 0, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	struct sim_thread *thread = sim_thread();

	ENTER(sim_enter_driver());
	INVALID_IF(!ctx);
	if (!context_known(ctx) || ctx->primary)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!ctx->alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	context_settle(ctx);
	if (!ctx->alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	if (context_current() == ctx)
		thread->depth--;
	context_end(ctx);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	struct sim_thread *thread = sim_thread();

	ENTER(sim_enter_driver());
	INVALID_IF(!ctx);
	if (!context_known(ctx))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!ctx->alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	INVALID_IF(thread->depth == sizeof thread->stack / sizeof *thread->stack);
	thread->stack[thread->depth++] = ctx;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	struct sim_thread *thread = sim_thread();

	ENTER(sim_enter_driver());
	if (!thread->depth)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	thread->depth--;
	if (out)
		*out = thread->stack[thread->depth];
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	struct sim_thread *thread = sim_thread();

	ENTER(sim_enter_driver());
	if (!ctx) {
		thread->depth -= thread->depth > 0;
		return sim_leave(CUDA_SUCCESS);
	}
	if (!context_known(ctx))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!ctx->alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	thread->depth += thread->depth == 0;
	thread->stack[thread->depth - 1] = ctx;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
	ENTER(sim_enter_driver());
	INVALID_IF(!out);
	*out = context_current();
	return sim_leave(CUDA_SUCCESS);
}

/* The given context, or the current one for NULL; takes the lock on success. */
static CUresult enter_context(CUcontext *ctx)
{
	CUresult result;

	if (!*ctx)
		return sim_enter(ctx);
	result = sim_enter_driver();
	if (result)
		return result;
	if (!context_known(*ctx))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!(*ctx)->alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	ENTER(enter_context(&ctx));
	INVALID_IF(!device);
	*device = ctx->device;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	CUresult result = enter_context(&ctx);

	if (result)
		return result;
	result = capture_forbids_context(ctx);
	if (result)
		return sim_leave(result);
	context_wait(ctx);
	return sim_leave(ctx->fault);
}

CUresult cuCtxSynchronize(void)
{
	return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	ENTER(enter_context(&ctx));
	INVALID_IF(!version);
	*version = ctx->version;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	ENTER(enter_context(&ctx));
	INVALID_IF(!id);
	*id = ctx->id;
	return sim_leave(CUDA_SUCCESS);
}
