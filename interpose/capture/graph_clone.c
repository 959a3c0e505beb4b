/*
 * Copies graphs. See graph_clone.h for the invariant.
 */
#include "capture/graph_clone.h"

#include <stdlib.h>

#include "util/vector.h"

static int by_origin(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct cloned_node *)a)->of, y = (uintptr_t)((const struct cloned_node *)b)->of;

	return x < y ? -1 : x > y;
}

CUgraphNode graph_clone_node(const struct graph_clone *t, CUgraphNode of)
{
	const struct cloned_node *n = t->count ? bsearch(&(struct cloned_node){.of = of}, t->nodes, t->count, sizeof(*t->nodes),
							 by_origin)
					       : NULL;

	return n ? n->node : NULL;
}

/* Whether kernels may change the node: then only in the executable graph of the original. */
static bool changes_itself(CUgraphNode node)
{
	CUlaunchAttributeValue value = {0};

	return real.cuGraphKernelNodeGetAttribute &&
	       real.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
		       CUDA_SUCCESS &&
	       value.deviceUpdatableKernelNode.deviceUpdatable;
}

static bool add_graph(struct graph_clone *t, CUgraph of, CUgraph graph);

static bool add_node(struct graph_clone *t, CUgraphNode of, CUgraph graph)
{
	CUgraphNode node;
	CUgraphNodeType type;
	CUgraph inside, its;

	if (real.cuGraphNodeFindInClone(&node, of, graph) != CUDA_SUCCESS ||
	    real.cuGraphNodeGetType(of, &type) != CUDA_SUCCESS ||
	    !make_room(&t->nodes, &t->room, t->count, 1, sizeof(*t->nodes)))
		return false;
	t->nodes[t->count++] = (struct cloned_node){of, node};
	if (type == CU_GRAPH_NODE_TYPE_KERNEL)
		return !changes_itself(of);
	if (type != CU_GRAPH_NODE_TYPE_GRAPH)
		return true;
	return real.cuGraphChildGraphNodeGetGraph(of, &inside) == CUDA_SUCCESS &&
	       real.cuGraphChildGraphNodeGetGraph(node, &its) == CUDA_SUCCESS && add_graph(t, inside, its);
}

static bool add_graph(struct graph_clone *t, CUgraph of, CUgraph graph)
{
	size_t count = 0;

	if (real.cuGraphGetNodes(of, NULL, &count) != CUDA_SUCCESS)
		return false;
	CUgraphNode *nodes = calloc(count + 1, sizeof(*nodes));
	bool ok = nodes && (!count || real.cuGraphGetNodes(of, nodes, &count) == CUDA_SUCCESS);
	for (size_t i = 0; ok && i < count; i++)
		ok = add_node(t, nodes[i], graph);
	free(nodes);
	return ok;
}

bool graph_clone_make(struct graph_clone *t, CUgraph of)
{
	*t = (struct graph_clone){0};
	if (!real.cuGraphClone || !real.cuGraphNodeFindInClone || real.cuGraphClone(&t->graph, of) != CUDA_SUCCESS) {
		t->graph = NULL;
		return false;
	}
	if (!add_graph(t, of, t->graph))
		return false;
	qsort(t->nodes, t->count, sizeof(*t->nodes), by_origin);
	return true;
}

void graph_clone_free(struct graph_clone *t)
{
	if (t->graph)
		real.cuGraphDestroy(t->graph);
	free(t->nodes);
	*t = (struct graph_clone){0};
}

bool graph_clone_update(CUgraphExec exec, CUgraph with)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUgraphExecUpdateResult why;
	CUgraphNode node;

	return (real.cuGraphExecUpdate_v2 ? real.cuGraphExecUpdate_v2(exec, with, &info)
					  : real.cuGraphExecUpdate(exec, with, &node, &why)) == CUDA_SUCCESS;
}
