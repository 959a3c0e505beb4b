/*
 * Graphs: nodes, and queries about nodes and edges.
 *
 * Invariant: a child graph belongs only to its node.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

static unsigned long long last_graph, last_node;

/* ---- graphs and nodes ---- */

CUgraph graph_make(void)
{
	CUgraph graph = sim_alloc(sizeof *graph);

	TAILQ_INIT(&graph->nodes);
	TAILQ_INIT(&graph->last);
	graph->id = graph_next_number();
	handle_add(graph, HANDLE_GRAPH);
	return graph;
}

unsigned graph_next_number(void)
{
	return (unsigned)++last_graph;
}

static void node_delete(CUgraphNode node)
{
	while (node->before.count)
		edges_disconnect(node->before.items[0].node, node);
	while (node->after.count)
		edges_disconnect(node, node->after.items[0].node);
	TAILQ_REMOVE(&node->graph->last, node, end);
	TAILQ_REMOVE(&node->graph->nodes, node, all);
	node->graph->count--;
	handle_remove(node);
	work_unref(node->work);
	if (node->child)
		graph_delete(node->child);
	for (unsigned i = 0; i < node->body_count; i++)
		graph_delete(node->bodies[i]);
	free(node->bodies);
	free(node->before.items);
	free(node->after.items);
	free(node);
}

void graph_delete(CUgraph graph)
{
	CUgraphNode node;

	/* From the end, where few nodes have dependents. */
	while ((node = TAILQ_LAST(&graph->nodes, node_list)))
		node_delete(node);
	user_references_release(graph->objects, graph->object_count);
	handle_remove(graph);
	free(graph->objects);
	free(graph);
}

CUgraphNodeType work_node_type(const struct sim_work *work)
{
	switch (work->type) {
	case WORK_KERNEL:
		return CU_GRAPH_NODE_TYPE_KERNEL;
	case WORK_COPY:
		return CU_GRAPH_NODE_TYPE_MEMCPY;
	case WORK_FILL:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	case WORK_HOST:
		return CU_GRAPH_NODE_TYPE_HOST;
	case WORK_RECORD:
		return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	case WORK_WAIT_EVENT:
		return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
	case WORK_POOL_ALLOC:
		return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	case WORK_POOL_FREE:
		return CU_GRAPH_NODE_TYPE_MEM_FREE;
	case WORK_MEMOPS:
		return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	default:
		return CU_GRAPH_NODE_TYPE_EMPTY;
	}
}

CUresult graph_add(CUgraph graph, CUgraphNodeType type, struct sim_work *work, CUgraph child, const struct edge *deps,
		   size_t count, CUgraphNode *out)
{
	CUgraphNode node = sim_alloc(sizeof *node);

	node->graph = graph;
	node->type = type;
	node->work = work;
	node->child = child;
	node->id = ++last_node;
	node->number = graph->made++;
	if (child)
		child->parent = node;
	TAILQ_INSERT_HEAD(&graph->last, node, end);
	for (size_t i = 0; i < count; i++)
		edges_connect(deps[i].node, node, deps[i].data);
	TAILQ_INSERT_TAIL(&graph->nodes, node, all);
	graph->count++;
	handle_add(node, HANDLE_NODE);
	*out = node;
	return CUDA_SUCCESS;
}

CUgraphNode *graph_order(CUgraph graph)
{
	CUgraphNode *order = sim_alloc(graph->count * sizeof *order), node;
	size_t known = 0;

	/* mark counts the dependencies that are left. */
	TAILQ_FOREACH(node, &graph->nodes, all)
	{
		node->mark = node->before.count;
		if (!node->mark)
			order[known++] = node;
	}
	for (size_t i = 0; i < known; i++) {
		for (size_t k = 0; k < order[i]->after.count; k++) {
			node = order[i]->after.items[k].node;
			if (--node->mark == 0)
				order[known++] = node;
		}
	}
	if (known == graph->count)
		return order;
	free(order);
	return NULL;
}

