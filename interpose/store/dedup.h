/*
 * The contents in the current data segment, and their positions.
 *
 * Invariant: an entry of the table was stored and not dropped since. The table is bounded, so it may lack an entry;
 * then the contents are stored a second time.
 */
#ifndef TT_STORE_DEDUP_H
#define TT_STORE_DEDUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"

#define DEDUP_BYTES (32u << 20) /* limit of its memory: two million blocks, 128 GiB of contents */

struct dedup {
	struct dedup_bucket *buckets; /* their number is a power of two */
	size_t count, limit, mapped;
	void *map; /* their memory */
	uint32_t turn; /* selects the entry of a full bucket to replace */
};

/* A position in a segment's data files: the offset, a multiple of 32 other than 0, plus the file's lane. */
#define PLACE_LANE 31
#define PLACE_OFFSET (~(uint64_t)PLACE_LANE)

void dedup_init(struct dedup *d, size_t limit_bytes);
bool dedup_find(const struct dedup *d, uint64_t digest, uint32_t length, uint64_t *place);
/* Call before dedup_find or dedup_put of this digest. */
void dedup_prefetch(const struct dedup *d, uint64_t digest);
/* length: 1 to 65536 */
void dedup_put(struct dedup *d, uint64_t digest, uint32_t length, uint64_t place);
/* Drops all entries at or after from[lane] in their lane. from: TT_DATA_LANES offsets. */
void dedup_drop(struct dedup *d, const uint64_t *from);
void dedup_clear(struct dedup *d);

#endif
