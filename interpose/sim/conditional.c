/*
 * Conditional nodes: graphs that run if a value says so.
 *
 * Kernels can't set the value here, so that it is what it was given when its handle was made: a
 * loop would not end, and is refused.
 */
#include <stdlib.h>

#include "driver.h"

struct condition {
	CUgraphConditionalHandle handle;
	CUgraph graph;
	unsigned value;
	struct condition *next;
};

static struct condition *conditions;
static CUgraphConditionalHandle last_handle;

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph graph, CUcontext ctx,
	unsigned int value, unsigned int flags)
{
	CUcontext current;
	CUresult result = sim_enter(&current);

	(void)ctx;
	if (result)
		return result;
	if (!out || !handle_is(graph, HANDLE_GRAPH) || flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	struct condition *c = sim_alloc(sizeof *c);
	c->handle = *out = ++last_handle;
	c->graph = graph;
	c->value = flags ? value : 0;
	c->next = conditions;
	conditions = c;
	return sim_leave(CUDA_SUCCESS);
}

static const struct condition *find(CUgraph graph, CUgraphConditionalHandle handle)
{
	const struct condition *c = conditions;

	while (c && (c->handle != handle || c->graph != graph))
		c = c->next;
	return c;
}

CUresult conditional_check(CUgraph graph, const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	bool two = p->type == CU_GRAPH_COND_TYPE_IF && p->size == 2;

	if (!find(graph, p->handle) || !p->size || (p->type != CU_GRAPH_COND_TYPE_SWITCH && p->size != 1 && !two))
		return CUDA_ERROR_INVALID_VALUE;
	if (p->type == CU_GRAPH_COND_TYPE_WHILE)
		return sim_unsupported("cuGraphAddNode of a loop");
	return CUDA_SUCCESS;
}

void conditional_make(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	unsigned value = find(node->graph, p->handle)->value;

	node->bodies = sim_alloc(p->size * sizeof *node->bodies);
	node->body_count = p->size;
	node->body_runs = p->type == CU_GRAPH_COND_TYPE_SWITCH ? value : !value;
	for (unsigned i = 0; i < p->size; i++) {
		node->bodies[i] = graph_make();
		node->bodies[i]->parent = node;
	}
	p->phGraph_out = node->bodies;
}
