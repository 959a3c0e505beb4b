/*
 * Memory that an executable graph allocates for itself, and that stays allocated after a launch. Memory that a launch
 * allocates and frees again is never a region: no epoch can be between the two.
 */
#include <stdlib.h>

#include "track/graphs_internal.h"

struct kept_memory {
	uint64_t base, size;
	uint64_t device; /* as in tt_graph_record.src */
	int64_t left;    /* allocations minus frees of one launch; not 0 */
};

static int by_base(const void *a, const void *b)
{
	const struct kept_memory *left = a, *right = b;

	return (left->base > right->base) - (left->base < right->base);
}

/* Nodes inside a conditional node may not run. */
static bool counts(const struct tt_graph_record *r)
{
	return (r->kind == TT_NODE_ALLOC || r->kind == TT_NODE_FREE) && r->dst && !(r->flags & TT_GRAPHF_CONDITIONAL);
}

/* One entry for each address. Returns their number. */
static size_t add_up(struct kept_memory *list, size_t count)
{
	size_t kept = 0;

	qsort(list, count, sizeof(*list), by_base);
	for (size_t i = 0, next; i < count; i = next) {
		struct kept_memory sum = list[i];
		for (next = i + 1; next < count && list[next].base == sum.base; next++) {
			sum.left += list[next].left;
			if (list[next].size) {
				sum.size = list[next].size;
				sum.device = list[next].device;
			}
		}
		if (sum.left)
			list[kept++] = sum;
	}
	return kept;
}

bool graph_memory_read(struct exec *x)
{
	const struct node_list *l = &x->nodes;
	size_t count = 0;

	free(x->memory);
	x->memory = NULL;
	for (size_t i = 0; i < l->count; i++)
		count += counts(&l->nodes[i].record);
	struct kept_memory *list = count ? malloc(count * sizeof(*list)) : NULL;
	if (!list)
		return !count;
	count = 0;
	for (size_t i = 0; i < l->count; i++) {
		const struct tt_graph_record *r = &l->nodes[i].record;
		if (counts(r))
			list[count++] = (struct kept_memory){r->dst, r->bytes, r->src, r->kind == TT_NODE_ALLOC ? 1 : -1};
	}
	if ((x->memory_count = add_up(list, count)))
		x->memory = list;
	else
		free(list);
	return true;
}

bool graph_keeps_memory(const struct exec *x)
{
	return x && atomic_load_explicit(&x->memory, memory_order_relaxed);
}

bool graph_memory_launched(struct exec *x, struct context *c, const struct region_origin *origin)
{
	bool born = false;

	graphs_lock();
	for (size_t i = 0; x->memory && i < x->memory_count; i++) {
		const struct kept_memory *m = &x->memory[i];
		if (m->left < 0)
			region_died(m->base, origin);
		else if (m->size && m->device == (uint64_t)c->device)
			born |= region_born(c, TT_REGION_ASYNC, m->base, m->size, TT_NO_ID, origin) != TT_NO_ID;
	}
	graphs_unlock();
	return born;
}
