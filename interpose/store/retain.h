/*
 * The data segments that kept epochs still need.
 *
 * Invariant: for every context with memory, the kept segments list all its blocks again. In doubt, a segment is
 * kept.
 */
#ifndef TT_STORE_RETAIN_H
#define TT_STORE_RETAIN_H

#include <stddef.h>

#include "format.h"

struct retain {
	struct retain_context *contexts;
	struct retain_base *bases;
	size_t context_count, context_room, base_count, base_room;
	_Bool blind; /* out of memory: keep everything from now on */
};

void retain_region(struct retain *t, const struct tt_region *r, uint32_t segment);
void retain_epoch(struct retain *t, const struct tt_epoch *e);
/* The first segment that epochs from `first` on need; at most `newest`, the current one. */
uint32_t retain_oldest(struct retain *t, uint32_t first, uint32_t newest);
void retain_free(struct retain *t);

#endif
