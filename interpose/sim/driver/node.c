/*
 * Nodes of graphs: adding them, reading and changing them, for all kinds alike.
 *
 * Invariant: a node may replace its work, but never changes it in place while anything else refers to it.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/node.h"

CUresult node_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
		  CUgraphNodeParams *params)
{
	CUcontext ctx;
	struct edge *deps = NULL;
	struct sim_work *work = NULL;
	CUgraph child = NULL;
	CUresult result = sim_enter(&ctx);

	if (result)
		return result;
	INVALID_IF(!out || !params);
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
	if (!result && params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		result = conditional_check(graph, &params->conditional);
	if (!result)
		result = graph_add(graph, params->type, work, child, deps, count, out);
	if (!result && params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		conditional_make(*out, &params->conditional);
	if (!result && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		params->alloc.dptr = work->pool.address;
	if (result)
		work_unref(work);
	if (result && child && child != params->graph.graph)
		graph_delete(child);
	free(deps);
	return sim_leave(result);
}

static CUresult enter_node(CUgraphNode node, CUgraphNodeType type, CUcontext *ctx)
{
	CUresult result = sim_enter(ctx);

	INVALID_IF(!result && (!handle_is(node, HANDLE_NODE) || node->type != type));
	return result;
}

CUresult node_get(CUgraphNode node, CUgraphNodeParams *params, bool wanted)
{
	CUcontext ctx;

	ENTER(enter_node(node, params->type, &ctx));
	return sim_leave(wanted ? node_params(node->work, params) : CUDA_ERROR_INVALID_VALUE);
}

/* Attributes of a kernel node stay when its parameters change. */
static void keep_attributes(const struct sim_work *old, struct sim_work *new)
{
	if (new->type != WORK_KERNEL)
		return;
	new->kernel.cooperative = old->kernel.cooperative;
	memcpy(new->kernel.cluster, old->kernel.cluster, sizeof new->kernel.cluster);
}

CUresult node_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
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
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
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

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
			   CUgraphNodeParams *params)
{
	return node_add(out, graph, nodes, data, count, params);
}

CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *nodes, size_t count, CUgraphNodeParams *params)
{
	return node_add(out, graph, nodes, NULL, count, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	return params ? node_set(NULL, node, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	return params && exec ? node_set(exec, node, params) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- attributes of kernel nodes ---- */

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue *value)
{
	CUcontext ctx;

	ENTER(enter_node(node, CU_GRAPH_NODE_TYPE_KERNEL, &ctx));
	INVALID_IF(!value);
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
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		break;
	default:
		return sim_leave(sim_unsupported("cuGraphKernelNodeGetAttribute of this attribute"));
	}
	return sim_leave(CUDA_SUCCESS);
}

/* A separate work item for the node, with the same launch. */
static CUresult detach(CUgraphNode node)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	struct sim_work *work;
	CUresult result = node_params(node->work, &params);

	if (!result)
		result = node_work(node->work->ctx, &params, &work);
	if (result)
		return result;
	keep_attributes(node->work, work);
	work_unref(node->work);
	node->work = work;
	return CUDA_SUCCESS;
}

static CUresult set_cluster(struct sim_work *work, const CUkernelNodeAttrValue *value)
{
	unsigned before[3];

	memcpy(before, work->kernel.cluster, sizeof before);
	work->kernel.cluster[0] = value->clusterDim.x;
	work->kernel.cluster[1] = value->clusterDim.y;
	work->kernel.cluster[2] = value->clusterDim.z;
	CUresult result = launch_check_cluster(work);
	if (result)
		memcpy(work->kernel.cluster, before, sizeof before);
	return result;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue *value)
{
	CUcontext ctx;
	CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_KERNEL, &ctx);

	if (result)
		return result;
	result = value ? detach(node) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		return sim_leave(result);
	switch (attribute) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		node->work->kernel.cooperative = value->cooperative != 0;
		break;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		result = set_cluster(node->work, value);
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
	INVALID_IF(!handle_is(to, HANDLE_NODE) || to->type != CU_GRAPH_NODE_TYPE_KERNEL);
	result = detach(to);
	if (!result)
		keep_attributes(from->work, to->work);
	return sim_leave(result);
}
