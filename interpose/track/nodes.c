/*
 * Lists of nodes and their work. See nodes.h for the invariant.
 */
#include "track/nodes.h"

#include <stdlib.h>
#include <string.h>

#include "track/functions.h"
#include "util/handle_table.h"
#include "util/vector.h"

/* ---- lists ---- */

bool nodes_no_memory(struct node_list *l)
{
	strcpy(l->failed, "no host memory");
	return false;
}

struct tt_graph_record *nodes_add(struct node_list *l, uint32_t kind)
{
	if (!make_room(&l->nodes, &l->room, l->count, 1, sizeof(*l->nodes))) {
		nodes_no_memory(l);
		return NULL;
	}
	struct node *n = &l->nodes[l->count];
	*n = (struct node){.record = {.op = TT_GRAPH_NODE,
				      .node = (uint32_t)l->count,
				      .kind = kind,
				      .parent = TT_NO_ID,
				      .function = TT_NO_ID,
				      .context = TT_NO_ID}};
	l->count++;
	return &n->record;
}

/* Room for a record's data, all zeros; NULL: no memory. */
static uint8_t *add_bytes(struct node_list *l, struct tt_graph_record *r, size_t size)
{
	size_t padded = (size + 7) & ~(size_t)7;

	if (!make_room(&l->bytes, &l->bytes_room, l->size, padded, 1)) {
		nodes_no_memory(l);
		return NULL;
	}
	r->data = l->size;
	r->data_size = (uint32_t)size;
	l->size += padded;
	return memset(l->bytes + r->data, 0, padded);
}

