/*
 * Regions by address and by the words of parameters. See region_map.h for the invariant.
 */
#include <string.h>

#include "track/region_map.h"
#include "util/vector.h"

/* Without a lock: repeated where the map changed meanwhile. A mark on a region that ended and
 * whose place is another's by now makes the next epoch read that one too, and no more. */
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
		for (size_t i = lower(m->entries, n, base); i < n && base_of(&m->entries[i]) < base + size; i++)
			atomic_store_explicit(&region_of(&m->entries[i])->touched, true, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&regions.sequence, memory_order_relaxed) != before);
}

/* Takes a look at a region; true: that is enough. */
typedef bool visitor(struct region *r, uint32_t value);

/* The regions that words point to; neighbours tend to point into one, which is looked up once. Where that
 * begins which was enough, or 0. */
static inline __attribute__((always_inline)) uint64_t visit_pointed(const void *bytes, size_t size, visitor *visit,
								    uint32_t value)
{
	uint64_t before, word, found;

	do {
		uint64_t from = 0, span = 0; /* the region of the word before */
		while ((before = atomic_load_explicit(&regions.sequence, memory_order_acquire)) & 1)
			continue;
		struct region_map *m = atomic_load_explicit(&regions.map, memory_order_acquire);
		size_t n = atomic_load_explicit(&regions.count, memory_order_acquire);
		uint64_t first = atomic_load_explicit(&regions.lowest, memory_order_relaxed);
		uint64_t all = atomic_load_explicit(&regions.highest, memory_order_relaxed) - first;
		found = 0;
		if (!m)
			return 0;
		if (n > m->capacity)
			continue;
		for (size_t at = 0; at + 8 <= size && !found; at += 8) {
			memcpy(&word, (const char *)bytes + at, 8);
			if (word - first >= all || word - from < span)
				continue;
			size_t i = lower(m->entries, n, word);
			if (i == n || base_of(&m->entries[i]) > word)
				continue;
			from = base_of(&m->entries[i]);
			span = end_of(&m->entries[i]) - from;
			if (visit(region_of(&m->entries[i]), value))
				found = from;
		}
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&regions.sequence, memory_order_relaxed) != before);
	return found;
}

static inline bool touch_one(struct region *r, uint32_t unused)
{
	(void)unused;
	if (!atomic_load_explicit(&r->touched, memory_order_relaxed))
		atomic_store_explicit(&r->touched, true, memory_order_relaxed);
	return false;
}

void regions_touch_pointers(const void *bytes, size_t size)
{
	visit_pointed(bytes, size, touch_one, 0);
}

static inline bool is_captured(struct region *r, uint32_t seen)
{
	return (int32_t)(atomic_load_explicit(&r->captured_by, memory_order_relaxed) - seen) > 0;
}

uint64_t regions_point_to_captured(const void *bytes, size_t size, uint32_t seen)
{
	return visit_pointed(bytes, size, is_captured, seen);
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

static void gather(struct region_gathering *g, struct region *r)
{
	if (r->gathered == g->number)
		return;
	r->gathered = g->number;
	if (make_room(&g->list, &g->room, g->count, 1, sizeof(*g->list)))
		g->list[g->count++] = r;
	else
		g->failed = true;
}

void regions_gather(struct region_gathering *g, uint64_t base, uint64_t size)
{
	for (size_t i = lower(entries(), regions.count, base); i < regions.count && entries()[i].base < base + size; i++)
		gather(g, entries()[i].region);
}

void regions_gather_pointers(struct region_gathering *g, const void *bytes, size_t size)
{
	uint64_t first = regions.lowest, all = regions.highest - first, word, from = 0, span = 0;

	for (size_t at = 0; at + 8 <= size; at += 8) {
		memcpy(&word, (const char *)bytes + at, 8);
		if (word - first >= all || word - from < span)
			continue;
		size_t i = lower(entries(), regions.count, word);
		if (i == regions.count || entries()[i].base > word)
			continue;
		from = entries()[i].base;
		span = entries()[i].end - from;
		gather(g, entries()[i].region);
	}
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
