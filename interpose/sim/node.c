/*
 * Nodes of graphs: from parameters to work and back.
 *
 * Invariant: all forms of a call, old and new, come down to CUgraphNodeParams here, so a node
 * answers every form of the question with what any form of the call has set.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* ---- parameters to work ---- */

static CUresult kernel_work(CUcontext ctx, const CUDA_KERNEL_NODE_PARAMS_v3 *p,
	struct sim_work **out)
{
	CUfunction f = p->func ? p->func : (CUfunction)p->kern;
	CUlaunchConfig config = { p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY,
		p->blockDimZ, p->sharedMemBytes, NULL, NULL, 0 };

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

static CUresult fill_work(CUcontext ctx, const CUDA_MEMSET_NODE_PARAMS_v2 *p,
	struct sim_work **out)
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

static CUresult alloc_work(CUcontext ctx, const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *p,
	struct sim_work **out)
{
	const CUmemLocation *location = &p->poolProps.location;
	struct region *r;

	if (!p->bytesize || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED
		|| p->poolProps.handleTypes || location->type != CU_MEM_LOCATION_TYPE_DEVICE
		|| !device_valid(location->id) || (p->accessDescCount && !p->accessDescs))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_allocation_fails())
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = pool_take(pool_default(location->id), NULL, p->bytesize, &r);
	if (result)
		return result;
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

static CUresult memops_work(CUcontext ctx, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *p,
	struct sim_work **out)
{
	CUresult result = p->flags ? CUDA_ERROR_INVALID_VALUE : memops_check(ctx, p->count, p->paramArray);

	if (result)
		return result;
	*out = work_new(WORK_MEMOPS, ctx);
	(*out)->memops.count = p->count;
	(*out)->memops.ops = sim_copy(p->paramArray, p->count * sizeof *p->paramArray);
	return CUDA_SUCCESS;
}

/* The context a node names, else the current one. */
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
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return sim_unsupported("cuGraphAddNode of a conditional node");
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- work to parameters ---- */

CUresult node_params(const struct sim_work *w, CUgraphNodeParams *p)
{
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		p->kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
			.func = w->kernel.kernel ? NULL : w->kernel.function, .kern = w->kernel.kernel,
			.gridDimX = w->kernel.grid[0], .gridDimY = w->kernel.grid[1], .gridDimZ = w->kernel.grid[2],
			.blockDimX = w->kernel.block[0], .blockDimY = w->kernel.block[1],
			.blockDimZ = w->kernel.block[2], .sharedMemBytes = w->kernel.shared,
			.kernelParams = w->kernel.pointers, .ctx = w->ctx };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		p->memcpy = (CUDA_MEMCPY_NODE_PARAMS){ .copyCtx = w->ctx,
			.copyParams = copy_to_3d(&w->copy.copy) };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		p->memset = (CUDA_MEMSET_NODE_PARAMS_v2){ .dst = w->fill.dst, .pitch = w->fill.pitch,
			.value = w->fill.value, .elementSize = w->fill.element, .width = w->fill.width,
			.height = w->fill.height, .ctx = w->ctx };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_HOST:
		p->host = (CUDA_HOST_NODE_PARAMS_v2){ .fn = w->host.function, .userData = w->host.data };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		p->eventWait.event = w->event;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		p->eventRecord.event = w->event;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		p->alloc = (CUDA_MEM_ALLOC_NODE_PARAMS_v2){ .poolProps = w->pool.properties,
			.accessDescs = w->pool.access, .accessDescCount = w->pool.access_count,
			.bytesize = w->pool.size, .dptr = w->pool.address };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		p->free.dptr = w->pool.address;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		p->memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){ .ctx = w->ctx, .count = w->memops.count,
			.paramArray = w->memops.ops };
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- add, get and set, for all kinds ---- */

