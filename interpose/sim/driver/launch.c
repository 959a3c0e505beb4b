/*
 * Kernel launches and occupancy.
 *
 * Invariant: the call refuses a launch that a real device would refuse; parameters are copied during the
 * call.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"
#include "sim_trace.h"

#define MAX_THREADS 1024u
#define MAX_CLUSTER 8u
#define MAX_LARGE_CLUSTER 16u

/* ---- limits ---- */

static int limit(CUdevice_attribute attribute)
{
	return device_attribute(attribute, 0);
}

/* Blocks of one kernel that fit on a multiprocessor at once. */
static int blocks_per_processor(const struct CUfunc_st *f, unsigned threads, size_t dynamic)
{
	if (!threads || threads > MAX_THREADS)
		return 0;
	unsigned rounded = ROUND_UP(threads, 32u);
	unsigned registers = f->info->registers ? ROUND_UP(f->info->registers, 8u) : 8;
	size_t shared = f->info->shared_bytes + dynamic + (size_t)limit(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
	size_t blocks = (size_t)limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
	size_t others[] = {
		(size_t)limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / rounded,
		(size_t)limit(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) / (registers * rounded),
		(size_t)limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / shared,
	};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		blocks = others[i] < blocks ? others[i] : blocks;
	return (int)blocks;
}

static CUresult check_shape(const struct CUfunc_st *f, const CUlaunchConfig *c)
{
	uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;

	if (!c->gridDimX || !c->gridDimY || !c->gridDimZ || !threads ||
	    c->gridDimX > (unsigned)limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) ||
	    c->gridDimY > (unsigned)limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) ||
	    c->gridDimZ > (unsigned)limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) || c->blockDimX > MAX_THREADS ||
	    c->blockDimY > MAX_THREADS || c->blockDimZ > (unsigned)limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) ||
	    threads > MAX_THREADS || threads > f->info->max_threads || c->sharedMemBytes > (unsigned)f->dynamic_shared_max)
		return CUDA_ERROR_INVALID_VALUE;
	if (threads * f->info->registers > (unsigned)limit(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK))
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	return CUDA_SUCCESS;
}

CUresult launch_check_cluster(const struct sim_work *work)
{
	const unsigned *grid = work->kernel.grid, *cluster = work->kernel.cluster;
	unsigned most = work->kernel.function->large_clusters ? MAX_LARGE_CLUSTER : MAX_CLUSTER;

	if (!cluster[0] && !cluster[1] && !cluster[2])
		return CUDA_SUCCESS;
	if (work->kernel.function->info->cluster[0] &&
	    memcmp(cluster, work->kernel.function->info->cluster, sizeof work->kernel.cluster) != 0)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	if (!cluster[0] || !cluster[1] || !cluster[2] || (uint64_t)cluster[0] * cluster[1] * cluster[2] > most ||
	    grid[0] % cluster[0] || grid[1] % cluster[1] || grid[2] % cluster[2])
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return CUDA_SUCCESS;
}

static CUresult check_cooperative(const struct sim_work *w)
{
	unsigned threads = w->kernel.block[0] * w->kernel.block[1] * w->kernel.block[2];
	uint64_t blocks = (uint64_t)w->kernel.grid[0] * w->kernel.grid[1] * w->kernel.grid[2];
	uint64_t room = (uint64_t)blocks_per_processor(w->kernel.function, threads, w->kernel.shared) *
			(uint64_t)limit(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);

	return w->kernel.cooperative && blocks > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

/* ---- making work of a launch ---- */

static CUresult copy_params(struct sim_work *w, void **params, void **extra)
{
	const ptx_function_info *info = w->kernel.function->info;
	const void *buffer = NULL;
	size_t size = 0;

	w->kernel.params = sim_alloc(info->param_bytes);
	w->kernel.pointers = sim_alloc(info->param_count * sizeof *w->kernel.pointers);
	for (size_t i = 0; i < info->param_count; i++)
		w->kernel.pointers[i] = w->kernel.params + info->params[i].offset;
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; params && i < info->param_count; i++) {
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(w->kernel.pointers[i], params[i], info->params[i].size);
	}
	if (params || !info->param_count)
		return CUDA_SUCCESS;
	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(const size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!buffer)
		return CUDA_ERROR_INVALID_VALUE;
	/* A short buffer is no error; the rest of the parameters is undefined. */
	if (size < info->param_bytes)
		storage_garbage(w->kernel.params, info->param_bytes);
	memcpy(w->kernel.params, buffer, size < info->param_bytes ? size : info->param_bytes);
	return CUDA_SUCCESS;
}

