/*
 * The free parts of a range of addresses.
 *
 * Invariant: the list is sorted, and no two of its ranges overlap or adjoin.
 */
#ifndef TT_CAPTURE_FREE_RANGES_H
#define TT_CAPTURE_FREE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct free_range {
	uint64_t start, size;
};

struct free_ranges {
	struct free_range *list;
	size_t count, room;
};

/* False: no memory for the list; the range is lost. */
bool free_ranges_add(struct free_ranges *f, uint64_t start, uint64_t size);
/* Takes from the lowest range that is large enough. False: there is none. */
bool free_ranges_take(struct free_ranges *f, uint64_t size, uint64_t *start);
/* Removes this range, if it is in the list. False: it is not. */
bool free_ranges_remove(struct free_ranges *f, uint64_t start, uint64_t size);
void free_ranges_end(struct free_ranges *f);

#endif
