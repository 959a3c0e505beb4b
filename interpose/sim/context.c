/*
 * Contexts: the stack of each thread, explicit and primary contexts, limits and peers.
 *
 * Invariant: a destroyed context's structure is kept, so that its handle is recognised as
 * destroyed for ever after; a primary context keeps one handle through all its lives.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define CONTEXT_FLAGS 0xffu
#define GREATEST_PRIORITY (-5)

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
		engine_wait(all_done, &(struct wait_until){ ctx, newest_op->seq });
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

static void context_start(CUcontext ctx, unsigned flags)
{
	ctx->flags = flags;
	ctx->alive = true;
	ctx->fault = CUDA_SUCCESS;
	ctx->id = ++last_id;
	ctx->version = 3020;
	ctx->peers = 0;
	ctx->cache = CU_FUNC_CACHE_PREFER_NONE;
	ctx->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
	ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
	ctx->limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0;
	LIST_INIT(&ctx->streams);
	LIST_INIT(&ctx->events);
	LIST_INIT(&ctx->modules);
	LIST_INIT(&ctx->arrays);
	LIST_INIT(&ctx->mipmaps);
	TAILQ_INIT(&ctx->pending);
	ctx->legacy = stream_make(ctx, CU_STREAM_DEFAULT, 0);
	ctx->legacy->legacy = true;
}

static CUcontext context_make(int device, unsigned flags)
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

static void context_end(CUcontext ctx)
{
	uint64_t end;

	ctx->alive = false;
	context_wait(ctx);
	engine_quiesce();
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

static bool flags_good(unsigned flags)
{
	unsigned schedule = flags & CU_CTX_SCHED_MASK;

	return !(flags & ~CONTEXT_FLAGS) && (schedule == 0 || !(schedule & (schedule - 1)));
}

/* ---- explicit contexts ---- */

static CUresult create(CUcontext *out, unsigned flags, CUdevice device)
{
	struct sim_thread *thread = sim_thread();
	CUresult result = sim_enter_driver();

	if (result)
		return result;
	if (!out || !flags_good(flags) || thread->depth == sizeof thread->stack / sizeof *thread->stack)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
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

CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *affinity, int count, unsigned flags,
	CUdevice device)
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
	CUresult result = sim_enter_driver();

	if (result)
		return result;
	if (!context_known(ctx) || ctx->primary)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
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
	CUresult result = sim_enter_driver();

	if (result)
		return result;
	if (!context_known(ctx))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!ctx->alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	if (thread->depth == sizeof thread->stack / sizeof *thread->stack)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	thread->stack[thread->depth++] = ctx;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	struct sim_thread *thread = sim_thread();
	CUresult result = sim_enter_driver();

	if (result)
		return result;
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
	CUresult result = sim_enter_driver();

	if (result)
		return result;
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
	CUresult result = sim_enter_driver();

	if (result)
		return result;
	if (!out)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*out = context_current();
	return sim_leave(CUDA_SUCCESS);
}

/* The given context, or the current one for NULL; takes the lock when there is one. */
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
	CUresult result = enter_context(&ctx);

	if (result)
		return result;
	if (!device)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
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
	CUresult result = enter_context(&ctx);

	if (result)
		return result;
	if (!version)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*version = ctx->version;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	CUresult result = enter_context(&ctx);

	if (result)
		return result;
	if (!id)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*id = ctx->id;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!flags)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = ctx->flags;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!flags_good(flags))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	ctx->flags = flags;
	return sim_leave(CUDA_SUCCESS);
}

/* ---- limits and preferences ---- */

static CUresult check_limit(CUlimit limit)
{
	switch (limit) {
	case CU_LIMIT_STACK_SIZE:
	case CU_LIMIT_PRINTF_FIFO_SIZE:
	case CU_LIMIT_MALLOC_HEAP_SIZE:
	case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
	case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
		return CUDA_SUCCESS;
	default:
		return limit >= 0 && limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT
			: CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = check_limit(limit);
	if (!result)
		ctx->limits[limit] = value;
	return sim_leave(result);
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = value ? check_limit(limit) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*value = ctx->limits[limit];
	return sim_leave(result);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!config)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*config = ctx->cache;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	ctx->cache = config;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!config)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*config = ctx->shared_config;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	/* Bank sizes are fixed on this architecture: accepted and without effect. */
	return sim_leave(config >= 0 && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
		? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (least)
		*least = 0;
	if (greatest)
		*greatest = GREATEST_PRIORITY;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	return result ? result : sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!affinity || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	return sim_leave(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
}

/* ---- peers ---- */

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (flags)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!context_alive(peer) || peer == ctx)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (peer->device == ctx->device)
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	if (ctx->peers >> peer->device & 1)
		return sim_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	ctx->peers |= 1ull << peer->device;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!context_alive(peer))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!(ctx->peers >> peer->device & 1))
		return sim_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	ctx->peers &= ~(1ull << peer->device);
	return sim_leave(CUDA_SUCCESS);
}

/* ---- primary contexts ---- */

static CUresult enter_primary(CUdevice device, struct sim_device **out)
{
	CUresult result = sim_enter_driver();

	*out = NULL;
	if (result)
		return result;
	if (!device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	*out = &sim_devices[device];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	struct sim_device *d;
	CUresult result = enter_primary(device, &d);

	if (result)
		return result;
	if (!out)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!d->primary) {
		d->primary = context_make(device, d->primary_flags);
		d->primary->primary = true;
	} else if (!d->primary->alive) {
		context_start(d->primary, d->primary_flags);
	}
	d->primary->retained++;
	*out = d->primary;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct sim_device *d;
	CUresult result = enter_primary(device, &d);

	if (result)
		return result;
	if (!d->primary || !d->primary->retained)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (--d->primary->retained == 0 && d->primary->alive)
		context_end(d->primary);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct sim_device *d;
	CUresult result = enter_primary(device, &d);

	if (result)
		return result;
	if (d->primary && d->primary->alive) {
		d->primary->retained = 0;
		context_end(d->primary);
	}
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	struct sim_device *d;
	CUresult result = enter_primary(device, &d);

	if (result)
		return result;
	if (!flags_good(flags))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	d->primary_flags = flags;
	if (d->primary && d->primary->alive)
		d->primary->flags = flags;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	struct sim_device *d;
	CUresult result = enter_primary(device, &d);

	if (result)
		return result;
	if (!flags || !active)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = d->primary_flags;
	*active = d->primary && d->primary->alive;
	return sim_leave(CUDA_SUCCESS);
}