bool nodes_index(struct node_list *l)
{
	size_t size = 16;

	while (size < l->count * 2)
		size *= 2;
	free(l->index);
	if (!(l->index = malloc(size * sizeof(*l->index))))
		return nodes_no_memory(l);
	memset(l->index, 0xff, size * sizeof(*l->index)); /* TT_NO_ID */
	l->index_mask = size - 1;
	for (size_t i = 0; i < l->count; i++) {
		size_t h = handle_hash(l->nodes[i].handle) & l->index_mask;
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
	for (size_t h = handle_hash(handle) & l->index_mask; l->index[h] != TT_NO_ID; h = (h + 1) & l->index_mask)
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

/* Flags of a node's position and state, not of its work. */
#define PLACE_FLAGS (TT_GRAPHF_DISABLED | TT_GRAPHF_CONDITIONAL)
#define ATTRIBUTE_FLAGS (TT_GRAPHF_COOPERATIVE | TT_GRAPHF_DEVICE)

bool nodes_same(const struct node_list *l, uint32_t number, const struct node_list *other, uint32_t its)
{
	struct tt_graph_record a = l->nodes[number].record, b = other->nodes[its].record;

	if (a.data_size != b.data_size || (a.data_size && memcmp(l->bytes + a.data, other->bytes + b.data, a.data_size)))
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

bool nodes_any_disabled(const struct node_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->nodes[i].record.flags & TT_GRAPHF_DISABLED)
			return true;
	return false;
}

bool nodes_enable(struct node_list *l, uint32_t number, bool on)
{
	uint32_t *flags = &l->nodes[number].record.flags, before = *flags;

	*flags = on ? before & ~(uint32_t)TT_GRAPHF_DISABLED : before | TT_GRAPHF_DISABLED;
	return *flags != before;
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
	if (to.context != TT_NO_ID) /* drivers do not move a kernel to another context */
		from.context = to.context;
	if (from.data_size > to.data_size && !add_bytes(l, &to, from.data_size))
		return false;
	from.data = to.data;
	if (from.data_size)
		memcpy(l->bytes + from.data, bytes, from.data_size);
	l->nodes[number].record = from;
	return true;
}

/* The nodes of a child graph follow their node, and their edges are contiguous. */
struct node_part nodes_part(const struct node_list *l, uint32_t number)
{
	struct node_part p = {.last = l->count, .last_edge = l->edge_count};

	if (number == TT_NO_ID)
		return p;
	p.first = p.last = (size_t)number + 1;
	while (p.last < l->count && l->nodes[p.last].record.parent != TT_NO_ID && l->nodes[p.last].record.parent >= number)
		p.last++;
	while (p.first_edge < l->edge_count && (l->edges[p.first_edge].from < p.first || l->edges[p.first_edge].from >= p.last))
		p.first_edge++;
	p.last_edge = p.first_edge;
	while (p.last_edge < l->edge_count && l->edges[p.last_edge].from >= p.first && l->edges[p.last_edge].from < p.last)
		p.last_edge++;
	return p;
}

/* Whether a part has the topology of another graph, so that nodes correspond by number. */
bool nodes_same_form(const struct node_list *l, struct node_part p, const struct node_list *other)
{
	if (p.last - p.first != other->count || p.last_edge - p.first_edge != other->edge_count)
		return false;
	for (size_t i = 0; i < other->count; i++) {
		const struct tt_graph_record *a = &l->nodes[p.first + i].record, *b = &other->nodes[i].record;
		bool outermost = b->parent == TT_NO_ID;
		if (a->kind != b->kind || a->branch != b->branch ||
		    (outermost ? a->parent != TT_NO_ID && a->parent >= p.first : a->parent != b->parent + p.first))
			return false;
	}
	for (size_t i = 0; i < other->edge_count; i++) {
		struct tt_graph_edge a = l->edges[p.first_edge + i], b = other->edges[i];
		b.from += (uint32_t)p.first;
		b.to += (uint32_t)p.first;
		if (memcmp(&a, &b, sizeof(a)))
			return false;
	}
	return true;
}

/* ---- the work of nodes ---- */

bool nodes_add_unread(struct node_list *l, uint32_t kind)
{
	struct tt_graph_record *r = nodes_add(l, kind);

	if (r)
		r->flags = TT_GRAPHF_UNREAD;
	return r;
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

bool nodes_add_kernel(struct node_list *l, const struct function *f, uint32_t context, const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct tt_graph_record *r = nodes_add(l, TT_NODE_KERNEL);

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
	r->context = context;
	return add_params(l, r, f, p);
}

static uint64_t place_of(CUmemorytype type, const void *host, CUdeviceptr device)
{
	return type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : type == CU_MEMORYTYPE_ARRAY ? 0 : device;
}

bool nodes_add_copy(struct node_list *l, const CUDA_MEMCPY3D *p)
{
	struct tt_graph_record *r = nodes_add(l, TT_NODE_COPY);
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
	const uint64_t shape[] = {p->WidthInBytes, rows, slices, p->dstPitch, p->srcPitch, p->dstHeight, p->srcHeight};
	bool fits = rows * slices > 1;
	for (size_t i = 0; i < sizeof(shape) / sizeof(*shape); i++)
		fits &= shape[i] <= UINT32_MAX;
	for (size_t i = 0; fits && i < 3; i++)
		r->grid[i] = (uint32_t)shape[i];
	for (size_t i = 0; fits && i < 2; i++) {
		r->block[i] = (uint32_t)shape[3 + i];
		r->cluster[i] = (uint32_t)shape[5 + i];
	}
	return true;
}

bool nodes_add_set(struct node_list *l, const CUDA_MEMSET_NODE_PARAMS *p)
{
	struct tt_graph_record *r = nodes_add(l, TT_NODE_SET);
	uint64_t row = p->width * p->elementSize, rows = p->height ? p->height : 1;

	if (!r)
		return false;
	r->dst = p->dst;
	r->src = p->value;
	r->shared = p->elementSize;
	r->bytes = row * rows;
	r->reach = row + (rows - 1) * p->pitch;
	if (rows > 1 && p->width <= UINT32_MAX && rows <= UINT32_MAX && p->pitch <= UINT32_MAX) {
		r->grid[0] = (uint32_t)p->width;
		r->grid[1] = (uint32_t)rows;
		r->block[0] = (uint32_t)p->pitch;
	}
	return true;
}

bool nodes_add_host(struct node_list *l, CUhostFn function, void *argument)
{
	struct tt_graph_record *r = nodes_add(l, TT_NODE_HOST);

	if (!r)
		return false;
	r->src = (uint64_t)(uintptr_t)function;
	r->dst = (uint64_t)(uintptr_t)argument;
	return true;
}

bool nodes_add_event(struct node_list *l, uint32_t kind, CUevent event)
{
	struct tt_graph_record *r = nodes_add(l, kind);

	if (r)
		r->src = (uint64_t)(uintptr_t)event;
	return r;
}

bool nodes_add_mem_op(struct node_list *l, unsigned count, const CUstreamBatchMemOpParams *list)
{
	struct tt_graph_record *r = nodes_add(l, TT_NODE_MEM_OP);
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
		default: /* of a later CUDA version */
			r->flags |= TT_GRAPHF_UNREAD;
		}
	}
	return true;
}

/* ---- the memory that they reach ---- */

/* Whether a node may write anywhere. As for launches: a kernel without pointers may. */
static bool reaches_all(const struct tt_graph_record *r)
{
	return r->flags & (TT_GRAPHF_UNREAD | TT_GRAPHF_DEVICE) || (r->kind == TT_NODE_KERNEL && !r->data_size);
}

void nodes_gather_one(const struct node_list *l, uint32_t number, struct region_gathering *g)
{
	const struct tt_graph_record *r = &l->nodes[number].record;

	if (r->flags & TT_GRAPHF_DISABLED)
		return;
	if (r->kind == TT_NODE_KERNEL || r->kind == TT_NODE_MEM_OP)
		regions_gather_pointers(g, l->bytes + r->data, r->data_size);
	else if ((r->kind == TT_NODE_COPY || r->kind == TT_NODE_SET) && r->dst && !(r->flags & TT_GRAPHF_HOST_DST))
		regions_gather(g, r->dst, r->reach ? r->reach : 1);
	else if ((r->kind == TT_NODE_ALLOC || r->kind == TT_NODE_FREE) && r->dst)
		regions_gather(g, r->dst, 1);
}

bool nodes_gather(const struct node_list *l, struct region_gathering *g)
{
	bool all = false;

	regions_gather_begin(g);
	for (size_t i = 0; i < l->count && !all; i++) {
		const struct tt_graph_record *r = &l->nodes[i].record;
		all = !(r->flags & TT_GRAPHF_DISABLED) && reaches_all(r);
		nodes_gather_one(l, (uint32_t)i, g);
	}
	regions_gather_end(g);
	return !all && !g->failed;
}

uint64_t nodes_spread(const struct node_list *l)
{
	uint64_t spread = 0;

	for (size_t i = 0; i < l->count; i++) {
		const struct tt_graph_record *r = &l->nodes[i].record;
		bool writes = (r->kind == TT_NODE_COPY || r->kind == TT_NODE_SET) && r->dst;
		struct region *to = writes ? region_find(r->dst) : NULL;
		if (to)
			spread |= context_bit(to->context);
		if (to)
			region_release(to);
		if (r->kind == TT_NODE_KERNEL && r->context != TT_NO_ID)
			spread |= (uint64_t)1 << r->context % 64;
	}
	return spread;
}
