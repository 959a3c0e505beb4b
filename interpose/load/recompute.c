/*
 * Digests of regions. See recompute.h.
 *
 * Invariant: rows and blocks come from files and are compared with what there is before they are used.
 */
#include "load/recompute.h"

#include <stdbool.h>
#include <stddef.h>

#include "util/xxh3.h"

#define EXPORT __attribute__((visibility("default")))
#define LOST ((uint64_t)1 << 62)

static struct tt_region_state *region_of(const struct tt_recompute *work, uint32_t row)
{
	struct tt_region_state *region = row < work->region_count ? &work->regions[row] : NULL;

	return region && region->first <= work->word_count && region->room <= work->word_count - region->first ? region : NULL;
}

static void take_block(const struct tt_recompute *work, uint64_t i)
{
	struct tt_region_state *region = region_of(work, work->block_row[i]);

	if (!region)
		return;
	if (region->epoch != work->block_epoch[i]) {
		region->epoch = work->block_epoch[i];
		region->listed = 0;
	}
	if (!work->block_there[i]) {
		region->known = 0;
		region->listed = LOST;
	}
	if (!work->block_there[i] || work->block_index[i] >= region->room)
		return;
	work->words[region->first + work->block_index[i]] = work->block_digest[i];
	region->stale = 1;
	if (++region->listed == region->room)
		region->known = 1;
}

static void give_digest(const struct tt_recompute *work, uint64_t i)
{
	struct tt_region_state *region = region_of(work, work->digest_row[i]);

	if (region && work->digest_lost[i])
		region->known = 0;
	work->digest_known[i] = region && region->known;
	if (!work->digest_known[i])
		return;
	if (region->stale)
		region->digest = xxh3_64(&work->words[region->first], region->room * sizeof(*work->words));
	region->stale = 0;
	work->digest[i] = region->digest;
}

EXPORT void tt_recompute(const struct tt_recompute *work)
{
	uint64_t block = 0;

	for (uint64_t i = 0; i < work->digest_count; i++) {
		while (block < work->block_count && work->block_epoch[block] <= work->digest_epoch[i])
			take_block(work, block++);
		give_digest(work, i);
	}
	while (block < work->block_count)
		take_block(work, block++);
}
