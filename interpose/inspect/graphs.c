/*
 * Reads graphs from the driver. See graphs.h for the invariant.
 */
#include "inspect/graphs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/contexts.h"
#include "inspect/functions.h"
#include "util/vector.h"

#define NODES_MAX ((size_t)1 << 26)

/* The bodies of a conditional node. */
struct conditional {
	CUgraphNode handle;
	CUgraphConditionalHandle condition;
	uint32_t type, count;
	CUgraph *bodies;
	struct conditional *next;
};

/* The graph whose nodes are read: its node in the parent graph, and the branch of that. */
struct graph_level {
	uint32_t parent, branch, flags;
};

static struct conditional *conditionals;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the conditionals */

/* Whether a call succeeded; if not, sets l->failed. */
static bool good(struct node_list *l, const char *call, CUresult r)
{
	const char *name = NULL;

	if (r == CUDA_SUCCESS)
		return true;
	real.cuGetErrorName(r, &name);
	snprintf(l->failed, sizeof(l->failed), "%s: %s", call, name ? name : "unknown error");
	return false;
}

#define ASK(l, symbol, ...) (good(l, #symbol, real.symbol ? real.symbol(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED))
/* The same, for nodes that may be unreadable. */
#define TELLS(symbol, ...) (real.symbol && real.symbol(__VA_ARGS__) == CUDA_SUCCESS)

static void read_attributes(CUgraphNode handle, struct tt_graph_record *r)
{
	CUkernelNodeAttrValue v;

	if (TELLS(cuGraphKernelNodeGetAttribute, handle, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v)) {
		r->cluster[0] = v.clusterDim.x;
		r->cluster[1] = v.clusterDim.y;
		r->cluster[2] = v.clusterDim.z;
	}
	if (TELLS(cuGraphKernelNodeGetAttribute, handle, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v) && v.cooperative)
		r->flags |= TT_GRAPHF_COOPERATIVE;
	if (TELLS(cuGraphKernelNodeGetAttribute, handle, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &v) &&
	    v.deviceUpdatableKernelNode.deviceUpdatable)
		r->flags |= TT_GRAPHF_DEVICE;
}

void (*graph_kernel_found)(const char *name, CUfunction f, const uint32_t cluster[3]);

/* Makes the layout of a kernel's parameters known, and its module's variables. */
static uint32_t describe(struct thread *t, struct context *c, struct function *f, CUfunction handle, CUcontext in)
{
	CUcontext wanted = in ? in : c->handle;
	const struct context *current = context_current(t);
	bool other = !current || current->handle != wanted;

	if (other && !context_push(wanted))
		return TT_NO_ID;
	if (in)
		c = context_current(t);
	if (c && !(atomic_load(&f->known) & context_bit(c))) {
		CUstreamCaptureMode mode = recorder_work_begin(t);
		function_describe(c, f, handle);
		recorder_work_end(t, mode);
	}
	if (other)
		context_pop();
	return c ? c->index : TT_NO_ID;
}

bool graph_add_kernel(struct node_list *l, struct thread *t, struct context *c, const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUfunction handle = p->func ? p->func : (CUfunction)p->kern;
	struct function *f = handle ? function_of(handle) : NULL;

	return nodes_add_kernel(l, f, f ? describe(t, c, f, handle, p->ctx) : TT_NO_ID, p);
}

static bool read_kernel(struct node_list *l, struct thread *t, struct context *c, CUgraphNode handle)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};

	/* The old call fills in the first members. */
	if (!TELLS(cuGraphKernelNodeGetParams_v2, handle, &p) &&
	    !TELLS(cuGraphKernelNodeGetParams, handle, (CUDA_KERNEL_NODE_PARAMS_v1 *)&p))
		return nodes_add_unread(l, TT_NODE_KERNEL);
	if (!graph_add_kernel(l, t, c, &p))
		return false;
	struct tt_graph_record *r = &l->nodes[l->count - 1].record;
	read_attributes(handle, r);
	const char *name = function_name(r->function);
	if (name && p.func && graph_kernel_found)
		graph_kernel_found(name, p.func, r->cluster);
	return true;
}

static bool read_copy(struct node_list *l, CUgraphNode handle)
{
	CUDA_MEMCPY3D p;

	return TELLS(cuGraphMemcpyNodeGetParams, handle, &p) ? nodes_add_copy(l, &p) : nodes_add_unread(l, TT_NODE_COPY);
}

static bool read_set(struct node_list *l, CUgraphNode handle)
{
	CUDA_MEMSET_NODE_PARAMS p;

	return TELLS(cuGraphMemsetNodeGetParams, handle, &p) ? nodes_add_set(l, &p) : nodes_add_unread(l, TT_NODE_SET);
}

