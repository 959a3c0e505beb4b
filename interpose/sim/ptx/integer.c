/*
 * Integer arithmetic of PTX: add, sub, mul, mad, div, rem, min, max and similar, and the forms with carry.
 *
 * Invariant: results are two's complement. Division by zero, which PTX leaves undefined, gives all ones
 * (remainder: the dividend) and never traps.
 */
#include "sim/ptx/lanes.h"

__extension__ typedef __int128 s128;
__extension__ typedef unsigned __int128 u128;

#define B(n) (PTX_IS(PTX_B##n) | PTX_IS(PTX_U##n) | PTX_IS(PTX_S##n))
#define U(n) (PTX_IS(PTX_U##n) | PTX_IS(PTX_B##n))
#define S(n) PTX_IS(PTX_S##n)

/* Expressions use a, b (and c): unsigned and at least 32 bits wide where the sign does not matter. */
#define PLAIN2(name, expression)                                                                              \
	LANES2(name##_16, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint16_t, expression)             \
	LANES2(name##_32, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, expression)             \
	LANES2(name##_64, lane_u64, lane_u64, lane_u64, uint64_t, uint64_t, uint64_t, expression)
#define PLAIN3(name, expression)                                                                              \
	LANES3(name##_16, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint16_t, expression)             \
	LANES3(name##_32, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, expression)             \
	LANES3(name##_64, lane_u64, lane_u64, lane_u64, uint64_t, uint64_t, uint64_t, expression)
#define SIGNED1(name, expression)                                                                             \
	LANES1(name##_s16, lane_u32, lane_u32, int16_t, uint16_t, expression)                                 \
	LANES1(name##_s32, lane_u32, lane_u32, int32_t, uint32_t, expression)                                 \
	LANES1(name##_s64, lane_u64, lane_u64, int64_t, uint64_t, expression)
#define BOTH2(name, expression)                                                                               \
	LANES2(name##_u16, lane_u32, lane_u32, lane_u32, uint16_t, uint16_t, uint16_t, expression)            \
	LANES2(name##_u32, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, expression)            \
	LANES2(name##_u64, lane_u64, lane_u64, lane_u64, uint64_t, uint64_t, uint64_t, expression)            \
	LANES2(name##_s16, lane_u32, lane_u32, lane_u32, int16_t, int16_t, uint16_t, expression)              \
	LANES2(name##_s32, lane_u32, lane_u32, lane_u32, int32_t, int32_t, uint32_t, expression)              \
	LANES2(name##_s64, lane_u64, lane_u64, lane_u64, int64_t, int64_t, uint64_t, expression)

PLAIN2(add, a + b)
PLAIN2(sub, a - b)
PLAIN2(mul_lo, a * b)
PLAIN3(mad_lo, a * b + c)
SIGNED1(neg, 0u - (uint64_t)a)
SIGNED1(abs, a < 0 ? 0u - (uint64_t)a : (uint64_t)a)
BOTH2(min, a < b ? a : b)
BOTH2(max, a > b ? a : b)

#define MUL_HI(t, L, T, V, W, bits)                                                                          \
	LANES2(mul_hi_##t, L, L, L, T, T, V, (W)a * (W)b >> bits)                                            \
	LANES3(mad_hi_##t, L, L, L, T, T, V, (V)((W)a * (W)b >> bits) + (V)c)
MUL_HI(u16, lane_u32, uint16_t, uint16_t, uint32_t, 16)
MUL_HI(s16, lane_u32, int16_t, uint16_t, int32_t, 16)
MUL_HI(u32, lane_u32, uint32_t, uint32_t, uint64_t, 32)
MUL_HI(s32, lane_u32, int32_t, uint32_t, int64_t, 32)
MUL_HI(u64, lane_u64, uint64_t, uint64_t, u128, 64)
MUL_HI(s64, lane_u64, int64_t, uint64_t, s128, 64)

#define MUL_WIDE(t, R, T, T3, V)                                                                             \
	LANES2(mul_wide_##t, R, lane_u32, lane_u32, T, T, V, (T3)a * (T3)b)                                  \
	LANES3(mad_wide_##t, R, lane_u32, R, T, T3, V, (V)((T3)a * (T3)b) + (V)c)
MUL_WIDE(u16, lane_u32, uint16_t, uint32_t, uint32_t)
MUL_WIDE(s16, lane_u32, int16_t, int32_t, uint32_t)
MUL_WIDE(u32, lane_u64, uint32_t, uint64_t, uint64_t)
MUL_WIDE(s32, lane_u64, int32_t, int64_t, uint64_t)

#define DIVIDE(t, L, T, V, minus_one)                                                                        \
	static V quotient_##t(T a, T b)                                                                      \
	{                                                                                                    \
		if (b == 0)                                                                                  \
			return (V)-1;                                                                        \
		return minus_one ? (V)(0 - (V)a) : (V)(a / b);                                               \
	}                                                                                                    \
	static V remainder_##t(T a, T b)                                                                     \
	{                                                                                                    \
		if (b == 0)                                                                                  \
			return (V)a;                                                                         \
		return minus_one ? 0 : (V)(a % b);                                                           \
	}                                                                                                    \
	LANES2(div_##t, L, L, L, T, T, V, quotient_##t(a, b))                                                \
	LANES2(rem_##t, L, L, L, T, T, V, remainder_##t(a, b))
DIVIDE(u16, lane_u32, uint16_t, uint16_t, false)
DIVIDE(u32, lane_u32, uint32_t, uint32_t, false)
DIVIDE(u64, lane_u64, uint64_t, uint64_t, false)
DIVIDE(s16, lane_u32, int16_t, uint16_t, b == -1)
DIVIDE(s32, lane_u32, int32_t, uint32_t, b == -1)
DIVIDE(s64, lane_u64, int64_t, uint64_t, b == -1)

static uint32_t clamp_s32(int64_t x)
{
	return (uint32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}

LANES2(add_sat_s32, lane_u32, lane_u32, lane_u32, int32_t, int32_t, uint32_t, clamp_s32((int64_t)a + b))
LANES2(sub_sat_s32, lane_u32, lane_u32, lane_u32, int32_t, int32_t, uint32_t, clamp_s32((int64_t)a - b))
LANES3(mad_hi_sat_s32, lane_u32, lane_u32, lane_u32, int32_t, int32_t, uint32_t,
       clamp_s32(((int64_t)a * b >> 32) + c))

#define SAD(t, L, T, V) LANES3(sad_##t, L, L, L, T, T, V, (V)c + (a < b ? (V)b - (V)a : (V)a - (V)b))
SAD(u16, lane_u32, uint16_t, uint16_t)
SAD(s16, lane_u32, int16_t, uint16_t)
SAD(u32, lane_u32, uint32_t, uint32_t)
SAD(s32, lane_u32, int32_t, uint32_t)
SAD(u64, lane_u64, uint64_t, uint64_t)
SAD(s64, lane_u64, int64_t, uint64_t)

static uint64_t product24_u(uint32_t a, uint32_t b)
{
	return (uint64_t)(a & 0xffffff) * (b & 0xffffff);
}

static uint64_t product24_s(uint32_t a, uint32_t b)
{
	return (uint64_t)((int64_t)((int32_t)(a << 8) >> 8) * ((int32_t)(b << 8) >> 8));
}

#define MUL24(name, expression)                                                                              \
	LANES2(mul24_##name, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, expression)         \
	LANES3(mad24_##name, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t,                     \
	       (uint32_t)(expression) + c)
MUL24(lo_u32, product24_u(a, b))
MUL24(lo_s32, product24_s(a, b))
MUL24(hi_u32, product24_u(a, b) >> 16)
MUL24(hi_s32, product24_s(a, b) >> 16)

#define DP4A(name, TA, TB)                                                                                   \
	static uint32_t dot_##name(uint32_t a, uint32_t b)                                                   \
	{                                                                                                    \
		uint32_t sum = 0;                                                                            \
		for (int byte = 0; byte < 32; byte += 8)                                                     \
			sum += (uint32_t)((TA)(a >> byte) * (TB)(b >> byte));                                \
		return sum;                                                                                  \
	}                                                                                                    \
	LANES3(dp4a_##name, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, c + dot_##name(a, b))
DP4A(uu, uint8_t, uint8_t)
DP4A(us, uint8_t, int8_t)
DP4A(su, int8_t, uint8_t)
DP4A(ss, int8_t, int8_t)

/* Rows of a table: one for each width, then one for each width and sign. */
#define ROWS(opcode, shape, f) {opcode, B(16), shape, 0, f##_16, 0}, {opcode, B(32), shape, 0, f##_32, 0}, \
			       {opcode, B(64), shape, 0, f##_64, 0}
#define SIGNED_ROWS(opcode, shape, f) {opcode, S(16), shape, 0, f##_s16, 0}, {opcode, S(32), shape, 0, f##_s32, 0}, \
				      {opcode, S(64), shape, 0, f##_s64, 0}
#define BOTH_ROWS(opcode, shape, f) SIGNED_ROWS(opcode, shape, f), {opcode, U(16), shape, 0, f##_u16, 0}, \
				    {opcode, U(32), shape, 0, f##_u32, 0}, {opcode, U(64), shape, 0, f##_u64, 0}
#define WIDE_ROWS(opcode, shape, f) {opcode, U(16), shape, 0, f##_u16, 0}, {opcode, S(16), shape, 0, f##_s16, 0}, \
				    {opcode, U(32), shape, 0, f##_u32, 0}, {opcode, S(32), shape, 0, f##_s32, 0}

const struct ptx_alu_entry ptx_integer_table[] = {
	{"add", S(32), "ttt", PTX_SAT, add_32, add_sat_s32},
	ROWS("add", "ttt", add),
	{"sub", S(32), "ttt", PTX_SAT, sub_32, sub_sat_s32},
	ROWS("sub", "ttt", sub),
	ROWS("mul.lo", "ttt", mul_lo),
	ROWS("mad.lo", "tttt", mad_lo),
	BOTH_ROWS("mul.hi", "ttt", mul_hi),
	{"mad.hi", S(32), "tttt", PTX_SAT, mad_hi_s32, mad_hi_sat_s32},
	BOTH_ROWS("mad.hi", "tttt", mad_hi),
	WIDE_ROWS("mul.wide", "wtt", mul_wide),
	WIDE_ROWS("mad.wide", "wttw", mad_wide),
	BOTH_ROWS("div", "ttt", div),
	BOTH_ROWS("rem", "ttt", rem),
	BOTH_ROWS("min", "ttt", min),
	BOTH_ROWS("max", "ttt", max),
	SIGNED_ROWS("neg", "tt", neg),
	SIGNED_ROWS("abs", "tt", abs),
	BOTH_ROWS("sad", "tttt", sad),
	{"mul24.lo", U(32), "ttt", 0, mul24_lo_u32, 0},
	{"mul24.lo", S(32), "ttt", 0, mul24_lo_s32, 0},
	{"mul24.hi", U(32), "ttt", 0, mul24_hi_u32, 0},
	{"mul24.hi", S(32), "ttt", 0, mul24_hi_s32, 0},
	{"mad24.lo", U(32), "tttt", 0, mad24_lo_u32, 0},
	{"mad24.lo", S(32), "tttt", 0, mad24_lo_s32, 0},
	{"mad24.hi", U(32), "tttt", 0, mad24_hi_u32, 0},
	{"mad24.hi", S(32), "tttt", 0, mad24_hi_s32, 0},
	{"dp4a.u32", U(32), "tttt", 0, dp4a_uu, 0},
	{"dp4a.u32", S(32), "tttt", 0, dp4a_us, 0},
	{"dp4a.s32", U(32), "tttt", 0, dp4a_su, 0},
	{"dp4a.s32", S(32), "tttt", 0, dp4a_ss, 0},
	{0},
};

/* The addend of an operation with carry: b, or the selected half of a * b. */
static uint64_t addend(const struct ptx_op *op, uint64_t a, uint64_t b)
{
	bool high = op->flags & PTX_HIGH;

	switch (op->type) {
	case PTX_S32:
		return (uint32_t)((int64_t)(int32_t)a * (int32_t)b >> (high ? 32 : 0));
	case PTX_S64:
		return (uint64_t)((s128)(int64_t)a * (int64_t)b >> (high ? 64 : 0));
	case PTX_U64:
		return (uint64_t)((u128)a * b >> (high ? 64 : 0));
	default:
		return (uint32_t)((uint64_t)(uint32_t)a * (uint32_t)b >> (high ? 32 : 0));
	}
}

/* add, sub (flag PTX_NEGATE_RIGHT) or mad (kind 1); returns the carry or borrow of each lane. */
uint32_t ptx_carry(const struct ptx_op *op, void *dst, const void *const *src, uint32_t carry)
{
	uint32_t out = 0;

	for (int i = 0; i < PTX_WARP; i++) {
		uint64_t x[3] = {0};
		for (int s = 0; s < 2 + op->kind; s++)
			x[s] = op->wide ? ((const lane_u64 *)src[s])[i] : ((const lane_u32 *)src[s])[i];
		uint64_t a = x[0], b = x[1], in = op->flags & PTX_USES_CARRY ? carry >> i & 1 : 0;
		if (op->kind) {
			b = addend(op, x[0], x[1]);
			a = x[2];
		}
		u128 sum = op->flags & PTX_NEGATE_RIGHT ? (u128)a - b - in : (u128)a + b + in;
		out |= (uint32_t)(sum >> (op->wide ? 64 : 32) & 1) << i;
		if (op->wide)
			((lane_u64 *)dst)[i] = (uint64_t)sum;
		else
			((lane_u32 *)dst)[i] = (uint32_t)sum;
	}
	return out;
}
