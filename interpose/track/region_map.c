/*
 * Changes the interval map of regions. See region_map.h for the invariant. Callers hold the lock.
 */
#include "track/region_map.h"

#include <stdlib.h>
#include <string.h>

struct regions regions = {.lowest = UINT64_MAX, .lock = PTHREAD_MUTEX_INITIALIZER, .spare_lock = PTHREAD_MUTEX_INITIALIZER};

/* Release order: a reader of a new member also sees that the map changes. */
static void put(struct region_entry *to, uint64_t base, uint64_t end, struct region *r)
{
	__atomic_store_n(&to->base, base, __ATOMIC_RELEASE);
	__atomic_store_n(&to->end, end, __ATOMIC_RELEASE);
	__atomic_store_n(&to->region, r, __ATOMIC_RELEASE);
}

static void move(struct region_entry *to, const struct region_entry *from)
{
	put(to, from->base, from->end, from->region);
}

/* Within the sequence lock. */
static void remove_gaps(void)
{
	struct region_entry *m = entries();
	size_t n = 0;

	for (size_t i = next_region(0, UINT64_MAX); i != SIZE_MAX; i = next_region(i + 1, UINT64_MAX))
		move(&m[n++], &m[i]);
	atomic_store(&regions.count, n);
	regions.gaps = 0;
}

/* Room for one more entry. */
static bool grow(void)
{
	struct region_map *m = atomic_load(&regions.map);

	if (m && regions.count < m->capacity)
		return true;
	if (m && regions.gaps > m->capacity / 2) {
		atomic_fetch_add(&regions.sequence, 1);
		remove_gaps();
		atomic_fetch_add(&regions.sequence, 1);
		return true;
	}
	size_t n = m ? m->capacity * 2 : 1024;
	struct region_map *bigger = malloc(sizeof(*bigger) + n * sizeof(bigger->entries[0]));
	if (!bigger)
		return false;
	bigger->capacity = n;
	if (m)
		memcpy(bigger->entries, m->entries, regions.count * sizeof(m->entries[0]));
	atomic_store_explicit(&regions.map, bigger, memory_order_release);
	return true;
}

/* Makes room before entry i: moves the entries up to the nearest gap, or to the end. Returns the free entry. */
static size_t open_entry(size_t i)
{
	struct region_entry *m = entries();
	size_t left = i, right = i;

	while (right < regions.count && m[right].region && left && m[left - 1].region) {
		left--;
		right++;
	}
	if (left && !m[left - 1].region) {
		for (size_t k = left - 1; k + 1 < i; k++)
			move(&m[k], &m[k + 1]);
		regions.gaps--;
		return i - 1;
	}
	while (right < regions.count && m[right].region)
		right++;
	bool new = right == regions.count;
	for (size_t k = right; k > i; k--)
		move(&m[k], &m[k - 1]);
	atomic_store(&regions.count, regions.count + new);
	regions.gaps -= !new;
	return i;
}

/* Fills the gaps from entry i on that overlap the region's place. False: there are none. */
static bool fill_gaps(size_t i, struct region *r)
{
	uint64_t end = r->base + r->size;
	struct region_entry *m = entries();

	if (i == regions.count || m[i].base >= end)
		return false;
	for (size_t k = i + 1; k < regions.count && m[k].base < end; k++)
		put(&m[k], end, m[k].end > end ? m[k].end : end, NULL);
	put(&m[i], r->base, end, r);
	regions.gaps--;
	return true;
}

bool region_map_add(struct region *r)
{
	uint64_t end = r->base + r->size;

	if (!grow())
		return false;
	size_t i = lower(entries(), regions.count, r->base);
	atomic_fetch_add(&regions.sequence, 1);
	if (!fill_gaps(i, r)) {
		i = open_entry(i);
		put(&entries()[i], r->base, end, r);
	}
	if (r->base < regions.lowest)
		atomic_store(&regions.lowest, r->base);
	if (end > regions.highest)
		atomic_store(&regions.highest, end);
	atomic_fetch_add(&regions.sequence, 1);
	return true;
}

void region_map_remove(size_t i)
{
	atomic_fetch_add(&regions.sequence, 1);
	__atomic_store_n(&entries()[i].region, NULL, __ATOMIC_RELEASE);
	atomic_fetch_add(&regions.sequence, 1);
	regions.gaps++;
}

void region_map_forget(void)
{
	atomic_store(&regions.count, 0);
	regions.gaps = 0;
}
