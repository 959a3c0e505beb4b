/*
 * The digests of regions, computed from those of their blocks, epoch after epoch.
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_RECOMPUTE_H
#define TT_LOAD_RECOMPUTE_H

#include <stdint.h>

/* A region between two epochs. The digests of its blocks are consecutive words. */
struct tt_region_state {
	uint64_t first; /* of its words; with no `room` it has none */
	uint64_t room; /* its blocks, or 0 */
	uint64_t digest;
	uint64_t listed; /* its blocks that `epoch` has listed, or more than there are if contents are lost */
	uint32_t epoch;
	uint16_t known; /* all words are right */
	uint16_t stale; /* the digest is not that of the words */
};

/* The records of some epochs, in the order of epochs; `row` counts regions. */
struct tt_recompute {
	struct tt_region_state *regions;
	uint64_t region_count;
	uint64_t *words;
	uint64_t word_count;
	const uint32_t *digest_epoch, *digest_row;
	const uint8_t *digest_lost; /* the contents of the region are gone */
	uint64_t *digest;     /* replaced where it can be computed */
	uint8_t *digest_known;     /* written: whether it was */
	uint64_t digest_count;
	const uint32_t *block_epoch, *block_row, *block_index;
	const uint64_t *block_digest;
	const uint8_t *block_there; /* 0: the contents are gone */
	uint64_t block_count;
};

/* Computes the digests. Once contents are lost, a region has none until one epoch lists all of its blocks. */
void tt_recompute(const struct tt_recompute *work);

#endif
