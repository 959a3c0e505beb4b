/*
 * Edges of graphs.
 *
 * Invariant: both nodes of an edge list it; edges never leave their graph.
 */
#include <stdlib.h>

#include "sim/driver/driver.h"

void edges_set(struct edges *e, const struct edge *items, size_t count)
{
	struct edge *copy = count ? sim_copy(items, count * sizeof *items) : NULL;

	free(e->items);
	e->items = copy;
	e->count = count;
}

size_t edges_find(const struct edges *e, CUgraphNode node)
{
	size_t i = 0;

	while (i < e->count && e->items[i].node != node)
		i++;
	return i;
}

static void edges_append(struct edges *e, struct edge item)
{
	e->items = realloc(e->items, (e->count + 1) * sizeof *e->items);
	if (!e->items)
		abort();
	e->items[e->count++] = item;
}

void edges_add(struct edges *e, const struct edge *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (edges_find(e, items[i].node) == e->count)
			edges_append(e, items[i]);
	}
}

/* The last one takes its position, as in NVIDIA's driver. */
static void edges_drop(struct edges *e, CUgraphNode node)
{
	size_t at = edges_find(e, node);

	if (at < e->count)
		e->items[at] = e->items[--e->count];
}

void edges_connect(CUgraphNode from, CUgraphNode to, CUgraphEdgeData data)
{
	if (!from->after.count)
		TAILQ_REMOVE(&from->graph->last, from, end);
	edges_append(&to->before, (struct edge){from, data});
	edges_append(&from->after, (struct edge){to, data});
}

void edges_disconnect(CUgraphNode from, CUgraphNode to)
{
	edges_drop(&to->before, from);
	edges_drop(&from->after, to);
	if (!from->after.count)
		TAILQ_INSERT_HEAD(&from->graph->last, from, end);
}

CUresult graph_edges_from(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count, struct edge **out)
{
	if (!handle_is(graph, HANDLE_GRAPH) || (count && !nodes))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (!handle_is(nodes[i], HANDLE_NODE) || nodes[i]->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
		for (size_t k = 0; k < i; k++) {
			if (nodes[k] == nodes[i])
				return CUDA_ERROR_INVALID_VALUE;
		}
	}
	*out = sim_alloc(count * sizeof **out);
	for (size_t i = 0; i < count; i++) {
		(*out)[i].node = nodes[i];
		if (data)
			(*out)[i].data = data[i];
	}
	return CUDA_SUCCESS;
}
