/*
 * The calls of each kind of node, in all their versions.
 *
 * Invariant: each only converts its parameters to the common form; the functions of node.h take the lock
 * and check.
 */
#include <string.h>

#include "sim/driver/node.h"

#define REQUIRE(pointer) do { if (!(pointer)) return sim_life() ? sim_life() : CUDA_ERROR_INVALID_VALUE; } while (0)

static CUgraphNodeParams of_kernel(const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	_Static_assert(sizeof *p == sizeof params.kernel, "the same members");
	memcpy(&params.kernel, p, sizeof *p);
	return params;
}

/* The oldest form ends before the members for a kernel and a context. */
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
	return node_add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_old_kernel(p);
	return node_add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUresult result = node_get(node, &params, p);

	if (!result)
		memcpy(p, &params.kernel, sizeof *p);
	return result;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUresult result = node_get(node, &params, p);

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
	return node_set(NULL, node, &params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_old_kernel(p);
	return node_set(NULL, node, &params);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
	const CUDA_KERNEL_NODE_PARAMS *p)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_kernel(p);
	return node_set(exec, node, &params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_old_kernel(p);
	return node_set(exec, node, &params);
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
	return node_add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMCPY };
	CUresult result = node_get(node, &params, p);

	if (!result)
		*p = params.memcpy.copyParams;
	return result;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_copy(p, NULL);
	return node_set(NULL, node, &params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_copy(p, ctx);
	return node_set(exec, node, &params);
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
	return node_add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMSET };
	CUresult result = node_get(node, &params, p);

	if (!result)
		memcpy(p, &params.memset, sizeof *p);
	return result;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_fill(p, NULL);
	return node_set(NULL, node, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_fill(p, ctx);
	return node_set(exec, node, &params);
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
	return node_add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_HOST };
	CUresult result = node_get(node, &params, p);

	if (!result)
		*p = (CUDA_HOST_NODE_PARAMS){ params.host.fn, params.host.userData };
	return result;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_host(p);
	return node_set(NULL, node, &params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_HOST_NODE_PARAMS *p)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_host(p);
	return node_set(exec, node, &params);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, CUgraph child)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = { .graph = child } };

	return node_add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return node_add(out, graph, nodes, NULL, count, &params);
}

/* Record and wait nodes differ only in kind: their parameter is the event. */
#define EVENT_NODES(Name, TYPE, member) \
	CUresult cuGraphAdd##Name##Node(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes, \
		size_t count, CUevent event) \
	{ \
		CUgraphNodeParams params = { .type = TYPE, .member = { event } }; \
		return node_add(out, graph, nodes, NULL, count, &params); \
	} \
	CUresult cuGraph##Name##NodeGetEvent(CUgraphNode node, CUevent *event) \
	{ \
		CUgraphNodeParams params = { .type = TYPE }; \
		CUresult result = node_get(node, &params, event); \
		if (!result) \
			*event = params.member.event; \
		return result; \
	} \
	CUresult cuGraph##Name##NodeSetEvent(CUgraphNode node, CUevent event) \
	{ \
		CUgraphNodeParams params = { .type = TYPE, .member = { event } }; \
		return node_set(NULL, node, &params); \
	} \
	CUresult cuGraphExec##Name##NodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) \
	{ \
		CUgraphNodeParams params = { .type = TYPE, .member = { event } }; \
		REQUIRE(exec); \
		return node_set(exec, node, &params); \
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
	return node_add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };
	CUresult result = node_get(node, &params, p);

	if (!result)
		*p = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ params.memOp.ctx, params.memOp.count,
			params.memOp.paramArray, params.memOp.flags };
	return result;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = of_memops(p);
	return node_set(NULL, node, &params);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
	const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	REQUIRE(p && exec);
	CUgraphNodeParams params = of_memops(p);
	return node_set(exec, node, &params);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	REQUIRE(p);
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	_Static_assert(sizeof *p == sizeof params.alloc, "the same members");
	memcpy(&params.alloc, p, sizeof *p);
	CUresult result = node_add(out, graph, nodes, NULL, count, &params);
	if (!result)
		p->dptr = params.alloc.dptr;
	return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUresult result = node_get(node, &params, p);

	if (!result)
		memcpy(p, &params.alloc, sizeof *p);
	return result;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes,
	size_t count, CUdeviceptr address)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = { address } };

	return node_add(out, graph, nodes, NULL, count, &params);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE };
	CUresult result = node_get(node, &params, address);

	if (!result)
		*address = params.free.dptr;
	return result;
}
