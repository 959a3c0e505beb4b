/*
 * The check of an event: XXH3-64 for exactly its 128 bytes. It is on the launch path, so the words
 * are read in place. The constants are in memory, because they are longer in code.
 */
#ifndef TT_UTIL_EVENT_CHECK_H
#define TT_UTIL_EVENT_CHECK_H

#include "util/cache_line.h"
#include "util/compiler.h"
#include "util/xxh3.h"
#include "format.h"

_Static_assert(sizeof(struct tt_event) == 128 && offsetof(struct tt_event, kind) == 16 &&
		       offsetof(struct tt_event, check) == 20,
	       "the words are these");

/* named: the bytes of kind and call; the check counts as 0. zero: bit i: word i is known to be 0, a constant. */
static ON_PATH uint32_t event_check_knowing(const struct tt_event *e, uint64_t named, uint32_t zero)
{
	HOT_TABLE static AT_CACHE_LINE uint64_t words[] = {XXH3_SECRET_WORDS};
	const uint64_t *secret = words;
	const uint8_t *p = (const uint8_t *)e;
	uint64_t x = sizeof(*e) * XXH3_PRIME64_1;

#define PAIRS(of) of(0, 0) of(14, 2) of(2, 4) of(12, 6) of(4, 8) of(10, 10) of(6, 12) of(8, 14)
#define ZEROS(i) ((zero >> (i) & 3) == 3)
#define WORD(i) ((i) == 2 ? named : zero >> (i) & 1 ? 0 : xxh3_read64(p + 8 * (i)))
#define CONSTANT(i, s) x += ZEROS(i) ? xxh3_fold(xxh3_secret(8 * (s)), xxh3_secret(8 * (s) + 8)) : 0;
#define MIX(i, s) \
	x += ZEROS(i) ? 0 : xxh3_fold(WORD(i) ^ secret[s], WORD((i) + 1) ^ secret[(s) + 1]); \
	__asm__("" : "+r"(x)); /* in sequence: in parallel they need more registers than exist */
	PAIRS(CONSTANT)
	__asm__("" : "+r"(secret));
	PAIRS(MIX)
#undef MIX
#undef CONSTANT
#undef WORD
#undef ZEROS
#undef PAIRS
	return (uint32_t)xxh3_avalanche(x);
}

static inline uint32_t event_check(const struct tt_event *e, uint64_t named)
{
	return event_check_knowing(e, named, 0);
}

#endif
