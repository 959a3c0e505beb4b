/*
 * Copies of graphs. See twin.h for the invariant.
 */
#include "capture/graph_clone.h"

#include <stdlib.h>

#include "util/vector.h"

static int by_origin(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct twin_node *)a)->of, y = (uintptr_t)((const struct twin_node *)b)->of;

	return x < y ? -1 : x > y;
}

CUgraphNode twin_of(const struct twin *t, CUgraphNode of)
{
	const struct twin_node *n = t->count ? bsearch(&(struct twin_node){.of = of}, t->nodes, t->count, sizeof(*t->nodes),
						       by_origin)
					     : NULL;

	return n ? n->node : NULL;
}

/* Kernels may change such a node, in the executable graph of the one that it was made for. */
static bool changes_itself(CUgraphNode node)
{
	CUlaunchAttributeValue value = {0};

	return real.cuGraphKernelNodeGetAttribute &&
	       real.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
		       CUDA_SUCCESS &&
	       value.deviceUpdatableKernelNode.deviceUpdatable;
}

static bool add_graph(struct twin *t, CUgraph of, CUgraph graph);

static bool add_node(struct twin *t, CUgraphNode of, CUgraph graph)
{
	CUgraphNode node;
	CUgraphNodeType type;
	CUgraph inside, its;

	if (real.cuGraphNodeFindInClone(&node, of, graph) != CUDA_SUCCESS ||
	    real.cuGraphNodeGetType(of, &type) != CUDA_SUCCESS ||
	    !make_room(&t->nodes, &t->room, t->count, 1, sizeof(*t->nodes)))
		return false;
	t->nodes[t->count++] = (struct twin_node){of, node};
	if (type == CU_GRAPH_NODE_TYPE_KERNEL)
		return !changes_itself(of);
	if (type != CU_GRAPH_NODE_TYPE_GRAPH)
		return true;
	return real.cuGraphChildGraphNodeGetGraph(of, &inside) == CUDA_SUCCESS &&
	       real.cuGraphChildGraphNodeGetGraph(node, &its) == CUDA_SUCCESS && add_graph(t, inside, its);
}

static bool add_graph(struct twin *t, CUgraph of, CUgraph graph)
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

bool twin_make(struct twin *t, CUgraph of)
{
	*t = (struct twin){0};
	if (!real.cuGraphClone || !real.cuGraphNodeFindInClone || real.cuGraphClone(&t->graph, of) != CUDA_SUCCESS) {
		t->graph = NULL;
		return false;
	}
	if (!add_graph(t, of, t->graph))
		return false;
	qsort(t->nodes, t->count, sizeof(*t->nodes), by_origin);
	return true;
}

void twin_free(struct twin *t)
{
	if (t->graph)
		real.cuGraphDestroy(t->graph);
	free(t->nodes);
	*t = (struct twin){0};
}
