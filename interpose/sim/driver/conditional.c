/*
 * Conditional nodes: graphs that run if a value is set, or as long as it is.
 *
 * Kernels set the value. A launch may begin with the default value of the handle.
 */
#include <stdlib.h>

#include "sim/driver/driver.h"

struct condition {
	CUgraphConditionalHandle handle;
	CUgraph graph;
	bool assigned; /* at each launch */
	bool taken;
	unsigned first;
	_Atomic unsigned value;
	struct condition *next;
};

static struct condition *_Atomic conditions; /* never removed */
static CUgraphConditionalHandle last_handle;

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph graph, CUcontext ctx, unsigned int value,
					unsigned int flags)
{
	CUcontext current;
	CUresult result = sim_enter(&current);

	(void)ctx;
	if (result)
		return result;
	INVALID_IF(!out || !handle_is(graph, HANDLE_GRAPH) || flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT);
	struct condition *c = sim_alloc(sizeof *c);
	c->handle = *out = ++last_handle;
	c->graph = graph;
	c->assigned = flags;
	c->first = value;
	c->value = flags ? value : 0;
	c->next = conditions;
	conditions = c;
	return sim_leave(CUDA_SUCCESS);
}

/* A node of the graph, or of a graph that contains it. */
static struct condition *find(CUgraph graph, CUgraphConditionalHandle handle)
{
	struct condition *c = conditions;

	while (c && c->handle != handle)
		c = c->next;
	for (; c && graph; graph = graph->parent ? graph->parent->graph : NULL)
		if (c->graph == graph)
			return c;
	return NULL;
}

CUresult conditional_check(CUgraph graph, const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	bool two = p->type == CU_GRAPH_COND_TYPE_IF && p->size == 2;

	if (!find(graph, p->handle) || !p->size || (p->type != CU_GRAPH_COND_TYPE_SWITCH && p->size != 1 && !two))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

void conditional_make(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	node->bodies = sim_alloc(p->size * sizeof *node->bodies);
	node->body_count = p->size;
	node->condition = find(node->graph, p->handle);
	node->condition_type = p->type;
	for (unsigned i = 0; i < p->size; i++) {
		node->bodies[i] = graph_make();
		node->bodies[i]->parent = node;
	}
	p->phGraph_out = node->bodies;
}

bool conditional_is_any(struct condition *c)
{
	return c;
}

bool conditional_is_taken(struct condition *c)
{
	return c->taken;
}

bool conditional_take(struct condition *c)
{
	c->taken = true;
	return false;
}

bool conditional_give_back(struct condition *c)
{
	c->taken = false;
	return false;
}

bool conditional_begin(struct condition *c)
{
	if (c->assigned)
		c->value = c->first;
	return false;
}

unsigned conditional_body(const struct condition *c, CUgraphConditionalNodeType type, unsigned count)
{
	unsigned value = c->value, body = type == CU_GRAPH_COND_TYPE_SWITCH ? value : !value;

	return body < count ? body : count;
}

bool conditional_set(uint64_t handle, uint32_t value)
{
	for (struct condition *c = conditions; c; c = c->next)
		if (c->handle == handle) {
			c->value = value;
			return true;
		}
	return false;
}
