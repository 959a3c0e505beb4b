/*
 * Finds regions by address and by words of parameters. See region_map.h for the invariant.
 */
#include <string.h>

#include "track/region_map.h"
#include "util/vector.h"

/*
 * Takes no lock; repeats if the map changed meanwhile. A mark may hit a region that reuses the memory of a dead
 * one: then the next epoch reads that one too, which is harmless.
 */
void regions_touch(uint64_t base, uint64_t size)
{
	uint64_t before;

	if (base + size <= atomic_load_explicit(&regions.lowest, memory_order_relaxed) ||
	    base >= atomic_load_explicit(&regions.highest, memory_order_relaxed))
		return;
	do {
		while ((before = atomic_load_explicit(&regions.sequence, memory_order_acquire)) & 1)
			continue;
		struct region_map *m = atomic_load_explicit(&regions.map, memory_order_acquire);
		size_t n = atomic_load_explicit(&regions.count, memory_order_acquire);
		if (n > m->capacity)
			continue;
		for (size_t i = lower(m->entries, n, base); i < n && base_of(&m->entries[i]) < base + size; i++) {
			struct region *r = region_of(&m->entries[i]);
			if (r)
				atomic_store_explicit(&r->touched, true, memory_order_relaxed);
		}
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&regions.sequence, memory_order_relaxed) != before);
}

/* Visits a region; true: stop. */
typedef bool visitor(struct region *r, void *to);

/*
 * Visits the regions that words point to; adjacent words often point into one region, which is looked up once.
 * Returns the start of the region at which visit stopped, or 0.
 */
static inline __attribute__((always_inline)) uint64_t visit_pointed(const struct region_entry *m, size_t n, const void *bytes,
								    size_t size, visitor *visit, void *to)
{
	uint64_t first = atomic_load_explicit(&regions.lowest, memory_order_relaxed);
	uint64_t all = atomic_load_explicit(&regions.highest, memory_order_relaxed) - first;
	uint64_t word, from = 0, span = 0; /* the region of the previous word */

	for (size_t at = 0; at + 8 <= size; at += 8) {
		memcpy(&word, (const char *)bytes + at, 8);
		if (word - first >= all || word - from < span)
			continue;
		size_t i = lower(m, n, word);
		struct region *r = i < n && base_of(&m[i]) <= word ? region_of(&m[i]) : NULL;
		if (!r)
			continue;
		from = base_of(&m[i]);
		span = end_of(&m[i]) - from;
		if (visit(r, to))
			return from;
	}
	return 0;
}

/* The same without the lock, which other threads need. */
static inline __attribute__((always_inline)) uint64_t visit_unlocked(const void *bytes, size_t size, visitor *visit, void *to)
{
	uint64_t before, found = 0;

	do {
		while ((before = atomic_load_explicit(&regions.sequence, memory_order_acquire)) & 1)
			continue;
		struct region_map *m = atomic_load_explicit(&regions.map, memory_order_acquire);
		size_t n = atomic_load_explicit(&regions.count, memory_order_acquire);
		if (!m)
			return 0;
		if (n > m->capacity)
			continue;
		found = visit_pointed(m->entries, n, bytes, size, visit, to);
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&regions.sequence, memory_order_relaxed) != before);
	return found;
}

static inline bool touch_one(struct region *r, void *unused)
{
	(void)unused;
	if (!atomic_load_explicit(&r->touched, memory_order_relaxed))
		atomic_store_explicit(&r->touched, true, memory_order_relaxed);
	return false;
}

void regions_touch_pointers(const void *bytes, size_t size)
{
	visit_unlocked(bytes, size, touch_one, NULL);
}

static inline bool is_captured(struct region *r, void *awaited)
{
	return (int32_t)(atomic_load_explicit(&r->captured_by, memory_order_relaxed) - *(const uint32_t *)awaited) > 0;
}

uint64_t regions_point_to_captured(const void *bytes, size_t size, uint32_t awaited)
{
	return visit_unlocked(bytes, size, is_captured, &awaited);
}

void regions_gather_begin(struct region_gathering *g)
{
	static uint64_t gatherings;

	pthread_mutex_lock(&regions.lock);
	g->count = 0;
	g->failed = false;
	g->number = ++gatherings;
	g->version = atomic_load(&regions.version);
}

static bool gather(struct region *r, void *to)
{
	struct region_gathering *g = to;

	if (r->gathered == g->number)
		return false;
	r->gathered = g->number;
	if (make_room(&g->list, &g->room, g->count, 1, sizeof(*g->list)))
		g->list[g->count++] = r;
	else
		g->failed = true;
	return false;
}

void regions_gather(struct region_gathering *g, uint64_t base, uint64_t size)
{
	for (size_t i = first_region(base, base + size); i != SIZE_MAX; i = next_region(i + 1, base + size))
		gather(entries()[i].region, g);
}

void regions_gather_pointers(struct region_gathering *g, const void *bytes, size_t size)
{
	visit_pointed(entries(), regions.count, bytes, size, gather, g);
}

void regions_gather_neighbours(struct region_gathering *g)
{
	for (size_t i = 0, given = g->count; i < given; i++)
		regions_gather(g, g->list[i]->base - 1, g->list[i]->size + 2);
}

void regions_gather_end(struct region_gathering *g)
{
	(void)g;
	pthread_mutex_unlock(&regions.lock);
}

bool regions_unchanged_since(uint64_t version)
{
	return version == atomic_load_explicit(&regions.version, memory_order_acquire);
}

bool regions_gathered_still(const struct region_gathering *g)
{
	return regions_unchanged_since(g->version);
}

uint64_t regions_version_now(void)
{
	return atomic_load_explicit(&regions.version, memory_order_acquire);
}