static CUresult add(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
	CUcontext ctx;
	struct edge *deps = NULL;
	struct sim_work *work = NULL;
	CUgraph child = NULL;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	if (!out || !params)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	result = graph_edges_from(graph, nodes, data, count, &deps);
	if (!result && params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		CUgraph given = params->graph.graph;
		if (!handle_is(given, HANDLE_GRAPH) || given == graph)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
			child = given->parent ? NULL : given;
		else
			result = graph_copy(given, &child);
		if (!result && !child)
			result = CUDA_ERROR_INVALID_VALUE;
	}
	if (!result)
		result = node_work(ctx, params, &work);
	if (!result)
		result = graph_add(graph, params->type, work, child, deps, count, out);
	if (!result && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		params->alloc.dptr = work->pool.address;
	free(deps);
	return sim_leave(result);
}

static CUresult enter_node(CUgraphNode node, CUgraphNodeType type, CUcontext *ctx)
{
	CUresult result = sim_enter(ctx);

	if (!result && (!handle_is(node, HANDLE_NODE) || node->type != type))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	return result;
}

static CUresult get(CUgraphNode node, CUgraphNodeParams *params, bool wanted)
{
	CUcontext ctx;
	CUresult result = enter_node(node, params->type, &ctx);

	if (result)
		return result;
	return sim_leave(wanted ? node_params(node->work, params) : CUDA_ERROR_INVALID_VALUE);
}

/* What is set for a kernel node beside its parameters outlives a change of those. */
static void keep_attributes(const struct sim_work *old, struct sim_work *new)
{
	if (new->type != WORK_KERNEL)
		return;
	new->kernel.cooperative = old->kernel.cooperative;
	memcpy(new->kernel.cluster, old->kernel.cluster, sizeof new->kernel.cluster);
}

/* In the graph's node, or with exec in the twin that it has there. */
static CUresult set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
	CUcontext ctx;
	struct sim_work *work;
	CUresult result = enter_node(node, params->type, &ctx);

	if (result)
		return result;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	default:
		result = node_work(ctx, params, &work);
	}
	if (result)
		return sim_leave(result);
	keep_attributes(node->work, work);
	if (exec) {
		result = exec_set_work(exec, node, work);
	} else {
		work_unref(node->work);
		node->work = work_ref(work);
	}
	work_unref(work);
	return sim_leave(result);
}

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
	return add(out, graph, nodes, data, count, params);
}

CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes, size_t count,
	CUgraphNodeParams *params)
{
	return add(out, graph, nodes, NULL, count, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	return params ? set(NULL, node, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	return params && exec ? set(exec, node, params) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the same for each kind; the lock's checks come with the calls above ---- */

#define REQUIRE(pointer) do { if (!(pointer)) return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE; } while (0)

static CUgraphNodeParams of_kernel(const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	_Static_assert(sizeof *p == sizeof params.kernel, "the same members");
	memcpy(&params.kernel, p, sizeof *p);
	return params;
}

/* The oldest form ends before the members that name a kernel and a context. */
static CUgraphNodeParams of_old_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS whole = { 0 };

	memcpy(&whole, p, sizeof *p);
	return of_kernel(&whole);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_KERNEL_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_kernel(p);
	return add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_old_kernel(p);
	return add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUresult result = get(node, &params, p);

	if (!result)
		memcpy(p, &params.kernel, sizeof *p);
	return result;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUresult result = get(node, &params, p);

	if (!result) {
		if (!params.kernel.func)
			params.kernel.func = (CUfunction)params.kernel.kern;
		memcpy(p, &params.kernel, sizeof *p);
	}
	return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_kernel(p);
	return set(NULL, node, &params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_old_kernel(p);
	return set(NULL, node, &params);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
	const CUDA_KERNEL_NODE_PARAMS *p)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_kernel(p);
	return set(exec, node, &params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_old_kernel(p);
	return set(exec, node, &params);
}

static CUgraphNodeParams of_copy(const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	return (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.memcpy = { .copyCtx = ctx, .copyParams = *p } };
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_copy(p, ctx);
	return add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMCPY };
	CUresult result = get(node, &params, p);

	if (!result)
		*p = params.memcpy.copyParams;
	return result;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_copy(p, NULL);
	return set(NULL, node, &params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_copy(p, ctx);
	return set(exec, node, &params);
}

static CUgraphNodeParams of_fill(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = { .ctx = ctx } };

	memcpy(&params.memset, p, sizeof *p);
	return params;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_fill(p, ctx);
	return add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMSET };
	CUresult result = get(node, &params, p);

	if (!result)
		memcpy(p, &params.memset, sizeof *p);
	return result;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_fill(p, NULL);
	return set(NULL, node, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_fill(p, ctx);
	return set(exec, node, &params);
}

static CUgraphNodeParams of_host(const CUDA_HOST_NODE_PARAMS *p)
{
	return (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_HOST,
		.host = { .fn = p->fn, .userData = p->userData } };
}

CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_HOST_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_host(p);
	return add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_HOST };
	CUresult result = get(node, &params, p);

	if (!result)
		*p = (CUDA_HOST_NODE_PARAMS){ params.host.fn, params.host.userData };
	return result;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_host(p);
	return set(NULL, node, &params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_HOST_NODE_PARAMS *p)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_host(p);
	return set(exec, node, &params);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, CUgraph child)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = { .graph = child } };

	return add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return add(out, graph, nodes, NULL, count, &params);
}

