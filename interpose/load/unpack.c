/*
 * Decodes bit planes. See unpack.h; docs/format.md describes the code.
 *
 * Invariant: a plane of a group is the word of its bit in a square of 32 by 32 bits. The square's
 * transpose is the group, whatever the width of its elements.
 */
#include "load/unpack.h"

#include <stdbool.h>
#include <string.h>

#include "util/compiler.h"

#define PAIR 256 /* bytes of two groups: the even words, and the odd words */
#define LANES 32 /* words of a group */
#define HEADER 4
#define HEAD 2 /* of each group */

#define LOW_MASKED 1 /* the first plane tells which elements are not zero */
static const uint8_t low_of[] = {0, 0, 13, 16};

/* Elements of `bits` bits, in words. */
struct elements {
	uint32_t width, bits, signs, exponents, rest, lowest;
};

static const struct elements widths[] = {
	{1, 8, 0, 0, 0xffffffff, 0x01010101},
	{2, 16, 0x80008000, 0x7f807f80, 0x007f007f, 0x01000100},
	{4, 32, 0x80000000, 0x7f800000, 0x007fffff, 0x01000000},
};

static uint32_t get16(const uint8_t *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static void transpose(uint32_t *a)
{
	uint32_t mask = 0x0000ffff;

	for (unsigned j = 16; j; j /= 2, mask ^= mask << j)
		for (unsigned k = 0; k < LANES; k += 2 * j)
			for (unsigned i = k; i < k + j; i++) {
				uint32_t swap = (a[i] >> j ^ a[i + j]) & mask;
				a[i + j] ^= swap;
				a[i] ^= swap << j;
			}
}

/* Makes words of `count` planes, whose lowest is bit `low` of each element. Returns the end of the planes. */
static const uint8_t *make_words(uint32_t *words, const uint8_t *planes, uint32_t count, uint32_t low, const struct elements *e)
{
	uint32_t per = 4 / e->width;

	memset(words, 0, LANES * sizeof(*words));
	for (uint32_t i = 0; i < count * per; i++, planes += sizeof(*words))
		memcpy(&words[low + i / per + i % per * e->bits], planes, sizeof(*words));
	if (count)
		transpose(words);
	return planes;
}

/* Makes the words of a group from its planes. Returns the end of these. */
static const uint8_t *make_group(uint32_t *words, uint32_t head, const uint8_t *planes, const struct elements *e)
{
	bool masked = head >> 14 == LOW_MASKED;
	uint32_t there[LANES];

	if (masked)
		planes = make_words(there, planes, 1, e->bits - 8, e);
	planes = make_words(words, planes, head >> 8 & 63, low_of[head >> 14], e);
	for (unsigned i = 0; i < LANES; i++) {
		uint32_t w = words[i] + (head & 255) * (masked ? there[i] : e->lowest);
		words[i] = (w >> 1 & e->exponents) | (w << 8 & e->signs) | (w & e->rest);
	}
	return planes;
}

/* NULL: the size and the heads fit each other and the elements. */
static const char *fault(const uint8_t *code, uint32_t size, uint32_t groups, const struct elements *e)
{
	uint64_t total = HEADER + (uint64_t)HEAD * groups;

	if (size < total)
		return "the heads of groups end after the code";
	for (uint32_t i = 0; i < groups; i++) {
		uint32_t head = get16(code + HEADER + (size_t)HEAD * i), planes = head >> 8 & 63;
		if (planes && low_of[head >> 14] + planes > e->bits)
			return "a group has more planes than its elements have bits";
		total += (uint64_t)(planes + (head >> 14 == LOW_MASKED)) * (4 / e->width) * 4;
	}
	return total == size ? NULL : "the size is not that of its planes";
}

EXPORT const char *tt_unpack(const uint8_t *code, uint32_t size, uint8_t *out, uint32_t length)
{
	uint32_t groups = 2 * ((length + PAIR - 1) / PAIR), width = 0, words[2][LANES], pair[2 * LANES];
	const struct elements *e = NULL;
	const uint8_t *planes = code + HEADER + (size_t)HEAD * groups;

	if (size < HEADER)
		return "the code has no width";
	memcpy(&width, code, sizeof(width));
	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
		e = widths[i].width == width ? &widths[i] : e;
	const char *why = e ? fault(code, size, groups, e) : "the width of elements is not 1, 2 or 4";
	for (uint32_t i = 0; !why && i < groups; i += 2) {
		for (uint32_t k = 0; k < 2; k++)
			planes = make_group(words[k], get16(code + HEADER + (size_t)HEAD * (i + k)), planes, e);
		for (unsigned k = 0; k < 2 * LANES; k++)
			pair[k] = words[k % 2][k / 2];
		uint32_t at = i / 2 * PAIR;
		memcpy(out + at, pair, length - at < PAIR ? length - at : PAIR);
	}
	return why;
}
