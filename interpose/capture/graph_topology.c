/*
 * Reads the topology of a graph. See graph_topology.h for the invariant.
 */
#include "capture/graph_topology.h"

#include <stdlib.h>
#include <string.h>

#include "inspect/graphs.h"
#include "util/vector.h"

#define FORM 0x9e3779b185ebca87ull

struct topology_node {
	CUgraphNode node;
	uint32_t position, before, after; /* edges: incoming and outgoing */
};

static int by_handle(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct topology_node *)a)->node,
		  y = (uintptr_t)((const struct topology_node *)b)->node;

	return x < y ? -1 : x > y;
}

static struct topology_node *find_node(const struct topology *g, CUgraphNode node)
{
	return bsearch(&(struct topology_node){.node = node}, g->sorted, g->count, sizeof(*g->sorted), by_handle);
}

static uint32_t position_of(const struct topology *g, CUgraphNode node)
{
	return find_node(g, node)->position;
}

static void topology_free(struct topology *g)
{
	free(g->nodes);
	free(g->from);
	free(g->to);
	free(g->sorted);
}

/* With edge data: the call without it refuses graphs that have any. */
static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *n)
{
	return real.cuGraphGetEdges_v2 ? real.cuGraphGetEdges_v2(graph, from, to, data, n)
				       : real.cuGraphGetEdges(graph, from, to, n);
}

static bool read_edges(struct topology *g, CUgraph graph)
{
	CUgraphEdgeData *data;

	if (get_edges(graph, NULL, NULL, NULL, &g->edges) != CUDA_SUCCESS)
		return false;
	g->from = calloc(g->edges + 1, sizeof(*g->from));
	g->to = calloc(g->edges + 1, sizeof(*g->to));
	data = calloc(g->edges + 1, sizeof(*data));
	bool ok = g->from && g->to && data && (!g->edges || get_edges(graph, g->from, g->to, data, &g->edges) == CUDA_SUCCESS);
	free(data);
	return ok;
}

static bool count_edges(struct topology *g)
{
	for (size_t i = 0; i < g->edges; i++) {
		struct topology_node *from = find_node(g, g->from[i]), *to = find_node(g, g->to[i]);
		if (!from || !to)
			return false;
		from->after++;
		to->before++;
	}
	return true;
}

static CUresult get_before(CUgraphNode node, CUgraphNode *before, CUgraphEdgeData *data, size_t *n)
{
	if (real.cuGraphNodeGetDependencies_v2)
		return real.cuGraphNodeGetDependencies_v2(node, before, data, n);
	return real.cuGraphNodeGetDependencies ? real.cuGraphNodeGetDependencies(node, before, n) : CUDA_ERROR_NOT_SUPPORTED;
}

/* Sets the node's position, unless it has one. */
static bool set_position(struct topology *g, CUgraphNode node, CUgraphNode *order, size_t *n)
{
	struct topology_node *p = find_node(g, node);

	if (p && p->position == UINT32_MAX) {
		p->position = (uint32_t)*n;
		order[(*n)++] = node;
	}
	return p;
}

static void add_to_form(struct topology *g, uint64_t value)
{
	g->form = (g->form ^ value) * FORM;
}

/*
 * Orders nodes as drivers do: first those without successors, then the predecessors of each, in the order of their
 * edges. Sorts the edges in the same order.
 */
static bool put_in_order(struct topology *g)
{
	CUgraphNode *order = malloc(g->count * sizeof(*order));
	CUgraphEdgeData *data = malloc((g->edges + 1) * sizeof(*data));
	bool ok = order && data && count_edges(g);
	size_t n = 0, edges = 0;

	for (size_t i = 0; ok && i < g->count; i++)
		if (!find_node(g, g->nodes[i])->after)
			set_position(g, g->nodes[i], order, &n);
	for (size_t i = 0; ok && i < n; i++) {
		size_t before = find_node(g, order[i])->before, end = edges + before;
		add_to_form(g, before);
		ok = !before || get_before(order[i], g->from + edges, data, &before) == CUDA_SUCCESS;
		for (; ok && edges < end; edges++) {
			g->to[edges] = order[i];
			if ((ok = set_position(g, g->from[edges], order, &n)))
				add_to_form(g, position_of(g, g->from[edges]));
		}
	}
	ok = ok && n == g->count && edges == g->edges;
	if (ok)
		memcpy(g->nodes, order, n * sizeof(*order));
	free(order);
	free(data);
	return ok;
}

