/*
 * Converts parameters of graph nodes to work and back.
 *
 * Invariant: all forms of a call, old and new, use CUgraphNodeParams, so any form of a query returns what
 * any form of the call has set.
 */
#include "sim/driver/node.h"

/* ---- parameters to work ---- */

static CUresult kernel_work(CUcontext ctx, const CUDA_KERNEL_NODE_PARAMS_v3 *p, struct sim_work **out)
{
	CUfunction f = p->func ? p->func : (CUfunction)p->kern;
	CUlaunchConfig config = {p->gridDimX,  p->gridDimY,       p->gridDimZ, p->blockDimX, p->blockDimY,
				 p->blockDimZ, p->sharedMemBytes, NULL,        NULL,         0};

	if (p->ctx)
		ctx = p->ctx;
	else if (handle_is(f, HANDLE_FUNCTION))
		ctx = f->module->ctx;
	if (!context_alive(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	return launch_work(ctx, &config, f, p->kernelParams, p->extra, out);
}

static CUresult memcpy_work(CUcontext ctx, const CUDA_MEMCPY3D *p, struct sim_work **out)
{
	bool pageable_src, pageable_dst;
	struct copy c = copy_from_3d(p);
	CUresult result = copy_check(ctx, &c, &pageable_src, &pageable_dst);

	if (!result)
		*out = copy_work(ctx, &c);
	return result;
}

static CUresult fill_work(CUcontext ctx, const CUDA_MEMSET_NODE_PARAMS_v2 *p, struct sim_work **out)
{
	unsigned element = p->elementSize;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if ((element == 1 || element == 2 || element == 4) && p->width && p->height)
		result = fill_check(ctx, p->dst, p->pitch, element, p->width, p->height);
	if (result)
		return result;
	*out = work_new(WORK_FILL, ctx);
	(*out)->fill.dst = p->dst;
	(*out)->fill.pitch = p->pitch;
	(*out)->fill.value = p->value;
	(*out)->fill.element = element;
	(*out)->fill.width = p->width;
	(*out)->fill.height = p->height;
	return CUDA_SUCCESS;
}

static CUresult event_work(enum work_type type, CUevent event, struct sim_work **out)
{
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_VALUE;
	*out = work_new(type, event->ctx);
	(*out)->event = event;
	event->refs++;
	return CUDA_SUCCESS;
}

static CUresult alloc_work(CUcontext ctx, const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *p, struct sim_work **out)
{
	const CUmemLocation *location = &p->poolProps.location;
	struct region *r;

	if (!p->bytesize || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p->poolProps.handleTypes ||
	    location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(location->id) ||
	    (p->accessDescCount && !p->accessDescs))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_allocation_fails())
		return CUDA_ERROR_OUT_OF_MEMORY;

	ENTER(pool_take(pool_default(location->id), NULL, p->bytesize, &r));
	*out = work_new(WORK_POOL_ALLOC, ctx);
	(*out)->pool.address = r->base;
	(*out)->pool.size = p->bytesize;
	(*out)->pool.properties = p->poolProps;
	(*out)->pool.access_count = p->accessDescCount;
	(*out)->pool.access = sim_copy(p->accessDescs, p->accessDescCount * sizeof *p->accessDescs);
	pool_keep_for_graph(r, *out);
	return CUDA_SUCCESS;
}

static CUresult free_work(CUcontext ctx, CUdeviceptr address, struct sim_work **out)
{
	struct region *r = region_of(address, REGION_POOL, NULL);

	if (!r || !r->of_graph)
		return CUDA_ERROR_INVALID_VALUE;
	*out = work_new(WORK_POOL_FREE, ctx);
	(*out)->pool.address = address;
	(*out)->pool.region = r->id;
	return CUDA_SUCCESS;
}

static CUresult memops_work(CUcontext ctx, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *p, struct sim_work **out)
{
	CUresult result = p->flags ? CUDA_ERROR_INVALID_VALUE : memops_check(ctx, p->count, p->paramArray);

	if (result)
		return result;
	*out = work_new(WORK_MEMOPS, ctx);
	(*out)->memops.count = p->count;
	(*out)->memops.ops = sim_copy(p->paramArray, p->count * sizeof *p->paramArray);
	return CUDA_SUCCESS;
}

/* The context that a node names, else the current one. */
static CUcontext named(CUcontext ctx, CUcontext current)
{
	return ctx ? ctx : current;
}

CUresult node_work(CUcontext ctx, const CUgraphNodeParams *p, struct sim_work **out)
{
	*out = NULL;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		ctx = named(p->memcpy.copyCtx, ctx);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		ctx = named(p->memset.ctx, ctx);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		ctx = named(p->memOp.ctx, ctx);
		break;
	default:
		break;
	}
	if (!context_alive(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_work(ctx, &p->kernel, out);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return memcpy_work(ctx, &p->memcpy.copyParams, out);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return fill_work(ctx, &p->memset, out);
	case CU_GRAPH_NODE_TYPE_HOST:
		if (!p->host.fn)
			return CUDA_ERROR_INVALID_VALUE;
		*out = work_new(WORK_HOST, ctx);
		(*out)->host.function = p->host.fn;
		(*out)->host.data = p->host.userData;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return event_work(WORK_WAIT_EVENT, p->eventWait.event, out);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return event_work(WORK_RECORD, p->eventRecord.event, out);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return alloc_work(ctx, &p->alloc, out);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return free_work(ctx, p->free.dptr, out);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return memops_work(ctx, &p->memOp, out);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return sim_unsupported("cuGraphAddNode of an external semaphore");
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- work to parameters ---- */

CUresult node_params(const struct sim_work *w, CUgraphNodeParams *p)
{
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		p->kernel = (CUDA_KERNEL_NODE_PARAMS_v3){.func = w->kernel.kernel ? NULL : w->kernel.function,
							 .kern = w->kernel.kernel,
							 .gridDimX = w->kernel.grid[0],
							 .gridDimY = w->kernel.grid[1],
							 .gridDimZ = w->kernel.grid[2],
							 .blockDimX = w->kernel.block[0],
							 .blockDimY = w->kernel.block[1],
							 .blockDimZ = w->kernel.block[2],
							 .sharedMemBytes = w->kernel.shared,
							 .kernelParams = w->kernel.pointers,
							 .ctx = w->ctx};
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		p->memcpy = (CUDA_MEMCPY_NODE_PARAMS){.copyCtx = w->ctx, .copyParams = copy_to_3d(&w->copy.copy)};
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		p->memset = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = w->fill.dst,
							 .pitch = w->fill.pitch,
							 .value = w->fill.value,
							 .elementSize = w->fill.element,
							 .width = w->fill.width,
							 .height = w->fill.height,
							 .ctx = w->ctx};
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_HOST:
		p->host = (CUDA_HOST_NODE_PARAMS_v2){.fn = w->host.function, .userData = w->host.data};
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		p->eventWait.event = w->event;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		p->eventRecord.event = w->event;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		p->alloc = (CUDA_MEM_ALLOC_NODE_PARAMS_v2){.poolProps = w->pool.properties,
							   .accessDescs = w->pool.access,
							   .accessDescCount = w->pool.access_count,
							   .bytesize = w->pool.size,
							   .dptr = w->pool.address};
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		p->free.dptr = w->pool.address;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		p->memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){
			.ctx = w->ctx, .count = w->memops.count, .paramArray = w->memops.ops};
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
