/*
 * Reading graphs. See nodes.h for the invariant.
 */
#include "nodes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modules.h"
#include "room.h"

#define NODES_MAX ((size_t)1 << 26)

/* The bodies of a conditional node. */
struct conditional {
	CUgraphNode handle;
	CUgraphConditionalHandle condition;
	uint32_t type, count;
	CUgraph *bodies;
	struct conditional *next;
};

/* Where a node that is read lies. */
struct place {
	uint32_t parent, branch, flags;
};

static struct conditional *conditionals;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the conditionals */

/* ---- lists ---- */

static bool no_memory(struct node_list *l)
{
	strcpy(l->failed, "no host memory");
	return false;
}

static struct tt_graph_record *add(struct node_list *l, uint32_t kind)
{
	if (!make_room(&l->nodes, &l->room, l->count, 1, sizeof(*l->nodes))) {
		no_memory(l);
		return NULL;
	}
	struct node *n = &l->nodes[l->count];
	*n = (struct node){.record = {.op = TT_GRAPH_NODE, .node = (uint32_t)l->count, .kind = kind,
				      .parent = TT_NO_ID, .function = TT_NO_ID, .context = TT_NO_ID}};
	l->count++;
	return &n->record;
}

/* Room for a record's data, all zeros; NULL where there is no memory. */
static uint8_t *add_bytes(struct node_list *l, struct tt_graph_record *r, size_t size)
{
	size_t padded = (size + 7) & ~(size_t)7;

	if (!make_room(&l->bytes, &l->bytes_room, l->size, padded, 1)) {
		no_memory(l);
		return NULL;
	}
	r->data = l->size;
	r->data_size = (uint32_t)size;
	l->size += padded;
	return memset(l->bytes + r->data, 0, padded);
}

static size_t hash(const void *p)
{
	return (size_t)(((uintptr_t)p * 0x9e3779b97f4a7c15ull) >> 32);
}

static bool make_index(struct node_list *l)
{
	size_t size = 16;

	while (size < l->count * 2)
		size *= 2;
	free(l->index);
	if (!(l->index = malloc(size * sizeof(*l->index))))
		return no_memory(l);
	memset(l->index, 0xff, size * sizeof(*l->index)); /* TT_NO_ID */
	l->index_mask = size - 1;
	for (size_t i = 0; i < l->count; i++) {
		size_t h = hash(l->nodes[i].handle) & l->index_mask;
		while (l->index[h] != TT_NO_ID)
			h = (h + 1) & l->index_mask;
		l->index[h] = (uint32_t)i;
	}
	return true;
}

uint32_t nodes_find(const struct node_list *l, CUgraphNode handle)
{
	if (!l->index)
		return TT_NO_ID;
	for (size_t h = hash(handle) & l->index_mask; l->index[h] != TT_NO_ID; h = (h + 1) & l->index_mask)
		if (l->nodes[l->index[h]].handle == handle)
			return l->index[h];
	return TT_NO_ID;
}

void nodes_free(struct node_list *l)
{
	free(l->nodes);
	free(l->edges);
	free(l->bytes);
	free(l->index);
	*l = (struct node_list){0};
}

/* Flags of where a node is and whether it runs, not of what it does. */
#define PLACE_FLAGS (TT_GRAPHF_DISABLED | TT_GRAPHF_CONDITIONAL)
#define ATTRIBUTE_FLAGS (TT_GRAPHF_COOPERATIVE | TT_GRAPHF_DEVICE)

bool nodes_same(const struct node_list *l, uint32_t number, const struct node_list *other, uint32_t its)
{
	struct tt_graph_record a = l->nodes[number].record, b = other->nodes[its].record;

	if (a.data_size != b.data_size ||
	    (a.data_size && memcmp(l->bytes + a.data, other->bytes + b.data, a.data_size)))
		return false;
	b.seq = a.seq;
	b.graph = a.graph;
	b.node = a.node;
	b.parent = a.parent;
	b.branch = a.branch;
	b.data = a.data;
	b.flags = (b.flags & ~PLACE_FLAGS) | (a.flags & PLACE_FLAGS);
	return !memcmp(&a, &b, offsetof(struct tt_graph_record, data_check));
}

