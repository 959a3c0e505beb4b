/*
 * Settings of a context: flags, limits, cache preferences, priorities and peer access.
 *
 * Invariant: a setting that has no effect here is checked like any other.
 */
#include "sim/driver/driver.h"

#define CONTEXT_FLAGS 0xffu
#define GREATEST_PRIORITY (-5)

void context_default_settings(CUcontext ctx)
{
	ctx->cache = CU_FUNC_CACHE_PREFER_NONE;
	ctx->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
	ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
	ctx->limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0;
}

/* ---- flags ---- */

bool context_flags_good(unsigned flags)
{
	unsigned schedule = flags & CU_CTX_SCHED_MASK;

	return !(flags & ~CONTEXT_FLAGS) && (schedule == 0 || !(schedule & (schedule - 1)));
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(!flags);
	*flags = ctx->flags;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(!context_flags_good(flags));
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
		return limit >= 0 && limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
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

	ENTER(sim_enter(&ctx));
	INVALID_IF(!config);
	*config = ctx->cache;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL);
	ctx->cache = config;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(!config);
	*config = ctx->shared_config;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	/* Bank sizes are fixed on this architecture: the call succeeds and has no effect. */
	return sim_leave(config >= 0 && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
											    : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
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

	ENTER(sim_enter(&ctx));
	INVALID_IF(!affinity || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX);
	return sim_leave(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
}

/* ---- peers ---- */

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	INVALID_IF(flags);
	if (!context_alive(peer))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (peer->device == ctx->device || sim_settings.apart)
		return sim_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	if (ctx->peers >> peer->device & 1)
		return sim_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	ctx->peers |= 1ull << peer->device;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUcontext ctx;

	ENTER(sim_enter(&ctx));
	if (!context_alive(peer))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!(ctx->peers >> peer->device & 1))
		return sim_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	ctx->peers &= ~(1ull << peer->device);
	return sim_leave(CUDA_SUCCESS);
}
