/*
 * A table by handle with look-ups that take no lock: open addressing, one slot per entry.
 *
 * Invariant: a caller that adds or removes holds its own lock. An entry begins with its handle, a
 * `void *_Atomic`, and stays a valid pointer for the life of the process: readers may find it after
 * its removal, or again under another handle. A grown table leaves the old one to its readers.
 */
#ifndef TT_UTIL_HANDLE_TABLE_H
#define TT_UTIL_HANDLE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct handle_table {
	size_t mask, used; /* used: slots that are not empty */
	void *_Atomic *_Atomic slots[];
};

static inline size_t handle_hash(const void *handle)
{
	return (size_t)(((uintptr_t)handle * 0x9e3779b97f4a7c15ull) >> 32);
}

/* NULL: not found. */
static inline void *handle_find(struct handle_table *_Atomic *table, const void *handle)
{
	struct handle_table *t = atomic_load_explicit(table, memory_order_acquire);
	void *_Atomic *thing;

	for (size_t h = t ? handle_hash(handle) & t->mask : 0;
	     t && (thing = atomic_load_explicit(&t->slots[h], memory_order_acquire)); h = (h + 1) & t->mask)
		if (atomic_load_explicit(thing, memory_order_acquire) == handle)
			return thing;
	return NULL;
}

/* False: no memory. thing: its handle, which is its first member. */
bool handle_add(struct handle_table *_Atomic *table, void *_Atomic *thing);
/* The handle must be unchanged since it was added. No effect if it is not in the table. */
void handle_remove(struct handle_table *_Atomic *table, void *_Atomic *thing);

#endif