bool nodes_replace(struct node_list *l, uint32_t number, const struct node_list *other, uint32_t its, bool attributes)
{
	uint32_t stays = PLACE_FLAGS | (attributes ? 0 : ATTRIBUTE_FLAGS);
	struct tt_graph_record to = l->nodes[number].record, from = other->nodes[its].record;
	const uint8_t *bytes = other->bytes + from.data;

	from.graph = to.graph;
	from.node = number;
	from.parent = to.parent;
	from.branch = to.branch;
	from.flags = (from.flags & ~stays) | (to.flags & stays);
	if (!attributes)
		memcpy(from.cluster, to.cluster, sizeof(from.cluster));
	if (from.data_size > to.data_size && !add_bytes(l, &to, from.data_size))
		return false;
	from.data = to.data;
	if (from.data_size)
		memcpy(l->bytes + from.data, bytes, from.data_size);
	l->nodes[number].record = from;
	return true;
}

/* ---- what nodes do ---- */

bool nodes_add_unread(struct node_list *l, uint32_t kind)
{
	struct tt_graph_record *r = add(l, kind);

	if (r)
		r->flags = TT_GRAPHF_UNREAD;
	return r;
}

/* The layout of a kernel's parameters is known where it runs, and so are its module's variables from here on. */
static uint32_t describe(struct thread *t, struct context *c, struct function *f, CUfunction handle, CUcontext in)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext other = in && in != c->handle ? in : NULL;

	if (other && real.cuCtxPushCurrent_v2(other) != CUDA_SUCCESS)
		return TT_NO_ID;
	if (other)
		c = context_current(t);
	if (c && !(atomic_load(&f->known) & context_bit(c))) {
		t->busy++;
		real.cuThreadExchangeStreamCaptureMode(&mode); /* a stream capture of the program forbids us nothing */
		function_describe(t, c, f, handle);
		real.cuThreadExchangeStreamCaptureMode(&mode);
		t->busy--;
	}
	if (other)
		real.cuCtxPopCurrent_v2(&other);
	return c ? c->index : TT_NO_ID;
}

static bool add_params(struct node_list *l, struct tt_graph_record *r, const struct function *f,
		       const CUDA_KERNEL_NODE_PARAMS *p)
{
	size_t size;
	const void *buffer = launch_buffer(p->extra, &size);
	uint8_t *to;

	if (!buffer)
		size = p->kernelParams ? f->param_bytes : 0;
	if (!size) {
		r->flags |= f->param_count ? TT_GRAPHF_UNREAD : 0;
		return true;
	}
	if (!(to = add_bytes(l, r, size)))
		return false;
	if (buffer)
		memcpy(to, buffer, size);
	for (uint32_t i = 0; !buffer && i < f->param_count; i++)
		memcpy(to + f->params[i].offset, p->kernelParams[i], f->params[i].size);
	return true;
}

bool nodes_add_kernel(struct node_list *l, struct thread *t, struct context *c, const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUfunction handle = p->func ? p->func : (CUfunction)p->kern;
	struct function *f = handle ? function_of(handle) : NULL;
	struct tt_graph_record *r = add(l, TT_NODE_KERNEL);

	if (!r)
		return false;
	r->grid[0] = p->gridDimX, r->grid[1] = p->gridDimY, r->grid[2] = p->gridDimZ;
	r->block[0] = p->blockDimX, r->block[1] = p->blockDimY, r->block[2] = p->blockDimZ;
	r->shared = p->sharedMemBytes;
	if (!f) {
		r->flags |= TT_GRAPHF_UNREAD;
		return true;
	}
	r->function = f->id;
	r->context = describe(t, c, f, handle, p->ctx);
	return add_params(l, r, f, p);
}

static uint64_t place_of(CUmemorytype type, const void *host, CUdeviceptr device)
{
	return type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : type == CU_MEMORYTYPE_ARRAY ? 0 : device;
}

bool nodes_add_copy(struct node_list *l, const CUDA_MEMCPY3D *p)
{
	struct tt_graph_record *r = add(l, TT_NODE_COPY);
	uint64_t rows = p->Height ? p->Height : 1, slices = p->Depth ? p->Depth : 1;
	uint64_t skip = p->dstXInBytes + (p->dstY + p->dstZ * p->dstHeight) * p->dstPitch;

	if (!r)
		return false;
	r->dst = place_of(p->dstMemoryType, p->dstHost, p->dstDevice);
	r->src = place_of(p->srcMemoryType, p->srcHost, p->srcDevice);
	r->dst += r->dst ? skip : 0;
	r->src += r->src ? p->srcXInBytes + (p->srcY + p->srcZ * p->srcHeight) * p->srcPitch : 0;
	r->flags = (p->dstMemoryType == CU_MEMORYTYPE_HOST ? TT_GRAPHF_HOST_DST : 0) |
		   (p->srcMemoryType == CU_MEMORYTYPE_HOST ? TT_GRAPHF_HOST_SRC : 0);
	r->bytes = p->WidthInBytes * rows * slices;
	r->reach = p->WidthInBytes + (rows - 1 + (slices - 1) * p->dstHeight) * p->dstPitch;
	return true;
}

