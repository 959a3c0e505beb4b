/*
 * The memory that an executable graph reaches, looked up again when the graph or the regions changed.
 *
 * Invariant: an answer covers all memory that the graph may write, or says "unknown".
 */
#include "track/graphs_internal.h"

#include "track/regions.h"

/* Reserves the graph's regions and updates them. False: unknown. */
static bool enter(struct exec *x)
{
	if (atomic_exchange_explicit(&x->busy, true, memory_order_acquire))
		return false; /* two threads launch it at once, which CUDA forbids */
	if (atomic_load(&x->outdated) || !regions_gathered_still(&x->regions)) {
		graphs_lock();
		atomic_store(&x->outdated, false);
		x->reaches_all = !nodes_gather(&x->nodes, &x->regions) || x->unread;
		graphs_unlock();
	}
	if (x->reaches_all)
		atomic_store_explicit(&x->busy, false, memory_order_release);
	return !x->reaches_all;
}

static void leave(struct exec *x)
{
	atomic_store_explicit(&x->busy, false, memory_order_release);
}

bool graph_touch(struct exec *x)
{
	if (!x || !enter(x))
		return false;
	for (size_t i = 0; i < x->regions.count; i++)
		atomic_store_explicit(&x->regions.list[i]->touched, true, memory_order_relaxed);
	leave(x);
	return true;
}

bool graph_may_write_captured(struct exec *x, uint32_t awaited, uint64_t *base)
{
	bool may = false;

	if (!x || !enter(x))
		return true;
	for (size_t i = 0; i < x->regions.count && !may; i++) {
		const struct region *r = x->regions.list[i];
		may = (int32_t)(atomic_load_explicit(&r->captured_by, memory_order_relaxed) - awaited) > 0;
		*base = may ? r->base : 0;
	}
	leave(x);
	return may;
}

uint64_t graph_spread(struct exec *x)
{
	if (atomic_load(&x->spread_outdated)) {
		graphs_lock();
		atomic_store(&x->spread_outdated, false);
		atomic_store(&x->spread, nodes_spread(&x->nodes));
		graphs_unlock();
	}
	return atomic_load(&x->spread);
}

/* Does not lock: the caller holds the map's lock, and the program may not change a graph while launching it. */
void graph_gather_node(struct exec *x, uint32_t number, struct region_gathering *g)
{
	if (number < x->nodes.count)
		nodes_gather_one(&x->nodes, number, g);
}

void graph_gather(struct exec *x, struct region_gathering *g)
{
	for (size_t i = 0; i < x->nodes.count; i++)
		nodes_gather_one(&x->nodes, (uint32_t)i, g);
}
