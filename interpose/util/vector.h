/*
 * Arrays that grow by doubling, and sorted ones.
 */
#ifndef TT_UTIL_VECTOR_H
#define TT_UTIL_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` items of `item` bytes after the first `used`. array: address of the pointer to them. */
static inline bool make_room(void *array, size_t *room, size_t used, size_t more, size_t item)
{
	size_t wanted = *room ? *room : 16;
	void *items;

	if (used + more <= *room)
		return true;
	while (wanted < used + more)
		wanted *= 2;
	memcpy(&items, array, sizeof(items));
	void *grown = realloc(items, wanted * item);
	if (!grown)
		return false;
	memcpy(array, &grown, sizeof(grown));
	*room = wanted;
	return true;
}

/* The index of the first of `count` sorted items that is not `before`, an expression of the index i. */
#define lower_bound(count, i, before) \
	({ \
		size_t first_ = 0, left_ = (count); \
		while (left_) { \
			size_t half_ = left_ / 2, i = first_ + half_; \
			if (before) { \
				first_ = i + 1; \
				left_ -= half_ + 1; \
			} else { \
				left_ = half_; \
			} \
		} \
		first_; \
	})

#endif
