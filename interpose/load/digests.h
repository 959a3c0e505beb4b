/*
 * Digests of many short inputs at once.
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_DIGESTS_H
#define TT_LOAD_DIGESTS_H

#include <stdint.h>

/* XXH3-64 of the first `covered` bytes of each item of `size`. */
void tt_digests(const void *items, uint64_t count, uint32_t size, uint32_t covered, uint64_t *digests);

/* XXH3-64 of the bytes [begins[i], ends[i]) of each of `count` spans. */
void tt_span_digests(const void *bytes, uint64_t count, const uint64_t *begins, const uint64_t *ends, uint64_t *digests);

/*
 * The digest that a region of sizes[i] bytes at bases[i] has if it holds the pattern of a seed: XXH3-64 of the digests
 * of its blocks.
 */
void tt_pattern_digests(uint64_t seed, uint64_t count, const uint64_t *bases, const uint64_t *sizes, uint64_t *digests);

/* The correct tt_event.check of each event. */
void tt_event_checks(const void *events, uint64_t count, uint32_t *checks);

/* The first used slot with a wrong check, a kind not below `kinds`, or no seq; count: none. */
uint64_t tt_wrong_event(const void *events, uint64_t count, uint32_t kinds);

#endif
