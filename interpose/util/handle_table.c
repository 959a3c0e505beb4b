/*
 * A table by handle. See handle_table.h for the invariant.
 */
#include "util/handle_table.h"

#include <stdlib.h>

#define FIRST 256

static void *_Atomic removed = &removed; /* marks removed slots, which lookups skip */

static void put(struct handle_table *t, void *_Atomic *thing)
{
	void *_Atomic *there;
	size_t h = handle_hash(*thing) & t->mask;

	while ((there = t->slots[h]) && there != &removed)
		h = (h + 1) & t->mask;
	atomic_store_explicit(&t->slots[h], thing, memory_order_release);
	t->used += !there;
}

bool handle_add(struct handle_table *_Atomic *table, void *_Atomic *thing)
{
	struct handle_table *t = atomic_load(table);

	if (!t || t->used * 2 > t->mask) {
		size_t living = 0, size = FIRST;
		for (size_t i = 0; t && i <= t->mask; i++)
			living += t->slots[i] && t->slots[i] != &removed;
		while (size < living * 4)
			size *= 2;
		struct handle_table *n = calloc(1, sizeof(*n) + size * sizeof(n->slots[0]));
		if (!n)
			return false;
		n->mask = size - 1;
		for (size_t i = 0; t && i <= t->mask; i++)
			if (t->slots[i] && t->slots[i] != &removed)
				put(n, t->slots[i]);
		atomic_store_explicit(table, n, memory_order_release);
		t = n;
	}
	put(t, thing);
	return true;
}

/* Removed slots become empty if the next slot is empty. */
void handle_remove(struct handle_table *_Atomic *table, void *_Atomic *thing)
{
	struct handle_table *t = atomic_load(table);
	size_t h = t ? handle_hash(*thing) & t->mask : 0;

	while (t && t->slots[h] && t->slots[h] != thing)
		h = (h + 1) & t->mask;
	if (!t || !t->slots[h])
		return;
	atomic_store(&t->slots[h], &removed);
	if (t->slots[(h + 1) & t->mask])
		return;
	for (; t->slots[h] == &removed; h = (h - 1) & t->mask) {
		atomic_store(&t->slots[h], NULL);
		t->used--;
	}
}