static CUresult apply_attribute(struct sim_work *w, const CUlaunchAttribute *a)
{
	switch (a->id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		w->kernel.cooperative = a->value.cooperative != 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		w->kernel.cluster[0] = a->value.clusterDim.x;
		w->kernel.cluster[1] = a->value.clusterDim.y;
		w->kernel.cluster[2] = a->value.clusterDim.z;
		return CUDA_SUCCESS;
	/*
	 * Attributes that affect speed or placement, or when the next launch may begin: the order allows
	 * all of them.
	 */
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		return CUDA_SUCCESS;
	default:
		return sim_unsupported("cuLaunchKernelEx with this attribute");
	}
}

CUresult launch_work(CUcontext ctx, const CUlaunchConfig *config, CUfunction handle, void **params, void **extra,
		     struct sim_work **out)
{
	CUfunction f;
	CUresult result = function_get(ctx, handle, &f);

	if (result)
		return result;
	if (f->module->ctx != ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	result = check_shape(f, config);
	if (result)
		return result;
	struct sim_work *w = work_new(WORK_KERNEL, ctx);
	w->kernel.function = f;
	w->kernel.kernel = handle == f ? NULL : (CUkernel)handle;
	memcpy(w->kernel.grid, (unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ}, sizeof w->kernel.grid);
	memcpy(w->kernel.block, (unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ}, sizeof w->kernel.block);
	w->kernel.shared = config->sharedMemBytes;
	for (unsigned i = 0; i < config->numAttrs && !result; i++)
		result = apply_attribute(w, &config->attrs[i]);
	if (!result && !w->kernel.cluster[0])
		memcpy(w->kernel.cluster, f->info->cluster, sizeof w->kernel.cluster);
	if (!result)
		result = launch_check_cluster(w);
	if (!result)
		result = check_cooperative(w);
	if (!result)
		result = copy_params(w, params, extra);
	if (result)
		work_unref(w);
	else
		*out = w;
	return result;
}

/* ---- tracing ---- */

static __thread struct tt_sim_trace *next_trace;

struct tt_sim_trace *launch_trace(const struct tt_sim_trace *trace)
{
	struct tt_sim_trace *copy = sim_alloc(sizeof *copy + trace->line_count);
	uint8_t *lines = (uint8_t *)(copy + 1);

	*copy = *trace;
	if (trace->line_count)
		memcpy(lines, trace->lines, trace->line_count);
	copy->lines = lines;
	return copy;
}

__attribute__((visibility("default"))) void ttSimTraceNext(const struct tt_sim_trace *trace)
{
	free(next_trace);
	next_trace = launch_trace(trace);
}

__attribute__((visibility("default"))) char *ttSimText(CUfunction f)
{
	CUcontext ctx;
	char *text = NULL;

	pthread_mutex_lock(&sim_mutex);
	if ((ctx = context_current()) && function_get(ctx, f, &f) == CUDA_SUCCESS)
		text = strdup(f->module->text);
	pthread_mutex_unlock(&sim_mutex);
	return text;
}

static struct tt_sim_trace *take_trace(void)
{
	struct tt_sim_trace *trace = next_trace;