CUresult graph_copy(CUgraph graph, CUgraph *out)
{
	CUgraph copy = graph_make();
	CUgraphNode node, clone;

	copy->origin = graph;
	TAILQ_FOREACH(node, &graph->nodes, all)
	{
		CUgraph child = NULL;
		/* A graph with memory or conditional nodes cannot be cloned. */
		CUresult result = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
						  node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL
					  ? CUDA_ERROR_NOT_SUPPORTED
					  : CUDA_SUCCESS;
		if (!result && node->child)
			result = graph_copy(node->child, &child);
		if (result) {
			graph_delete(copy);
			return result;
		}
		graph_add(copy, node->type, node->work ? work_ref(node->work) : NULL, child, NULL, 0, &clone);
		clone->origin = node;
		/* The mark of the original has its clone. */
		node->mark = (size_t)clone;
	}
	TAILQ_FOREACH(node, &graph->nodes, all)
	{
		for (size_t i = 0; i < node->before.count; i++)
			edges_connect((CUgraphNode)node->before.items[i].node->mark, (CUgraphNode)node->mark,
				      node->before.items[i].data);
	}
	/* Edges and last nodes keep the order of the original. */
	TAILQ_FOREACH(node, &graph->nodes, all)
	{
		clone = (CUgraphNode)node->mark;
		for (size_t i = 0; i < node->after.count; i++) {
			clone->after.items[i] = node->after.items[i];
			clone->after.items[i].node = (CUgraphNode)node->after.items[i].node->mark;
		}
	}
	TAILQ_FOREACH(node, &graph->last, end)
	{
		clone = (CUgraphNode)node->mark;
		TAILQ_REMOVE(&copy->last, clone, end);
		TAILQ_INSERT_TAIL(&copy->last, clone, end);
	}
	copy->object_count = graph->object_count;
	copy->objects = sim_copy(graph->objects, graph->object_count * sizeof *graph->objects);
	user_references_keep(copy->objects, copy->object_count);
	*out = copy;
	return CUDA_SUCCESS;
}

/* ---- calls on graphs ---- */

static CUresult enter_graph(CUgraph graph)
{
	CUresult result = sim_enter_driver();

	INVALID_IF(!result && !handle_is(graph, HANDLE_GRAPH));
	return result;
}