static bool read_host(struct node_list *l, CUgraphNode handle)
{
	CUDA_HOST_NODE_PARAMS p;

	return TELLS(cuGraphHostNodeGetParams, handle, &p) ? nodes_add_host(l, p.fn, p.userData)
							   : nodes_add_unread(l, TT_NODE_HOST);
}

static bool read_event(struct node_list *l, CUgraphNode handle, uint32_t kind)
{
	CUevent event = NULL;
	bool told = kind == TT_NODE_EVENT_WAIT ? TELLS(cuGraphEventWaitNodeGetEvent, handle, &event)
					       : TELLS(cuGraphEventRecordNodeGetEvent, handle, &event);

	return told ? nodes_add_event(l, kind, event) : nodes_add_unread(l, kind);
}

static bool read_mem_op(struct node_list *l, CUgraphNode handle)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p;

	return TELLS(cuGraphBatchMemOpNodeGetParams, handle, &p) ? nodes_add_mem_op(l, p.count, p.paramArray)
								 : nodes_add_unread(l, TT_NODE_MEM_OP);
}

static bool read_memory(struct node_list *l, CUgraphNode handle, uint32_t kind)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {0};
	struct tt_graph_record *r = nodes_add(l, kind);

	if (!r)
		return false;
	if (kind == TT_NODE_ALLOC ? !TELLS(cuGraphMemAllocNodeGetParams, handle, &p)
				  : !TELLS(cuGraphMemFreeNodeGetParams, handle, &p.dptr))
		r->flags |= TT_GRAPHF_UNREAD;
	r->dst = p.dptr;
	r->bytes = p.bytesize;
	if (kind == TT_NODE_ALLOC)
		r->src = p.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? (uint32_t)p.poolProps.location.id
										  : TT_NO_ID;
	return true;
}

static bool read_level(struct node_list *l, struct thread *t, struct context *c, CUgraph graph, struct graph_level at);

static bool read_child(struct node_list *l, struct thread *t, struct context *c, CUgraphNode handle, uint32_t flags)
{
	CUgraph graph;

	if (!nodes_add(l, TT_NODE_GRAPH))
		return false;
	return ASK(l, cuGraphChildGraphNodeGetGraph, handle, &graph) &&
	       read_level(l, t, c, graph, (struct graph_level){(uint32_t)l->count - 1, 0, flags});
}

static const struct conditional *find_conditional(CUgraphNode node)
{
	const struct conditional *found = conditionals;

	while (found && found->handle != node)
		found = found->next;
	return found;
}

uint32_t graph_bodies(CUgraphNode node, CUgraph *bodies, uint32_t most)
{
	pthread_mutex_lock(&lock);
	const struct conditional *found = find_conditional(node);
	uint32_t count = found && found->count <= most ? found->count : 0;
	for (uint32_t i = 0; i < count; i++)
		bodies[i] = found->bodies[i];
	pthread_mutex_unlock(&lock);
	return count;
}

static bool read_conditional(struct node_list *l, struct thread *t, struct context *c, CUgraphNode handle, uint32_t flags)
{
	struct tt_graph_record *r = nodes_add(l, TT_NODE_CONDITIONAL);
	CUgraph bodies[BODIES_MOST];
	uint32_t number = (uint32_t)l->count - 1, count = graph_bodies(handle, bodies, BODIES_MOST);

	if (!r)
		return false;
	pthread_mutex_lock(&lock);
	const struct conditional *found = find_conditional(handle);
	if (count && found) {
		r->src = found->condition;
		r->dst = found->type;
	} else {
		r->flags |= TT_GRAPHF_UNREAD;
	}
	pthread_mutex_unlock(&lock);
	for (uint32_t i = 0; i < count; i++)
		if (!read_level(l, t, c, bodies[i], (struct graph_level){number, i, flags | TT_GRAPHF_CONDITIONAL}))
			return false;
	return true;
}

static bool read_node(struct node_list *l, struct thread *t, struct context *c, CUgraphNode handle, uint32_t flags)
{
	CUgraphNodeType type;

	if (l->count >= NODES_MAX) {
		strcpy(l->failed, "too many nodes");
		return false;
	}
	if (!ASK(l, cuGraphNodeGetType, handle, &type))
		return false;
	switch ((int)type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return read_kernel(l, t, c, handle);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return read_copy(l, handle);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return read_set(l, handle);
	case CU_GRAPH_NODE_TYPE_HOST:
		return read_host(l, handle);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return read_child(l, t, c, handle, flags);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return nodes_add(l, TT_NODE_EMPTY);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return read_event(l, handle, TT_NODE_EVENT_WAIT);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return read_event(l, handle, TT_NODE_EVENT_RECORD);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
		return nodes_add(l, TT_NODE_SIGNAL);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return nodes_add(l, TT_NODE_WAIT);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return read_memory(l, handle, TT_NODE_ALLOC);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return read_memory(l, handle, TT_NODE_FREE);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return read_mem_op(l, handle);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return read_conditional(l, t, c, handle, flags);
	default:
		return nodes_add_unread(l, TT_NODE_OTHER);
	}
}

