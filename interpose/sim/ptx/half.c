/*
 * Half precision: conversion of single values, and arithmetic on f16 and f16x2.
 *
 * Invariant: every result is the exact one rounded to 11 bits. Sums and products of halves are exact in
 * f64, or so far from the middle of two halves that the rounding of f64 does not matter.
 */
#include "sim/ptx/lanes.h"

#include <math.h>
#include <string.h>

#define NOT_A_NUMBER 0x7fff
#define INFINITE 0x7c00
#define LARGEST 0x7bff

float ptx_half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023, bits;
	float f;

	if (exponent == 31) {
		bits = sign | 0x7f800000 | fraction << 13;
	} else if (exponent) {
		bits = sign | (exponent + 112) << 23 | fraction << 13;
	} else {
		f = (float)fraction * 0x1p-24f;
		return sign ? -f : f;
	}
	memcpy(&f, &bits, sizeof(f));
	return f;
}

uint16_t ptx_half_from(double value, unsigned rounding)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
	int exponent = (int)(bits >> 52 & 2047) - 1023;
	uint64_t fraction = bits & ((1ull << 52) - 1);
	bool away = rounding == (sign ? PTX_RM : PTX_RP); /* from zero, if not exact */
	bool nearest = rounding == PTX_RN;

	if (exponent == 1024)
		return fraction ? NOT_A_NUMBER : sign | INFINITE;
	if (exponent > 15)
		return sign | (nearest || away ? INFINITE : LARGEST);
	if (exponent < -25) /* below half of the least subnormal */
		return sign | (away && value != 0);
	/* The 53-bit significand is cut to units of the last place. */
	fraction |= 1ull << 52;
	int cut = exponent < -14 ? 42 + (-14 - exponent) : 42;
	uint64_t kept = fraction >> cut, rest = fraction & ((1ull << cut) - 1), half = 1ull << (cut - 1);
	if (nearest ? rest > half || (rest == half && kept & 1) : away && rest)
		kept++;
	/* The implied bit increments the exponent; so does a carry. */
	return (uint16_t)(sign | (exponent < -14 ? kept : kept + ((uint64_t)(exponent + 14) << 10)));
}

static double flushed(double f, unsigned flags)
{
	return flags & PTX_FTZ && fabs(f) < 0x1p-14 ? copysign(0, f) : f;
}

static double value_of(uint16_t h, unsigned flags)
{
	return flushed((double)ptx_half_to_float(h), flags);
}

static uint16_t result(double f, unsigned flags)
{
	if (flags & PTX_SAT)
		f = f > 0 ? (f < 1 ? f : 1) : 0;
	uint16_t h = ptx_half_from(f, PTX_RN);
	return flags & PTX_FTZ && !(h & INFINITE) ? h & 0x8000 : h;
}

#define HALF_OP(name, operands, expression)                                                                   \
	static uint16_t name##_half(const uint16_t *h, unsigned flags)                                              \
	{                                                                                                     \
		double a = value_of(h[0], flags), b = value_of(h[1], flags), c = value_of(h[2], flags);       \
		(void)b, (void)c;                                                                             \
		return result(expression, flags);                                                             \
	}                                                                                                     \
	static void name##_f16(const struct ptx_op *op, void *dst, const void *const *src)                    \
	{                                                                                                     \
		lane_u32 *d = dst;                                                                            \
		LANES                                                                                         \
		{                                                                                             \
			uint16_t low[3] = {0}, high[3] = {0};                                                 \
			for (int s = 0; s < operands; s++) {                                                  \
				uint32_t bits = ((const lane_u32 *)src[s])[i];                                \
				low[s] = (uint16_t)bits;                                                      \
				high[s] = (uint16_t)(bits >> 16);                                             \
			}                                                                                     \
			d[i] = name##_half(low, op->flags);                                                          \
			if (op->type == PTX_F16X2)                                                            \
				d[i] |= (uint32_t)name##_half(high, op->flags) << 16;                                \
		}                                                                                             \
	}

HALF_OP(add, 2, a + b)
HALF_OP(sub, 2, a - b)
HALF_OP(mul, 2, a * b)
HALF_OP(fma, 3, a * b + c)

LANES1(neg_f16, lane_u32, lane_u32, uint32_t, uint32_t, a ^ 0x8000)
LANES1(abs_f16, lane_u32, lane_u32, uint32_t, uint32_t, a & 0x7fff)
LANES1(neg_f16x2, lane_u32, lane_u32, uint32_t, uint32_t, a ^ 0x80008000)
LANES1(abs_f16x2, lane_u32, lane_u32, uint32_t, uint32_t, a & 0x7fff7fff)

#define HALVES (PTX_IS(PTX_F16) | PTX_IS(PTX_F16X2))
#define FLAGS (PTX_FTZ | PTX_SAT | PTX_ROUNDS_NEAREST)

const struct ptx_alu_entry ptx_half_table[] = {
	{"add", HALVES, "ttt", FLAGS, add_f16, add_f16},
	{"sub", HALVES, "ttt", FLAGS, sub_f16, sub_f16},
	{"mul", HALVES, "ttt", FLAGS, mul_f16, mul_f16},
	{"fma", HALVES, "tttt", FLAGS, fma_f16, fma_f16},
	{"neg", PTX_IS(PTX_F16), "tt", 0, neg_f16, 0},
	{"abs", PTX_IS(PTX_F16), "tt", 0, abs_f16, 0},
	{"neg", PTX_IS(PTX_F16X2), "tt", 0, neg_f16x2, 0},
	{"abs", PTX_IS(PTX_F16X2), "tt", 0, abs_f16x2, 0},
	{0},
};