bool nodes_add_set(struct node_list *l, const CUDA_MEMSET_NODE_PARAMS *p)
{
	struct tt_graph_record *r = add(l, TT_NODE_SET);
	uint64_t row = p->width * p->elementSize, rows = p->height ? p->height : 1;

	if (!r)
		return false;
	r->dst = p->dst;
	r->src = p->value;
	r->shared = p->elementSize;
	r->bytes = row * rows;
	r->reach = row + (rows - 1) * p->pitch;
	return true;
}

bool nodes_add_host(struct node_list *l, CUhostFn function, void *argument)
{
	struct tt_graph_record *r = add(l, TT_NODE_HOST);

	if (!r)
		return false;
	r->src = (uint64_t)(uintptr_t)function;
	r->dst = (uint64_t)(uintptr_t)argument;
	return true;
}

bool nodes_add_event(struct node_list *l, uint32_t kind, CUevent event)
{
	struct tt_graph_record *r = add(l, kind);

	if (r)
		r->src = (uint64_t)(uintptr_t)event;
	return r;
}

bool nodes_add_mem_op(struct node_list *l, unsigned count, const CUstreamBatchMemOpParams *list)
{
	struct tt_graph_record *r = add(l, TT_NODE_MEM_OP);
	uint64_t *to = r && count ? (uint64_t *)add_bytes(l, r, count * sizeof(*to)) : NULL;

	if (!r || (count && !to))
		return false;
	r->data_size = 0;
	for (unsigned i = 0; i < count; i++) {
		switch ((int)list[i].operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		case CU_STREAM_MEM_OP_BARRIER:
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			*to++ = list[i].writeValue.address;
			r->data_size += (uint32_t)sizeof(*to);
			break;
		default: /* of a later version */
			r->flags |= TT_GRAPHF_UNREAD;
		}
	}
	return true;
}

/* ---- reading ---- */

/* Whether a call worked; where not, the list says so. */
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
/* The same, where a node that can't be read is no reason to stop. */
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

static bool read_kernel(struct node_list *l, struct thread *t, struct context *c, CUgraphNode handle)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};

	/* The older form fills in the first members. */
	if (!TELLS(cuGraphKernelNodeGetParams_v2, handle, &p) &&
	    !TELLS(cuGraphKernelNodeGetParams, handle, (CUDA_KERNEL_NODE_PARAMS_v1 *)&p))
		return nodes_add_unread(l, TT_NODE_KERNEL);
	if (!nodes_add_kernel(l, t, c, &p))
		return false;
	read_attributes(handle, &l->nodes[l->count - 1].record);
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
	struct tt_graph_record *r = add(l, kind);

	if (!r)
		return false;
	if (kind == TT_NODE_ALLOC ? !TELLS(cuGraphMemAllocNodeGetParams, handle, &p)
				  : !TELLS(cuGraphMemFreeNodeGetParams, handle, &p.dptr))
		r->flags |= TT_GRAPHF_UNREAD;
	r->dst = p.dptr;
	r->bytes = p.bytesize;
	return true;
}

static bool read_level(struct node_list *l, struct thread *t, struct context *c, CUgraph graph, struct place at);

static bool read_child(struct node_list *l, struct thread *t, struct context *c, CUgraphNode handle, uint32_t flags)
{
	CUgraph graph;

	if (!add(l, TT_NODE_GRAPH))
		return false;
	return ASK(l, cuGraphChildGraphNodeGetGraph, handle, &graph) &&
	       read_level(l, t, c, graph, (struct place){(uint32_t)l->count - 1, 0, flags});
}