/* Record and wait nodes differ in the kind alone: their parameters are the event. */
#define EVENT_NODES(Name, TYPE, member) \
	CUresult cuGraphAdd##Name##Node(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes, \
		size_t count, CUevent event) \
	{ \
		CUgraphNodeParams params = { .type = TYPE, .member = { event } }; \
		return add(out, graph, nodes, NULL, count, &params); \
	} \
	CUresult cuGraph##Name##NodeGetEvent(CUgraphNode node, CUevent *event) \
	{ \
		CUgraphNodeParams params = { .type = TYPE }; \
		CUresult result = get(node, &params, event); \
		if (!result) \
			*event = params.member.event; \
		return result; \
	} \
	CUresult cuGraph##Name##NodeSetEvent(CUgraphNode node, CUevent event) \
	{ \
		CUgraphNodeParams params = { .type = TYPE, .member = { event } }; \
		return set(NULL, node, &params); \
	} \
	CUresult cuGraphExec##Name##NodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) \
	{ \
		CUgraphNodeParams params = { .type = TYPE, .member = { event } }; \
		REQUIRE(exec); \
		return set(exec, node, &params); \
	}

EVENT_NODES(EventRecord, CU_GRAPH_NODE_TYPE_EVENT_RECORD, eventRecord)
EVENT_NODES(EventWait, CU_GRAPH_NODE_TYPE_WAIT_EVENT, eventWait)

static CUgraphNodeParams of_memops(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	return (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
		.memOp = { p->ctx, p->count, p->paramArray, p->flags } };
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_memops(p);
	return add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };
	CUresult result = get(node, &params, p);

	if (!result)
		*p = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ params.memOp.ctx, params.memOp.count,
			params.memOp.paramArray, params.memOp.flags };
	return result;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_memops(p);
	return set(NULL, node, &params);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_memops(p);
	return set(exec, node, &params);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	_Static_assert(sizeof *p == sizeof params.alloc, "the same members");
	memcpy(&params.alloc, p, sizeof *p);
	CUresult result = add(out, graph, nodes, NULL, count, &params);
	if (!result)
		p->dptr = params.alloc.dptr;
	return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUresult result = get(node, &params, p);

	if (!result)
		memcpy(p, &params.alloc, sizeof *p);
	return result;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, CUdeviceptr address)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = { address } };

	return add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE };
	CUresult result = get(node, &params, address);

	if (!result)
		*address = params.free.dptr;
	return result;
}

/* ---- attributes of kernel nodes ---- */

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
	CUkernelNodeAttrValue *value)
{
	CUcontext ctx;
	CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_KERNEL, &ctx);

	if (result)
		return result;
	if (!value)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	memset(value, 0, sizeof *value);
	switch (attribute) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		value->cooperative = node->work->kernel.cooperative;
		break;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		value->clusterDim.x = node->work->kernel.cluster[0];
		value->clusterDim.y = node->work->kernel.cluster[1];
		value->clusterDim.z = node->work->kernel.cluster[2];
		break;
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		break;
	default:
		return sim_leave(sim_unsupported("cuGraphKernelNodeGetAttribute of this attribute"));
	}
	return sim_leave(CUDA_SUCCESS);
}

/* A work item of its own for the node, with the same launch. */
static void detach(CUgraphNode node)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	struct sim_work *work;

	node_params(node->work, &params);
	if (kernel_work(node->work->ctx, &params.kernel, &work))
		return;
	keep_attributes(node->work, work);
	work_unref(node->work);
	node->work = work;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
	const CUkernelNodeAttrValue *value)
{
	CUcontext ctx;
	CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_KERNEL, &ctx);

	if (result)
		return result;
	if (!value)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	detach(node);
	switch (attribute) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		node->work->kernel.cooperative = value->cooperative != 0;
		break;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		node->work->kernel.cluster[0] = value->clusterDim.x;
		node->work->kernel.cluster[1] = value->clusterDim.y;
		node->work->kernel.cluster[2] = value->clusterDim.z;
		result = launch_check_cluster(node->work);
		break;
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		break;
	default:
		result = sim_unsupported("cuGraphKernelNodeSetAttribute of this attribute");
	}
	return sim_leave(result);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	CUcontext ctx;
	CUresult result = enter_node(from, CU_GRAPH_NODE_TYPE_KERNEL, &ctx);

	if (result)
		return result;
	if (!handle_is(to, HANDLE_NODE) || to->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	detach(to);
	keep_attributes(from->work, to->work);
	return sim_leave(CUDA_SUCCESS);
}
