/*
 * Passes over digests and blocks. See spans.h.
 */
#include "load/spans.h"

#include <stdbool.h>

#include "format.h"

#define EXPORT __attribute__((visibility("default")))

static bool block_fits(const struct tt_block *b, uint64_t size)
{
	uint64_t begin = (uint64_t)b->block * TT_BLOCK_SIZE, left = size - begin;

	return begin < size && b->length == (left < TT_BLOCK_SIZE ? left : TT_BLOCK_SIZE);
}

static bool digest_fits(const struct tt_digest *d, uint64_t size)
{
	return d->changed <= (size + TT_BLOCK_SIZE - 1) / TT_BLOCK_SIZE;
}

EXPORT uint64_t tt_doubtful_record(const void *records, uint32_t size, uint64_t count, uint32_t first, uint64_t epochs,
				   const uint64_t *counts, uint64_t regions, const uint32_t *born, const uint32_t *died,
				   const uint64_t *sizes, const uint64_t *places, uint32_t *seen)
{
	bool blocks = size == sizeof(struct tt_block);
	uint64_t i = 0;

	for (uint64_t e = 0; e < epochs; e++) {
		for (uint64_t end = i + counts[e]; i < end; i++) {
			const struct tt_digest *d = (const void *)((const char *)records + i * size);
			if (i == count || d->region >= regions)
				return i;
			if (born[d->region] > first + e || died[d->region] <= first + e)
				return i;
			if (blocks ? !block_fits((const void *)d, sizes[d->region]) : !digest_fits(d, sizes[d->region]))
				return i;
			uint64_t place = places[d->region] + (blocks ? d->changed : 0);
			if (seen[place] == e + 1) /* twice in this epoch */
				return i;
			seen[place] = (uint32_t)e + 1;
		}
	}
	return count;
}

/* One side of a comparison. `stamp` of a place is the last position with a record, from 1. */
struct side {
	const char *records;
	uint32_t size;
	uint64_t regions;
	const int64_t *bases;
};

static uint64_t place_of(const struct side *s, uint64_t record, uint64_t places)
{
	const struct tt_digest *d = (const void *)(s->records + record * s->size);
	int64_t base = d->region < s->regions ? s->bases[d->region] : -1;
	uint64_t place = (uint64_t)base + (s->size == sizeof(struct tt_block) ? d->changed : 0);

	return base < 0 || place >= places ? UINT64_MAX : place;
}

static uint64_t digest_at(const struct side *s, uint64_t record)
{
	return ((const struct tt_digest *)(const void *)(s->records + record * s->size))->digest;
}

EXPORT void tt_differing_places(const void *a, const void *b, uint32_t size, uint64_t begin, uint64_t positions,
				const uint64_t *ends_a, const uint64_t *ends_b, uint64_t regions_a, const int64_t *bases_a,
				uint64_t regions_b, const int64_t *bases_b, uint64_t places, uint64_t *held, uint8_t *differs,
				uint32_t *listed)
{
	const struct side sides[2] = {{a, size, regions_a, bases_a}, {b, size, regions_b, bases_b}};
	const uint64_t *ends[2] = {ends_a, ends_b};
	uint64_t at[2] = {0, 0};

	for (uint64_t p = 0; p < positions; p++) {
		uint64_t stamp = begin + p + 1, alone = 0; /* places of a that b has no record of */
		for (uint64_t i = at[0]; i < ends[0][p]; i++) {
			uint64_t place = place_of(&sides[0], i, places);
			if (place == UINT64_MAX)
				continue;
			uint64_t *h = &held[4 * place];
			if (!(h[2] | h[3]))
				listed[place] = (uint32_t)(begin + p);
			alone += h[2] != stamp;
			h[0] = digest_at(&sides[0], i);
			h[2] = stamp;
		}
		for (uint64_t i = at[1]; i < ends[1][p]; i++) {
			uint64_t place = place_of(&sides[1], i, places);
			if (place == UINT64_MAX)
				continue;
			uint64_t *h = &held[4 * place];
			if (!(h[2] | h[3]))
				listed[place] = (uint32_t)(begin + p);
			alone -= h[2] == stamp && h[3] != stamp;
			h[1] = digest_at(&sides[1], i);
			h[3] = stamp;
			differs[place] |= h[0] != h[1] || h[2] != h[3];
		}
		for (uint64_t i = at[0]; alone && i < ends[0][p]; i++) {
			uint64_t place = place_of(&sides[0], i, places);
			if (place != UINT64_MAX)
				differs[place] |= held[4 * place + 2] != held[4 * place + 3];
		}
		at[0] = ends[0][p];
		at[1] = ends[1][p];
	}
}

EXPORT uint64_t tt_wanted_records(const void *records, uint32_t size, uint32_t count, uint64_t regions, const uint8_t *wanted,
				  uint32_t *at)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct tt_digest *d = (const void *)((const char *)records + (uint64_t)i * size);
		at[found] = i; /* without a branch: the next one replaces it */
		found += d->region < regions && wanted[d->region];
	}
	return found;
}