	next_trace = NULL;
	return trace;
}

/* ---- launching ---- */

/* Events that a launch attribute records. */
static CUresult record_events(const CUlaunchConfig *config, struct sim_op *op)
{
	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *a = &config->attrs[i];
		CUevent event = NULL;
		if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
			event = a->value.programmaticEvent.event;
		else if (a->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			event = a->value.launchCompletionEvent.event;
		else
			continue;
		if (!handle_is(event, HANDLE_EVENT))
			return CUDA_ERROR_INVALID_HANDLE;
		if (!op)
			return sim_unsupported("capture of a launch that records events");
		event_recorded(event, op);
	}
	return CUDA_SUCCESS;
}

static CUresult submit(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	CUcontext ctx;
	CUstream stream;
	struct sim_work *work;
	struct sim_op *op;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	INVALID_IF(!config || (config->numAttrs && !config->attrs));
	result = stream_get(ctx, config->hStream, &stream);
	if (!result && stream->capture && stream->capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!result) {
		result = launch_work(stream->ctx, config, f, params, extra, &work);
		if (result == CUDA_ERROR_INVALID_VALUE && stream->capture)
			capture_invalidate(stream->capture);
	}
	if (!result && !stream->capture) {
		function_load(work->kernel.function);
		work->kernel.trace = take_trace();
	}
	if (!result)
		result = stream_submit(stream, work, &op);
	if (!result)
		result = record_events(config, op);
	if (!result && sim_settings.blocking && !stream->capture) {
		stream_wait(stream);
		result = stream->ctx->fault;
	}
	return sim_leave(result);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	CUresult result = submit(config, f, params, extra);

	if (result)
		free(take_trace());
	return result;
}

static CUresult launch(CUfunction f, const unsigned grid[3], const unsigned block[3], unsigned shared, CUstream stream,
		       void **params, void **extra, bool cooperative)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
	CUlaunchConfig config = {grid[0],  grid[1], grid[2], block[0],   block[1],
				 block[2], shared,  stream,  &attribute, cooperative};

	return cuLaunchKernelEx(&config, f, params, extra);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
			unsigned int bz, unsigned int shared, CUstream stream, void **params, void **extra)
{
	return launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, params, extra, false);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
				   unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params)
{
	return launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, params, NULL, true);
}

/* ---- occupancy ---- */

static CUresult enter_function(CUfunction *f)
{
	CUcontext ctx;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	result = function_get(ctx, *f, f);
	return result ? sim_leave(result) : CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction f, int block_size, size_t shared,
							      unsigned int flags)
{
	ENTER(enter_function(&f));
	INVALID_IF(!blocks || block_size <= 0 || flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE);
	*blocks = blocks_per_processor(f, (unsigned)block_size, shared);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int block_size, size_t shared)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, block_size, shared, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block_size, CUfunction f, CUoccupancyB2DSize shared_of,
						   size_t shared, int most, unsigned int flags)
{
	int best = 0, best_threads = 0, blocks;
	CUresult result = enter_function(&f);

	if (result)
		return result;
	INVALID_IF(!min_grid || !block_size || flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE);
	int threads = (int)f->info->max_threads;
	sim_leave(CUDA_SUCCESS);
	if (most > 0 && most < threads)
		threads = most;
	/* The caller's function runs without the lock. */
	for (threads = (int)ROUND_UP((unsigned)threads, 32u); threads > 0; threads -= 32) {
		size_t dynamic = shared_of ? shared_of(threads) : shared;
		result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, dynamic);
		if (result)
			return result;
		if (blocks * threads > best * best_threads) {
			best = blocks;
			best_threads = threads;
		}
	}
	*min_grid = best * limit(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	*block_size = best_threads;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *min_grid, int *block_size, CUfunction f, CUoccupancyB2DSize shared_of,
					  size_t shared, int most)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid, block_size, f, shared_of, shared, most,
							 CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *shared, CUfunction f, int blocks, int block_size)
{
	ENTER(enter_function(&f));
	INVALID_IF(!shared || blocks <= 0 || block_size <= 0 || blocks > blocks_per_processor(f, (unsigned)block_size, 0));
	size_t each = (size_t)limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / (size_t)blocks;
	size_t most = (size_t)limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	size_t taken = f->info->shared_bytes + (size_t)limit(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
	each = each > taken ? each - taken : 0;
	*shared = each < most ? each : most;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction f, const CUlaunchConfig *config)
{
	ENTER(enter_function(&f));
	INVALID_IF(!size || !config);
	*size = f->large_clusters ? (int)MAX_LARGE_CLUSTER : (int)MAX_CLUSTER;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction f, const CUlaunchConfig *config)
{
	unsigned size = 1;

	ENTER(enter_function(&f));
	INVALID_IF(!clusters || !config || (config->numAttrs && !config->attrs));
	for (unsigned i = 0; i < config->numAttrs; i++) {
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			size = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
			       config->attrs[i].value.clusterDim.z;
	}
	if (!size || size > MAX_LARGE_CLUSTER)
		return sim_leave(CUDA_ERROR_INVALID_CLUSTER_SIZE);
	int blocks = blocks_per_processor(f, config->blockDimX * config->blockDimY * config->blockDimZ, config->sharedMemBytes);
	*clusters = blocks * limit(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) / (int)size;
	return sim_leave(CUDA_SUCCESS);
}