static bool topology_read(struct topology *g, CUgraph graph)
{
	*g = (struct topology){0};
	if (real.cuGraphGetNodes(graph, NULL, &g->count) != CUDA_SUCCESS)
		return false;
	if (!g->count)
		return true;
	g->nodes = calloc(g->count, sizeof(*g->nodes));
	g->sorted = calloc(g->count, sizeof(*g->sorted));
	if (!g->nodes || !g->sorted || real.cuGraphGetNodes(graph, g->nodes, &g->count) != CUDA_SUCCESS ||
	    !read_edges(g, graph))
		return false;
	for (size_t i = 0; i < g->count; i++)
		g->sorted[i] = (struct topology_node){.node = g->nodes[i], .position = UINT32_MAX};
	qsort(g->sorted, g->count, sizeof(*g->sorted), by_handle);
	return put_in_order(g);
}

uint32_t *topology_order(const struct topology *g)
{
	uint32_t *order = malloc(g->count * sizeof(*order)), *before = calloc(g->count, sizeof(*before));
	uint32_t *first = calloc(g->count + 1, sizeof(*first)), *to = malloc((g->edges + 1) * sizeof(*to));
	size_t n = 0;

	if (!order || !before || !first || !to)
		goto out;
	for (size_t i = 0; i < g->edges; i++) {
		before[position_of(g, g->to[i])]++;
		first[position_of(g, g->from[i]) + 1]++;
	}
	for (size_t i = 0; i < g->count; i++)
		first[i + 1] += first[i];
	for (size_t i = g->edges; i-- > 0;)
		to[--first[position_of(g, g->from[i]) + 1]] = position_of(g, g->to[i]);
	/* first[p + 1] is now the start of the edges of p, and first[p + 2] their end. */
	for (size_t i = 0; i < g->count; i++)
		if (!before[i])
			order[n++] = (uint32_t)i;
	for (size_t i = 0; i < n; i++) {
		size_t from = first[order[i] + 1], end = order[i] + 2 <= g->count ? first[order[i] + 2] : g->edges;
		for (size_t k = from; k < end; k++)
			if (!--before[to[k]])
				order[n++] = to[k];
	}
out:
	free(before);
	free(first);
	free(to);
	if (n < g->count) {
		free(order);
		return NULL;
	}
	return order;
}

/* ---- child graphs ---- */

static bool add_graph(struct graph_tree *t, CUgraph graph, uint32_t parent, uint32_t owner, bool body)
{
	if (!make_room(&t->graphs, &t->room, t->count, 1, sizeof(*t->graphs)))
		return false;
	struct subgraph *s = &t->graphs[t->count++];
	s->handle = graph;
	s->body = body;
	s->parent = parent;
	s->owner = owner;
	if (!topology_read(&s->g, graph))
		return false;
	t->form = (((t->form ^ s->g.form) * FORM ^ parent) * FORM ^ owner) * FORM;
	return true;
}

/* Bodies inside other graphs are left out. */
static bool add_bodies(struct graph_tree *t, uint32_t parent, uint32_t position)
{
	CUgraph bodies[BODIES_MOST];
	uint32_t count = parent ? 0 : graph_bodies(t->graphs[parent].g.nodes[position], bodies, BODIES_MOST);

	t->conditional = true;
	for (uint32_t i = 0; i < count; i++)
		if (!add_graph(t, bodies[i], parent, position, true))
			return false;
	return true;
}

/* Adds the graphs of a graph's nodes. */
static bool add_children(struct graph_tree *t, uint32_t parent)
{
	CUgraphNodeType type;
	CUgraph graph;

	for (uint32_t i = 0; i < t->graphs[parent].g.count; i++) {
		CUgraphNode node = t->graphs[parent].g.nodes[i];
		if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
			return false;
		if (type == CU_GRAPH_NODE_TYPE_GRAPH && (real.cuGraphChildGraphNodeGetGraph(node, &graph) != CUDA_SUCCESS ||
							 !add_graph(t, graph, parent, i, false)))
			return false;
		if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL && !add_bodies(t, parent, i))
			return false;
	}
	return true;
}

bool graph_tree_read(struct graph_tree *t, CUgraph graph)
{
	*t = (struct graph_tree){0};
	bool ok = add_graph(t, graph, 0, 0, false);

	for (uint32_t i = 0; ok && i < t->count; i++)
		ok = add_children(t, i);
	return ok;
}

void graph_tree_free(struct graph_tree *t)
{
	for (size_t i = 0; i < t->count; i++)
		topology_free(&t->graphs[i].g);
	free(t->graphs);
	*t = (struct graph_tree){0};
}

uint32_t graph_tree_child(const struct graph_tree *t, uint32_t parent, uint32_t position, uint32_t before)
{
	for (uint32_t i = before + 1; i < t->count; i++)
		if (t->graphs[i].parent == parent && t->graphs[i].owner == position)
			return i;
	return 0;
}

bool graph_tree_allocates(const struct graph_tree *t)
{
	CUgraphNodeType type;

	for (size_t i = 0; i < t->count; i++)
		for (size_t n = 0; n < t->graphs[i].g.count; n++)
			if (real.cuGraphNodeGetType(t->graphs[i].g.nodes[n], &type) != CUDA_SUCCESS ||
			    type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE)
				return true;
	return false;
}