static bool read_conditional(struct node_list *l, struct thread *t, struct context *c, CUgraphNode handle,
			     uint32_t flags)
{
	struct tt_graph_record *r = add(l, TT_NODE_CONDITIONAL);
	uint32_t number = (uint32_t)l->count - 1;
	CUgraph bodies[16];

	if (!r)
		return false;
	pthread_mutex_lock(&lock);
	const struct conditional *found = conditionals;
	while (found && found->handle != handle)
		found = found->next;
	uint32_t count = found ? found->count : 0;
	bool whole = count && count <= sizeof(bodies) / sizeof(*bodies);
	if (whole) {
		memcpy(bodies, found->bodies, count * sizeof(*bodies));
		r->src = found->condition;
		r->dst = found->type;
	} else {
		r->flags |= TT_GRAPHF_UNREAD;
	}
	pthread_mutex_unlock(&lock);
	for (uint32_t i = 0; whole && i < count; i++)
		if (!read_level(l, t, c, bodies[i], (struct place){number, i, flags | TT_GRAPHF_CONDITIONAL}))
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
		return add(l, TT_NODE_EMPTY);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return read_event(l, handle, TT_NODE_EVENT_WAIT);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return read_event(l, handle, TT_NODE_EVENT_RECORD);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
		return add(l, TT_NODE_SIGNAL);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return add(l, TT_NODE_WAIT);
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
		       struct place at)
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

static bool read_level(struct node_list *l, struct thread *t, struct context *c, CUgraph graph, struct place at)
{
	size_t n = 0;

	if (!make_room(&l->graphs, &l->graph_room, l->graph_count, 1, sizeof(*l->graphs)))
		return no_memory(l);
	l->graphs[l->graph_count++] = graph;
	if (!ASK(l, cuGraphGetNodes, graph, NULL, &n))
		return false;
	if (!n)
		return true;
	CUgraphNode *handles = n <= NODES_MAX ? malloc(n * sizeof(*handles)) : NULL;
	if (!handles)
		return no_memory(l);
	bool whole = ASK(l, cuGraphGetNodes, graph, handles, &n) && read_nodes(l, t, c, handles, n, at);
	free(handles);
	return whole;
}

static bool add_edges(struct node_list *l, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
		      size_t n)
{
	if (!make_room(&l->edges, &l->edge_room, l->edge_count, n, sizeof(*l->edges)))
		return no_memory(l);
	for (size_t i = 0; i < n; i++) {
		struct tt_graph_edge e = {
			.from = nodes_find(l, from[i]), .to = nodes_find(l, to[i]),
			.from_port = data[i].from_port, .to_port = data[i].to_port, .type = data[i].type,
		};
		if (e.from == TT_NO_ID || e.to == TT_NO_ID) {
			strcpy(l->failed, "an edge names a node that is not in the graph");
			return false;
		}
		l->edges[l->edge_count++] = e;
	}
	return true;
}

/* Drivers of before CUDA 12.3 have edges without more to them. */
static bool ask_edges(struct node_list *l, CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
		      size_t *n)
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
	bool whole = ends && data ? ask_edges(l, graph, ends, ends + n, data, &n) : no_memory(l);
	whole = whole && add_edges(l, ends, ends + n, data, n);
	free(ends);
	free(data);
	return whole;
}

bool nodes_read(struct node_list *l, struct thread *t, struct context *c, CUgraph graph)
{
	*l = (struct node_list){0};
	bool whole = read_level(l, t, c, graph, (struct place){TT_NO_ID, 0, 0}) && make_index(l);
	for (size_t i = 0; whole && i < l->graph_count; i++)
		whole = read_edges(l, l->graphs[i]);
	free(l->graphs);
	l->graphs = NULL;
	return whole;
}

/* ---- conditional nodes ---- */

void nodes_conditional(CUgraphNode handle, const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	struct conditional *found;
	CUgraph *bodies = malloc(p->size * sizeof(*bodies));

	if (!bodies || !p->phGraph_out) {
		free(bodies);
		return;
	}
	memcpy(bodies, p->phGraph_out, p->size * sizeof(*bodies));
	pthread_mutex_lock(&lock);
	found = conditionals;
	while (found && found->handle != handle) /* of a node that is gone, whose handle came back */
		found = found->next;
	if (!found && (found = calloc(1, sizeof(*found)))) {
		found->handle = handle;
		found->next = conditionals;
		conditionals = found;
	}
	if (found) {
		free(found->bodies);
		found->bodies = bodies;
		found->count = p->size;
		found->condition = p->handle;
		found->type = p->type;
	} else {
		free(bodies);
	}
	pthread_mutex_unlock(&lock);
}

void nodes_forget(void)
{
	pthread_mutex_init(&lock, NULL);
}
