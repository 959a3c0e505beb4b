/*
 * The table of stored contents: buckets of eight entries. An entry is in one of two buckets, found by the low bits of
 * both halves of the digest, and goes to the one with more room: so the table is nearly full before an entry finds
 * none. Then it doubles up to the limit, and after that an entry replaces an old one. See dedup.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/dedup.h"

#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20)
#define WAYS 8
#define LENGTH_BITS 17

struct dedup_bucket {
	uint64_t digest[WAYS];
	uint64_t place[WAYS]; /* length in the low LENGTH_BITS bits, then two bits of the lane and the offset / 32; 0: free */
};

_Static_assert(TT_DATA_LANES == 4, "two bits of lane");

/* Zeros, in large pages if available: writers wait while the table grows, and faults of small pages take longest. */
static bool allocate(struct dedup *d, size_t count)
{
	size_t size = count * sizeof(struct dedup_bucket);
	size_t mapped = size + (size < LARGE_PAGE ? 0 : LARGE_PAGE);
	char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return false;
	if (mapped > size)
		madvise(map, mapped, MADV_HUGEPAGE);
	d->map = map;
	d->mapped = mapped;
	d->buckets = (struct dedup_bucket *)(map + (mapped > size ? -(uintptr_t)map % LARGE_PAGE : 0));
	d->count = count;
	return true;
}

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
	if (d->count)
		munmap(d->map, d->mapped);
	d->buckets = NULL;
	d->count = 0;
}

static struct dedup_bucket *bucket(const struct dedup *d, uint64_t digest, unsigned choice)
{
	return d->buckets + (digest >> 32 * choice & (d->count - 1));
}

bool dedup_find(const struct dedup *d, uint64_t digest, uint32_t length, uint64_t *place)
{
	for (unsigned choice = 0; d->count && choice < 2; choice++) {
		const struct dedup_bucket *b = bucket(d, digest, choice);
		for (unsigned i = 0; i < WAYS; i++)
			if (b->digest[i] == digest && (b->place[i] & ((1u << LENGTH_BITS) - 1)) == length && b->place[i]) {
				*place = place_of(b->place[i]);
				return true;
			}
	}
	return false;
}

void dedup_prefetch(const struct dedup *d, uint64_t digest)
{
	for (unsigned choice = 0; d->count && choice < 2; choice++) {
		__builtin_prefetch(bucket(d, digest, choice)->digest);
		__builtin_prefetch(bucket(d, digest, choice)->place);
	}
}

static bool grow(struct dedup *d)
{
	size_t count = d->count ? d->count * 2 : 64;
	struct dedup old = *d;

	if (count > d->limit || !allocate(d, count))
		return false;
	for (size_t i = 0; i < old.count; i++) {
		unsigned used[2] = {0, 0};
		for (unsigned k = 0; k < WAYS; k++) {
			uint64_t digest = old.buckets[i].digest[k], place = old.buckets[i].place[k];
			bool upper = (bucket(&old, digest, 0) == old.buckets + i ? digest : digest >> 32) & old.count;
			struct dedup_bucket *b = d->buckets + i + (upper ? old.count : 0);
			if (!place)
				continue;
			b->digest[used[upper]] = digest;
			b->place[used[upper]++] = place;
		}
	}
	dedup_clear(&old);
	return true;
}

static unsigned entries(const struct dedup_bucket *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < WAYS; i++)
		n += b->place[i] != 0;
	return n;
}

void dedup_put(struct dedup *d, uint64_t digest, uint32_t length, uint64_t place)
{
	struct dedup_bucket *b, *other;
	unsigned i = 0;

	if (!d->count && !grow(d))
		return;
	do {
		b = bucket(d, digest, 0);
		other = bucket(d, digest, 1);
		b = entries(other) < entries(b) ? other : b;
	} while (entries(b) == WAYS && grow(d));
	while (i < WAYS && b->place[i])
		i++;
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
