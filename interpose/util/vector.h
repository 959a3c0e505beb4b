/*
 * Arrays that grow by doubling.
 */
#ifndef TT_UTIL_VECTOR_H
#define TT_UTIL_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` items of `item` bytes behind the first `used`. array: the address of the pointer to them. */
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

#endif
