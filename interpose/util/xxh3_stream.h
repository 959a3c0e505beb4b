/*
 * XXH3-64 with seed 0 of data that comes in pieces.
 *
 * Invariant: after any sequence of xxh3_stream_add, xxh3_stream_end gives xxh3_64 of the pieces' concatenation. The
 * last round is kept back, because only the end of the data determines where its last stripe is.
 */
#ifndef TT_UTIL_XXH3_STREAM_H
#define TT_UTIL_XXH3_STREAM_H

#include "util/xxh3.h"

struct xxh3_stream {
	uint64_t accumulator[8];
	uint64_t length;
	size_t held;
	uint8_t last[XXH3_STRIPE]; /* of the previous round */
	uint8_t round[XXH3_ROUND];
};

static inline void xxh3_stream_begin(struct xxh3_stream *s)
{
	for (unsigned i = 0; i < 8; i++)
		s->accumulator[i] = xxh3_start(i);
	s->length = 0;
	s->held = 0;
}

static inline void xxh3_stream_stripes(uint64_t accumulator[8], const uint8_t *p, unsigned count)
{
	static const uint64_t secret[24] = {XXH3_SECRET_WORDS};

	for (unsigned i = 0; i < count; i++)
		xxh3_stripe(accumulator, p + XXH3_STRIPE * i, secret + i);
}

static inline void xxh3_stream_add(struct xxh3_stream *s, const void *data, size_t length)
{
	const uint8_t *p = data;

	s->length += length;
	while (length) {
		size_t n = XXH3_ROUND - s->held;

		if (!n) {
			xxh3_stream_stripes(s->accumulator, s->round, XXH3_ROUND / XXH3_STRIPE);
			for (unsigned i = 0; i < 8; i++)
				s->accumulator[i] = xxh3_scramble(s->accumulator[i], xxh3_secret(XXH3_SECRET_SCRAMBLE + 8 * i));
			memcpy(s->last, s->round + XXH3_ROUND - XXH3_STRIPE, XXH3_STRIPE);
			s->held = 0;
			n = XXH3_ROUND;
		}
		if (n > length)
			n = length;
		memcpy(s->round + s->held, p, n);
		s->held += n;
		p += n;
		length -= n;
	}
}

static inline uint64_t xxh3_stream_end(const struct xxh3_stream *s)
{
	uint64_t accumulator[8], last_secret[8], x = s->length * XXH3_PRIME64_1;
	uint8_t stripe[XXH3_STRIPE];

	if (s->length <= XXH3_LONG)
		return xxh3_short(s->round, (unsigned)s->length);
	memcpy(accumulator, s->accumulator, sizeof(accumulator));
	xxh3_stream_stripes(accumulator, s->round, (unsigned)(s->held - 1) / XXH3_STRIPE);
	if (s->held >= XXH3_STRIPE) {
		memcpy(stripe, s->round + s->held - XXH3_STRIPE, XXH3_STRIPE);
	} else {
		memcpy(stripe, s->last + s->held, XXH3_STRIPE - s->held);
		memcpy(stripe + XXH3_STRIPE - s->held, s->round, s->held);
	}
	for (unsigned i = 0; i < 8; i++)
		last_secret[i] = xxh3_secret(XXH3_SECRET_LAST_STRIPE + 8 * i);
	xxh3_stripe(accumulator, stripe, last_secret);
	for (unsigned i = 0; i < 8; i += 2)
		x += xxh3_fold(accumulator[i] ^ xxh3_secret(XXH3_SECRET_MERGE + 8 * i),
			       accumulator[i + 1] ^ xxh3_secret(XXH3_SECRET_MERGE + 8 * i + 8));
	return xxh3_avalanche(x);
}

#endif
