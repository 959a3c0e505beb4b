/*
 * Structures of the launch path that begin at a cache line, so that what a launch reads of them is in one. The driver
 * uses most of the cache between two launches.
 */
#ifndef TT_UTIL_CACHE_LINE_H
#define TT_UTIL_CACHE_LINE_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_LINE 64
#define AT_CACHE_LINE _Alignas(CACHE_LINE) /* of the first member: calloc does not suffice then */

/* All zeros; NULL: no memory. size: of such a structure. */
static inline void *calloc_at_line(size_t size)
{
	void *made = aligned_alloc(CACHE_LINE, size);

	return made ? memset(made, 0, size) : NULL;
}

#endif
