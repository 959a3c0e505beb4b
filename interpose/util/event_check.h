/*
 * The check of an event: XXH3-64 for exactly its 128 bytes. It is on the launch path, so the words
 * are read in place. The constants are in memory, because they are longer in code.
 */
#ifndef TT_UTIL_EVENT_CHECK_H
#define TT_UTIL_EVENT_CHECK_H

#include "util/compiler.h"
#include "util/xxh3.h"
#include "format.h"

_Static_assert(sizeof(struct tt_event) == 128 && offsetof(struct tt_event, kind) == 16 &&
		       offsetof(struct tt_event, check) == 20,
	       "the words are these");

/* named: the bytes of kind and call; the check counts as 0. */
static inline uint32_t event_check(const struct tt_event *e, uint64_t named)
{
	HOT_DATA static uint64_t words[] = {XXH3_SECRET_WORDS};
	const uint64_t *secret = words;
	const uint8_t *p = (const uint8_t *)e;
	uint64_t x = sizeof(*e) * XXH3_PRIME64_1;

#define WORD(i) ((i) == 2 ? named : xxh3_read64(p + 8 * (i)))
#define MIX(i, s) \
	x += xxh3_fold(WORD(i) ^ secret[s], WORD((i) + 1) ^ secret[(s) + 1]); \
	__asm__("" : "+r"(x)) /* in sequence: in parallel they need more registers than exist */
	__asm__("" : "+r"(secret));
	MIX(0, 0);
	MIX(14, 2);
	MIX(2, 4);
	MIX(12, 6);
	MIX(4, 8);
	MIX(10, 10);
	MIX(6, 12);
	MIX(8, 14);
#undef MIX
#undef WORD
	return (uint32_t)xxh3_avalanche(x);
}

#endif