static bool read_nodes(struct node_list *l, struct thread *t, struct context *c, const CUgraphNode *handles, size_t n,
		       struct graph_level at)
{
	for (size_t i = 0; i < n; i++) {
		size_t number = l->count;
		bool whole = read_node(l, t, c, handles[i], at.flags);
		if (l->count == number)
			return false;
		struct node *node = &l->nodes[number];
		node->handle = handles[i];
		node->record.parent = at.parent;
		node->record.branch = at.branch;
		node->record.flags |= at.flags;
		if (!whole)
			return false;
	}
	return true;
}

static bool read_level(struct node_list *l, struct thread *t, struct context *c, CUgraph graph, struct graph_level at)
{
	size_t n = 0;

	if (!make_room(&l->graphs, &l->graph_room, l->graph_count, 1, sizeof(*l->graphs)))
		return nodes_no_memory(l);
	l->graphs[l->graph_count++] = graph;
	if (!ASK(l, cuGraphGetNodes, graph, NULL, &n))
		return false;
	if (!n)
		return true;
	CUgraphNode *handles = n <= NODES_MAX ? malloc(n * sizeof(*handles)) : NULL;
	if (!handles)
		return nodes_no_memory(l);
	bool whole = ASK(l, cuGraphGetNodes, graph, handles, &n) && read_nodes(l, t, c, handles, n, at);
	free(handles);
	return whole;
}

static bool add_edges(struct node_list *l, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
		      size_t n)
{
	if (!make_room(&l->edges, &l->edge_room, l->edge_count, n, sizeof(*l->edges)))
		return nodes_no_memory(l);
	for (size_t i = 0; i < n; i++) {
		struct tt_graph_edge e = {
			.from = nodes_find(l, from[i]),
			.to = nodes_find(l, to[i]),
			.from_port = data[i].from_port,
			.to_port = data[i].to_port,
			.type = data[i].type,
		};
		if (e.from == TT_NO_ID || e.to == TT_NO_ID) {
			strcpy(l->failed, "an edge names a node that is not in the graph");
			return false;
		}
		l->edges[l->edge_count++] = e;
	}
	return true;
}

/* Drivers before CUDA 12.3 have edges without data. */
static bool ask_edges(struct node_list *l, CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *n)
{
	return real.cuGraphGetEdges_v2 ? ASK(l, cuGraphGetEdges_v2, graph, from, to, data, n)
				       : ASK(l, cuGraphGetEdges, graph, from, to, n);
}

static bool read_edges(struct node_list *l, CUgraph graph)
{
	size_t n = 0;

	if (!ask_edges(l, graph, NULL, NULL, NULL, &n))
		return false;
	if (!n)
		return true;
	CUgraphNode *ends = malloc(n * 2 * sizeof(*ends));
	CUgraphEdgeData *data = calloc(n, sizeof(*data));
	bool whole = ends && data ? ask_edges(l, graph, ends, ends + n, data, &n) : nodes_no_memory(l);
	whole = whole && add_edges(l, ends, ends + n, data, n);
	free(ends);
	free(data);
	return whole;
}

struct node_list graph_read(struct thread *t, struct context *c, CUgraph graph)
{
	struct node_list l = {0};
	bool whole = read_level(&l, t, c, graph, (struct graph_level){TT_NO_ID, 0, 0}) && nodes_index(&l);

	for (size_t i = 0; whole && i < l.graph_count; i++)
		whole = read_edges(&l, l.graphs[i]);
	free(l.graphs);
	l.graphs = NULL;
	return l;
}

bool graph_node_runs(CUgraphExec exec, CUgraphNode node)
{
	unsigned enabled = 0;

	return TELLS(cuGraphNodeGetEnabled, exec, node, &enabled) && enabled;
}

/* ---- conditional nodes ---- */

void conditional_added(CUgraphNode handle, const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	struct conditional *found;
	CUgraph *bodies = p->phGraph_out ? malloc(p->size * sizeof(*bodies)) : NULL;

	if (bodies)
		memcpy(bodies, p->phGraph_out, p->size * sizeof(*bodies));
	pthread_mutex_lock(&lock);
	found = conditionals;
	while (found && found->handle != handle) /* of a destroyed node whose handle was reused */
		found = found->next;
	if (!found && bodies && (found = calloc(1, sizeof(*found)))) {
		found->handle = handle;
		found->next = conditionals;
		conditionals = found;
	}
	if (found) {
		free(found->bodies);
		found->bodies = bodies;
		found->count = bodies ? p->size : 0;
		found->condition = p->handle;
		found->type = p->type;
	} else {
		free(bodies);
	}
	pthread_mutex_unlock(&lock);
}

void conditionals_forget(void)
{
	pthread_mutex_init(&lock, NULL);
}
