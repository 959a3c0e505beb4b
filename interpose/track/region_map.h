/*
 * The interval map of regions: a sorted array under a sequence lock.
 *
 * Invariant: lookups on the launch path take no lock, and retry if a birth or death changed the array; all accesses
 * are atomic. Outgrown arrays are kept, because a reader may still use one. Entries do not overlap. A region that
 * died leaves a gap, which a birth at the same place fills again: a program that frees and allocates moves little.
 */
#ifndef TT_TRACK_REGION_MAP_H
#define TT_TRACK_REGION_MAP_H

#include <pthread.h>

#include "track/regions.h"
#include "util/vector.h"

struct region_entry {
	uint64_t base, end;
	struct region *region; /* NULL: a gap, possibly of no bytes */
};

struct region_map {
	size_t capacity;
	struct region_entry entries[];
};

extern struct regions {
	struct region_map *_Atomic map;
	_Atomic size_t count; /* of entries, with the gaps */
	size_t gaps;
	_Atomic uint64_t sequence; /* odd while the map changes */
	_Atomic uint64_t lowest, highest; /* of all live regions: most words are not pointers */
	_Atomic uint64_t version; /* changes at every birth, death and access change */
	uint32_t next_id;
	pthread_mutex_t lock __attribute__((aligned(64))); /* not in a cache line that launches read */
	struct region *spare; /* regions are never freed, so a late mark is harmless */
	pthread_mutex_t spare_lock;
} regions;

static inline struct region_entry *entries(void)
{
	struct region_map *m = atomic_load_explicit(&regions.map, memory_order_acquire);

	return m ? m->entries : NULL;
}

static inline uint64_t base_of(const struct region_entry *e)
{
	return __atomic_load_n(&e->base, __ATOMIC_RELAXED);
}

static inline uint64_t end_of(const struct region_entry *e)
{
	return __atomic_load_n(&e->end, __ATOMIC_RELAXED);
}

static inline struct region *region_of(const struct region_entry *e)
{
	return __atomic_load_n(&e->region, __ATOMIC_RELAXED);
}

/* Index of the first entry whose end is above address. */
static inline size_t lower(const struct region_entry *m, size_t n, uint64_t address)
{
	return lower_bound(n, i, end_of(&m[i]) <= address);
}

/* Index of the first region from entry i on that begins below end; SIZE_MAX: none. Caller holds the lock. */
static inline size_t next_region(size_t i, uint64_t end)
{
	const struct region_entry *m = entries();
	size_t n = atomic_load_explicit(&regions.count, memory_order_relaxed);

	while (i < n && m[i].base < end && !m[i].region)
		i++;
	return i < n && m[i].base < end ? i : SIZE_MAX;
}

/* Index of the first region in [base, end); SIZE_MAX: none. Caller holds the lock. */
static inline size_t first_region(uint64_t base, uint64_t end)
{
	return next_region(lower(entries(), regions.count, base), end);
}

/* Adds a region to a place where no other is. False: no memory. Caller holds the lock, as for the others. */
bool region_map_add(struct region *r);
/* Entry i becomes a gap. */
void region_map_remove(size_t i);
void region_map_forget(void); /* in a forked child */

#endif
