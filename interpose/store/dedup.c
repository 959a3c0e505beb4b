/*
 * The table of stored contents: buckets of eight entries, found by the low bits of the digest. A
 * full bucket doubles the table up to the limit; then a new entry replaces an old one. See dedup.h
 * for the invariant.
 */
#include "store/dedup.h"

#include <stdlib.h>

#define WAYS 8
#define LENGTH_BITS 17

struct dedup_bucket {
	uint64_t digest[WAYS];
	uint64_t place[WAYS]; /* length in the low LENGTH_BITS bits, then two bits of the lane and the offset / 32; 0: free */
};

_Static_assert(TT_DATA_LANES == 4, "two bits of lane");

static uint64_t packed(uint32_t length, uint64_t place)
{
	return (place / 32 << 2 | (place & PLACE_LANE)) << LENGTH_BITS | length;
}

static uint64_t place_of(uint64_t packed)
{
	uint64_t place = packed >> LENGTH_BITS;

	return (place >> 2) * 32 | (place & 3);
}

void dedup_init(struct dedup *d, size_t limit_bytes)
{
	*d = (struct dedup){.limit = limit_bytes / sizeof(struct dedup_bucket)};
}

void dedup_clear(struct dedup *d)
{
	free(d->buckets);
	d->buckets = NULL;
	d->count = 0;
}

bool dedup_find(const struct dedup *d, uint64_t digest, uint32_t length, uint64_t *place)
{
	if (!d->count)
		return false;
	const struct dedup_bucket *b = d->buckets + (digest & (d->count - 1));
	for (unsigned i = 0; i < WAYS; i++)
		if (b->digest[i] == digest && (b->place[i] & ((1u << LENGTH_BITS) - 1)) == length && b->place[i]) {
			*place = place_of(b->place[i]);
			return true;
		}
	return false;
}

void dedup_prefetch(const struct dedup *d, uint64_t digest)
{
	if (!d->count)
		return;
	const struct dedup_bucket *b = d->buckets + (digest & (d->count - 1));
	__builtin_prefetch(b->digest);
	__builtin_prefetch(b->place);
}

static bool grow(struct dedup *d)
{
	size_t count = d->count ? d->count * 2 : 64;
	struct dedup_bucket *buckets = count <= d->limit ? calloc(count, sizeof(*buckets)) : NULL;

	if (!buckets)
		return false;
	for (size_t i = 0; i < d->count; i++) {
		unsigned used[2] = {0, 0};
		for (unsigned k = 0; k < WAYS; k++) {
			uint64_t digest = d->buckets[i].digest[k], place = d->buckets[i].place[k];
			bool upper = digest & d->count;
			struct dedup_bucket *b = buckets + i + (upper ? d->count : 0);
			if (!place)
				continue;
			b->digest[used[upper]] = digest;
			b->place[used[upper]++] = place;
		}
	}
	free(d->buckets);
	d->buckets = buckets;
	d->count = count;
	return true;
}

void dedup_put(struct dedup *d, uint64_t digest, uint32_t length, uint64_t place)
{
	struct dedup_bucket *b;
	unsigned i;

	if (!d->count && !grow(d))
		return;
	do {
		b = d->buckets + (digest & (d->count - 1));
		for (i = 0; i < WAYS && b->place[i]; i++)
			continue;
	} while (i == WAYS && grow(d));
	if (i == WAYS)
		i = d->turn++ % WAYS;
	b->digest[i] = digest;
	b->place[i] = packed(length, place);
}

void dedup_drop(struct dedup *d, const uint64_t *from)
{
	for (size_t i = 0; i < d->count; i++)
		for (unsigned k = 0; k < WAYS; k++) {
			uint64_t place = place_of(d->buckets[i].place[k]);
			if ((place & PLACE_OFFSET) >= from[place & PLACE_LANE])
				d->buckets[i].place[k] = 0;
		}
}