static CUresult enter_node(CUgraphNode node)
{
	CUresult result = sim_enter_driver();

	INVALID_IF(!result && !handle_is(node, HANDLE_NODE));
	return result;
}

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
	ENTER(sim_enter_driver());
	INVALID_IF(!out || flags);
	*out = graph_make();
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph)
{
	ENTER(enter_graph(graph));
	INVALID_IF(graph->parent || capture_builds(graph));
	graph_delete(graph);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphClone(CUgraph *out, CUgraph graph)
{
	ENTER(enter_graph(graph));
	return sim_leave(out ? graph_copy(graph, out) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
	CUgraphNode node;

	ENTER(enter_graph(clone));
	INVALID_IF(!out);
	TAILQ_FOREACH(node, &clone->nodes, all)
	{
		if (node->origin == original) {
			*out = node;
			return sim_leave(CUDA_SUCCESS);
		}
	}
	return sim_leave(CUDA_ERROR_INVALID_VALUE);
}

/* Nodes of such a graph cannot be removed. */
static bool has_memory(CUgraph graph)
{
	CUgraphNode node;

	TAILQ_FOREACH(node, &graph->nodes, all)
	{
		if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			return true;
	}
	return false;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
	ENTER(enter_node(node));
	if (has_memory(node->graph))
		return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
	INVALID_IF(capture_builds(node->graph));
	node_delete(node);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	ENTER(enter_node(node));
	INVALID_IF(!type);
	*type = node->type;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out)
{
	ENTER(enter_node(node));
	INVALID_IF(!out || !node->child);
	*out = node->child;
	return sim_leave(CUDA_SUCCESS);
}

/* Lists: if the array is NULL, only the count; else as many as fit, then NULL. A count of 0 is refused. */
static bool room_is_good(const void *place, const size_t *room)
{
	return room && (!place || *room);
}

static CUresult list_nodes(CUgraph graph, CUgraphNode *out, size_t *room, bool roots)
{
	CUgraphNode node;
	size_t count = 0;

	ENTER(enter_graph(graph));
	INVALID_IF(!room_is_good(out, room));
	TAILQ_FOREACH(node, &graph->nodes, all)
	{
		if (roots && node->before.count)
			continue;
		if (out && count < *room)
			out[count] = node;
		count++;
	}
	for (size_t i = count; out && i < *room; i++)
		out[i] = NULL;
	if (!out || count < *room)
		*room = count;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	return list_nodes(graph, nodes, count, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	return list_nodes(graph, nodes, count, true);
}

static bool plain(const CUgraphEdgeData *data)
{
	static const CUgraphEdgeData none;

	return !memcmp(data, &none, sizeof none);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *room)
{
	CUgraphNode node;
	size_t count = 0;

	ENTER(enter_graph(graph));
	INVALID_IF(!room_is_good(from, room) || !from != !to || (data && !from));
	TAILQ_FOREACH(node, &graph->nodes, all)
	{
		for (size_t i = 0; i < node->before.count; i++, count++) {
			if (!from || count >= *room)
				continue;
			from[count] = node->before.items[i].node;
			to[count] = node;
			if (data)
				data[count] = node->before.items[i].data;
			else if (!plain(&node->before.items[i].data))
				return sim_leave(CUDA_ERROR_LOSSY_QUERY);
		}
	}
	for (size_t i = count; from && i < *room; i++)
		from[i] = to[i] = NULL;
	if (!from || count < *room)
		*room = count;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

static CUresult list_edges(CUgraphNode node, bool before, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *room)
{
	ENTER(enter_node(node));
	INVALID_IF(!room_is_good(nodes, room) || (data && !nodes));
	const struct edges *e = before ? &node->before : &node->after;
	for (size_t i = 0; nodes && i < *room; i++) {
		nodes[i] = i < e->count ? e->items[i].node : NULL;
		if (data && i < e->count)
			data[i] = e->items[i].data;
		else if (i < e->count && !plain(&e->items[i].data))
			return sim_leave(CUDA_ERROR_LOSSY_QUERY);
	}
	if (!nodes || e->count < *room)
		*room = e->count;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	return list_edges(node, true, nodes, data, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return list_edges(node, true, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	return list_edges(node, false, nodes, data, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return list_edges(node, false, nodes, NULL, count);
}

/* Whether each pair has two nodes of the graph that are, or are not yet, connected. */
static bool pairs_good(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool connected)
{
	for (size_t i = 0; i < count; i++) {
		if (!handle_is(from[i], HANDLE_NODE) || !handle_is(to[i], HANDLE_NODE) || from[i] == to[i] ||
		    from[i]->graph != graph || to[i]->graph != graph ||
		    (edges_find(&to[i]->before, from[i]) < to[i]->before.count) != connected)
			return false;
	}
	return true;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
				   size_t count)
{
	static const CUgraphEdgeData none;

	ENTER(enter_graph(graph));
	INVALID_IF(count && (!from || !to || !pairs_good(graph, from, to, count, false)));
	for (size_t i = 0; i < count; i++)
		edges_connect(from[i], to[i], data ? data[i] : none);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *data, size_t count)
{
	CUresult result = enter_graph(graph);

	(void)data;
	if (result)
		return result;
	INVALID_IF(count && (!from || !to || !pairs_good(graph, from, to, count, true)));
	if (has_memory(graph))
		return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
	for (size_t i = 0; i < count; i++)
		edges_disconnect(from[i], to[i]);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}
