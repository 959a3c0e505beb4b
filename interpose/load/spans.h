/*
 * Passes over the digests or blocks of many epochs.
 *
 * Records are tt_digest or tt_block, of `size` bytes: both begin with region, a word, and digest. The toolkit reads
 * this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_SPANS_H
#define TT_LOAD_SPANS_H

#include <stdint.h>

/*
 * The first record that is not certainly as the format asks, or `count`. counts: the records of each of `epochs`
 * epochs, the first of which has the number `first`. regions: the length of the next four, which tell of each region
 * by its id: it may be in epochs [born, died); its place, of tt_block that of its first block. seen: a word for each
 * place, zero at first.
 */
uint64_t tt_doubtful_record(const void *records, uint32_t size, uint64_t count, uint32_t first, uint64_t epochs,
			    const uint64_t *counts, uint64_t regions, const uint32_t *born, const uint32_t *died,
			    const uint64_t *sizes, const uint64_t *places, uint32_t *seen);

/*
 * Marks the places of which two processes have different records at one of `positions` positions: another digest, or
 * a record on one side alone. ends_a, ends_b: where the records of each position end; of several, the last counts.
 * bases_a, bases_b: the place of each region by its id, of tt_block that of its first block; below 0: none. held: room
 * for four words of each place, zero at first. differs: of each place. listed: the first position with a record.
 */
void tt_differing_places(const void *a, const void *b, uint32_t size, uint64_t begin, uint64_t positions,
			 const uint64_t *ends_a, const uint64_t *ends_b, uint64_t regions_a, const int64_t *bases_a,
			 uint64_t regions_b, const int64_t *bases_b, uint64_t places, uint64_t *held, uint8_t *differs,
			 uint32_t *listed);

/*
 * Finds the records of wanted regions. wanted: by id, of `regions` of them. at: room for `count` numbers; those of the
 * found records, ascending. Returns how many there are.
 */
uint64_t tt_wanted_records(const void *records, uint32_t size, uint32_t count, uint64_t regions, const uint8_t *wanted,
			   uint32_t *at);

#endif
