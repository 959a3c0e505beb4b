/*
 * Moves, logic, shifts and bit fields of PTX.
 *
 * Invariant: shift counts, positions and lengths beyond the width follow PTX (clamped, or cut to 8 bits
 * for fields), never the host's shifts.
 */
#include "sim/ptx/lanes.h"

#include <float.h>

#define ANY16 (PTX_IS(PTX_B16) | PTX_IS(PTX_U16) | PTX_IS(PTX_S16) | PTX_IS(PTX_F16))
#define ANY32 (PTX_IS(PTX_B32) | PTX_IS(PTX_U32) | PTX_IS(PTX_S32) | PTX_IS(PTX_F32) | PTX_IS(PTX_F16X2))
#define ANY64 (PTX_IS(PTX_B64) | PTX_IS(PTX_U64) | PTX_IS(PTX_S64) | PTX_IS(PTX_F64))
#define B(n) (PTX_IS(PTX_B##n) | PTX_IS(PTX_U##n) | PTX_IS(PTX_S##n))
#define U(n) (PTX_IS(PTX_U##n) | PTX_IS(PTX_B##n))
#define S(n) PTX_IS(PTX_S##n)

LANES1(mov_32, lane_u32, lane_u32, uint32_t, uint32_t, a)
LANES1(mov_64, lane_u64, lane_u64, uint64_t, uint64_t, a)

#define LOGIC2(name, expression)                                                                              \
	LANES2(name##_32, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, expression)             \
	LANES2(name##_64, lane_u64, lane_u64, lane_u64, uint64_t, uint64_t, uint64_t, expression)
LOGIC2(and, a & b)
LOGIC2(or, a | b)
LOGIC2(xor, a ^ b)
LANES1(not_16, lane_u32, lane_u32, uint32_t, uint16_t, ~a)
LANES1(not_32, lane_u32, lane_u32, uint32_t, uint32_t, ~a)
LANES1(not_64, lane_u64, lane_u64, uint64_t, uint64_t, ~a)
LANES1(cnot_32, lane_u32, lane_u32, uint32_t, uint32_t, a == 0)
LANES1(cnot_64, lane_u64, lane_u64, uint64_t, uint64_t, a == 0)

LANES2(shl_16, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint16_t, b < 16 ? a << b : 0)
LANES2(shl_32, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, b < 32 ? a << b : 0)
LANES2(shl_64, lane_u64, lane_u64, lane_u32, uint64_t, uint32_t, uint64_t, b < 64 ? a << b : 0)
LANES2(shr_u16, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint16_t, b < 16 ? a >> b : 0)
LANES2(shr_u32, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, b < 32 ? a >> b : 0)
LANES2(shr_u64, lane_u64, lane_u64, lane_u32, uint64_t, uint32_t, uint64_t, b < 64 ? a >> b : 0)
LANES2(shr_s16, lane_u32, lane_u32, lane_u32, int16_t, uint32_t, uint16_t, a >> (b < 16 ? b : 15))
LANES2(shr_s32, lane_u32, lane_u32, lane_u32, int32_t, uint32_t, uint32_t, a >> (b < 32 ? b : 31))
LANES2(shr_s64, lane_u64, lane_u64, lane_u32, int64_t, uint32_t, uint64_t, a >> (b < 64 ? b : 63))

/* rank: what the address of the own block has. */
static uint32_t rank_of(uint64_t address, uint32_t rank)
{
	return (uint32_t)address >> PTX_RANK_SHIFT ? ((uint32_t)address >> PTX_RANK_SHIFT) - 1 : rank;
}

LANES2(shared_of_32, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, ptx_shared_of(a, b))
LANES2(shared_of_64, lane_u64, lane_u64, lane_u32, uint64_t, uint32_t, uint64_t, ptx_shared_of(a, b))
LANES2(rank_of_32, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, rank_of(a, b))
LANES2(rank_of_64, lane_u32, lane_u64, lane_u32, uint64_t, uint32_t, uint32_t, rank_of(a, b))

static uint32_t funnel(uint32_t low, uint32_t high, unsigned right)
{
	return (uint32_t)(((uint64_t)high << 32 | low) >> right);
}

#define FUNNEL(name, expression)                                                                              \
	LANES3(shf_##name, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, expression)
FUNNEL(l_wrap, funnel(a, b, 32 - (c & 31)))
FUNNEL(l_clamp, funnel(a, b, 32 - (c < 32 ? c : 32)))
FUNNEL(r_wrap, funnel(a, b, c & 31))
FUNNEL(r_clamp, funnel(a, b, c < 32 ? c : 32))

static uint32_t reverse32(uint32_t x)
{
	x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
	x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
	x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
	return __builtin_bswap32(x);
}

LANES1(brev_32, lane_u32, lane_u32, uint32_t, uint32_t, reverse32(a))
LANES1(brev_64, lane_u64, lane_u64, uint64_t, uint64_t,
       (uint64_t)reverse32((uint32_t)a) << 32 | reverse32((uint32_t)(a >> 32)))
LANES1(popc_32, lane_u32, lane_u32, uint32_t, uint32_t, __builtin_popcount(a))
LANES1(popc_64, lane_u32, lane_u64, uint64_t, uint32_t, __builtin_popcountll(a))
LANES1(clz_32, lane_u32, lane_u32, uint32_t, uint32_t, a ? __builtin_clz(a) : 32)
LANES1(clz_64, lane_u32, lane_u64, uint64_t, uint32_t, a ? __builtin_clzll(a) : 64)

static uint32_t highest(uint64_t x)
{
	return x ? 63 - (uint32_t)__builtin_clzll(x) : PTX_EVERYONE;
}

static uint32_t room_above(uint32_t position, uint32_t width)
{
	return position == PTX_EVERYONE ? position : width - 1 - position;
}

#define FIND(t, L, T, bits)                                                                                   \
	LANES1(bfind_u##t, lane_u32, L, T, uint32_t, highest(a))                                              \
	LANES1(bfind_s##t, lane_u32, L, T, uint32_t, highest(a >> (bits - 1) ? (T)~a : a))                    \
	LANES1(bfind_shift_u##t, lane_u32, L, T, uint32_t, room_above(highest(a), bits))                      \
	LANES1(bfind_shift_s##t, lane_u32, L, T, uint32_t,                                                    \
	       room_above(highest(a >> (bits - 1) ? (T)~a : a), bits))
FIND(32, lane_u32, uint32_t, 32)
FIND(64, lane_u64, uint64_t, 64)

/* Bits position…position+length-1 of a, extended by the highest of them or of the word. */
static uint64_t extract(uint64_t a, uint32_t position, uint32_t length, uint32_t width, bool is_signed)
{
	position &= 255;
	length &= 255;
	uint64_t field = position < 64 ? a >> position : 0;
	if (length < 64)
		field &= (1ull << length) - 1;
	if (!is_signed || length == 0)
		return field;
	uint32_t top = position + length - 1 < width - 1 ? position + length - 1 : width - 1;
	if (!(a >> top & 1))
		return field;
	uint32_t have = top >= position ? top - position + 1 : 0;
	return have < 64 ? field | ~0ull << have : field;
}

static uint64_t insert(uint64_t a, uint64_t b, uint32_t position, uint32_t length)
{
	position &= 255;
	length &= 255;
	if (position > 63 || length == 0)
		return b;
	uint64_t mask = (length < 64 ? (1ull << length) - 1 : ~0ull) << position;
	return (b & ~mask) | (a << position & mask);
}

#define EXTRACT(t, L, V, bits, is_signed)                                                                     \
	static void bfe_##t(const struct ptx_op *op, void *dst, const void *const *src)                       \
	{                                                                                                     \
		L *d = dst;                                                                                   \
		const L *a = src[0];                                                                          \
		const lane_u32 *position = src[1], *length = src[2];                                          \
		(void)op;                                                                                     \
		LANES d[i] = (V)extract(a[i], position[i], length[i], bits, is_signed);                       \
	}
EXTRACT(u32, lane_u32, uint32_t, 32, false)
EXTRACT(s32, lane_u32, uint32_t, 32, true)
EXTRACT(u64, lane_u64, uint64_t, 64, false)
EXTRACT(s64, lane_u64, uint64_t, 64, true)

#define INSERT(t, L, V)                                                                                       \
	static void bfi_##t(const struct ptx_op *op, void *dst, const void *const *src)                       \
	{                                                                                                     \
		L *d = dst;                                                                                   \
		const L *a = src[0], *b = src[1];                                                             \
		const lane_u32 *position = src[2], *length = src[3];                                          \
		(void)op;                                                                                     \
		LANES d[i] = (V)insert(a[i], b[i], position[i], length[i]);                                   \
	}
INSERT(32, lane_u32, uint32_t)
INSERT(64, lane_u64, uint64_t)

static void lop3(const struct ptx_op *op, void *dst, const void *const *src)
{
	lane_u32 *d = dst;
	const lane_u32 *pa = src[0], *pb = src[1], *pc = src[2];
	uint32_t term[8];

	for (int t = 0; t < 8; t++)
		term[t] = op->imm >> t & 1 ? PTX_EVERYONE : 0;
	LANES
	{
		uint32_t a = pa[i], b = pb[i], c = pc[i];
		uint32_t low = (~b & ((~c & term[0]) | (c & term[1]))) | (b & ((~c & term[2]) | (c & term[3])));
		uint32_t high = (~b & ((~c & term[4]) | (c & term[5]))) | (b & ((~c & term[6]) | (c & term[7])));
		d[i] = (~a & low) | (a & high);
	}
}

static uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
	uint64_t bytes = (uint64_t)b << 32 | a;
	uint32_t r = 0;

	for (int i = 0; i < 4; i++) {
		uint32_t s = selector >> 4 * i & 15, byte = bytes >> (s & 7) * 8 & 255;
		if (s & 8)
			byte = byte & 128 ? 255 : 0;
		r |= byte << 8 * i;
	}
	return r;
}

/* The modes of prmt are its default mode with selectors computed from 2 bits of c. */
static const uint16_t selectors[6][4] = {
	{0x3210, 0x4321, 0x5432, 0x6543}, /* f4e */
	{0x5670, 0x6701, 0x7012, 0x0123}, /* b4e */
	{0x0000, 0x1111, 0x2222, 0x3333}, /* rc8 */
	{0x3210, 0x3211, 0x3222, 0x3333}, /* ecl */
	{0x0000, 0x1110, 0x2210, 0x3210}, /* ecr */
	{0x1010, 0x3232, 0x1010, 0x3232}, /* rc16 */
};

#define PERMUTE(name, expression)                                                                             \
	LANES3(prmt_##name, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, permute(a, b, expression))
PERMUTE(plain, c)
PERMUTE(f4e, selectors[0][c & 3])
PERMUTE(b4e, selectors[1][c & 3])
PERMUTE(rc8, selectors[2][c & 3])
PERMUTE(ecl, selectors[3][c & 3])
PERMUTE(ecr, selectors[4][c & 3])
PERMUTE(rc16, selectors[5][c & 3])

static uint32_t mask_of(uint32_t position, uint32_t length, bool clamp)
{
	uint32_t from = position & 31, to = from + (length & 31);
	bool over = to > 31 || (clamp && (position > 31 || length > 31));

	if (clamp && position > 31)
		return 0;
	return PTX_EVERYONE << from & ~(over ? 0 : PTX_EVERYONE << to);
}

static uint32_t extend_from(uint32_t a, uint32_t bits, bool clamp, bool is_signed)
{
	if ((clamp && bits > 31) || (bits & 31) == 0)
		return clamp && bits > 31 ? a : 0;
	bits &= 31;
	uint32_t above = PTX_EVERYONE << bits;
	return is_signed && a >> (bits - 1) & 1 ? a | above : a & ~above;
}

/* The position of the offset-th set bit, up or down from base. Offset 0 asks for base itself. */
static uint32_t nth_set(uint32_t mask, uint32_t base, int32_t offset)
{
	int64_t left = offset < 0 ? -(int64_t)offset : offset;

	if (base > 31)
		return PTX_EVERYONE;
	if (offset == 0)
		return mask >> base & 1 ? base : PTX_EVERYONE;
	for (uint32_t at = base; at < 32; at += offset < 0 ? PTX_EVERYONE : 1)
		if (mask >> at & 1 && --left == 0)
			return at;
	return PTX_EVERYONE;
}

#define WORDS2(name, expression)                                                                              \
	LANES2(name, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, expression)
WORDS2(bmsk_clamp, mask_of(a, b, true))
WORDS2(bmsk_wrap, mask_of(a, b, false))
WORDS2(szext_clamp_u32, extend_from(a, b, true, false))
WORDS2(szext_clamp_s32, extend_from(a, b, true, true))
WORDS2(szext_wrap_u32, extend_from(a, b, false, false))
WORDS2(szext_wrap_s32, extend_from(a, b, false, true))
LANES3(fns, lane_u32, lane_u32, lane_u32, uint32_t, int32_t, uint32_t, nth_set(a, b, c))

#define SLCT(t, L, S3, T3, V) LANES3(slct_##t, L, L, S3, V, T3, V, c >= 0 ? a : b)
SLCT(s32_32, lane_u32, lane_u32, int32_t, uint32_t)
SLCT(s32_64, lane_u64, lane_u32, int32_t, uint64_t)
SLCT(f32_32, lane_u32, lane_f32, float, uint32_t)
SLCT(f32_64, lane_u64, lane_f32, float, uint64_t)
/* A negative subnormal is flushed to -0, which is not below 0. */
LANES3(slct_ftz_32, lane_u32, lane_u32, lane_f32, uint32_t, float, uint32_t, c > -FLT_MIN ? a : b)
LANES3(slct_ftz_64, lane_u64, lane_u64, lane_f32, uint64_t, float, uint64_t, c > -FLT_MIN ? a : b)

LANES2(pack_16, lane_u32, lane_u32, lane_u32, uint32_t, uint32_t, uint32_t, a | b << 16)
LANES2(pack_32, lane_u64, lane_u32, lane_u32, uint64_t, uint64_t, uint64_t, a | b << 32)
LANES1(low_half_32, lane_u32, lane_u32, uint32_t, uint16_t, a)
LANES1(high_half_32, lane_u32, lane_u32, uint32_t, uint16_t, a >> 16)
LANES1(low_half_64, lane_u32, lane_u64, uint64_t, uint32_t, a)
LANES1(high_half_64, lane_u32, lane_u64, uint64_t, uint32_t, a >> 32)

const struct ptx_alu_entry ptx_bit_table[] = {
	{"mov", ANY16 | ANY32, "tt", 0, mov_32, 0},
	{"mov", ANY64, "tt", 0, mov_64, 0},
	{"and", B(16) | B(32), "ttt", 0, and_32, 0},
	{"and", B(64), "ttt", 0, and_64, 0},
	{"or", B(16) | B(32), "ttt", 0, or_32, 0},
	{"or", B(64), "ttt", 0, or_64, 0},
	{"xor", B(16) | B(32), "ttt", 0, xor_32, 0},
	{"xor", B(64), "ttt", 0, xor_64, 0},
	{"not", B(16), "tt", 0, not_16, 0},
	{"not", B(32), "tt", 0, not_32, 0},
	{"not", B(64), "tt", 0, not_64, 0},
	{"cnot", B(16) | B(32), "tt", 0, cnot_32, 0},
	{"cnot", B(64), "tt", 0, cnot_64, 0},
	{"mapa", U(32), "ttu", 0, shared_of_32, 0},
	{"mapa", U(64), "ttu", 0, shared_of_64, 0},
	{"getctarank", U(32), "utu", 0, rank_of_32, 0},
	{"getctarank", U(64), "utu", 0, rank_of_64, 0},
	{"shl", B(16), "ttu", 0, shl_16, 0},
	{"shl", B(32), "ttu", 0, shl_32, 0},
	{"shl", B(64), "ttu", 0, shl_64, 0},
	{"shr", U(16), "ttu", 0, shr_u16, 0},
	{"shr", U(32), "ttu", 0, shr_u32, 0},
	{"shr", U(64), "ttu", 0, shr_u64, 0},
	{"shr", S(16), "ttu", 0, shr_s16, 0},
	{"shr", S(32), "ttu", 0, shr_s32, 0},
	{"shr", S(64), "ttu", 0, shr_s64, 0},
	{"shf.l.wrap", B(32), "tttu", 0, shf_l_wrap, 0},
	{"shf.l.clamp", B(32), "tttu", 0, shf_l_clamp, 0},
	{"shf.r.wrap", B(32), "tttu", 0, shf_r_wrap, 0},
	{"shf.r.clamp", B(32), "tttu", 0, shf_r_clamp, 0},
	{"brev", B(32), "tt", 0, brev_32, 0},
	{"brev", B(64), "tt", 0, brev_64, 0},
	{"popc", B(32), "ut", 0, popc_32, 0},
	{"popc", B(64), "ut", 0, popc_64, 0},
	{"clz", B(32), "ut", 0, clz_32, 0},
	{"clz", B(64), "ut", 0, clz_64, 0},
	{"bfind", U(32), "ut", 0, bfind_u32, 0},
	{"bfind", S(32), "ut", 0, bfind_s32, 0},
	{"bfind", U(64), "ut", 0, bfind_u64, 0},
	{"bfind", S(64), "ut", 0, bfind_s64, 0},
	{"bfind.shiftamt", U(32), "ut", 0, bfind_shift_u32, 0},
	{"bfind.shiftamt", S(32), "ut", 0, bfind_shift_s32, 0},
	{"bfind.shiftamt", U(64), "ut", 0, bfind_shift_u64, 0},
	{"bfind.shiftamt", S(64), "ut", 0, bfind_shift_s64, 0},
	{"bfe", U(32), "ttuu", 0, bfe_u32, 0},
	{"bfe", S(32), "ttuu", 0, bfe_s32, 0},
	{"bfe", U(64), "ttuu", 0, bfe_u64, 0},
	{"bfe", S(64), "ttuu", 0, bfe_s64, 0},
	{"bfi", B(32), "tttuu", 0, bfi_32, 0},
	{"bfi", B(64), "tttuu", 0, bfi_64, 0},
	{"bmsk.clamp", B(32), "tuu", 0, bmsk_clamp, 0},
	{"bmsk.wrap", B(32), "tuu", 0, bmsk_wrap, 0},
	{"szext.clamp", U(32), "ttu", 0, szext_clamp_u32, 0},
	{"szext.clamp", S(32), "ttu", 0, szext_clamp_s32, 0},
	{"szext.wrap", U(32), "ttu", 0, szext_wrap_u32, 0},
	{"szext.wrap", S(32), "ttu", 0, szext_wrap_s32, 0},
	{"fns", B(32), "tttt", 0, fns, 0},
	{"lop3", B(32), "tttti", 0, lop3, 0},
	{"prmt", B(32), "tttu", 0, prmt_plain, 0},
	{"prmt.f4e", B(32), "tttu", 0, prmt_f4e, 0},
	{"prmt.b4e", B(32), "tttu", 0, prmt_b4e, 0},
	{"prmt.rc8", B(32), "tttu", 0, prmt_rc8, 0},
	{"prmt.ecl", B(32), "tttu", 0, prmt_ecl, 0},
	{"prmt.ecr", B(32), "tttu", 0, prmt_ecr, 0},
	{"prmt.rc16", B(32), "tttu", 0, prmt_rc16, 0},
	/* slct has the type of its last operand last; the row's type is that of the others */
	{"slct.s32", ANY16 | ANY32, "tttu", 0, slct_s32_32, 0},
	{"slct.s32", ANY64, "tttu", 0, slct_s32_64, 0},
	{"slct.f32", ANY16 | ANY32, "tttf", PTX_FTZ, slct_f32_32, slct_ftz_32},
	{"slct.f32", ANY64, "tttf", PTX_FTZ, slct_f32_64, slct_ftz_64},
	/* names of our own, for the parts of vector moves */
	{"pack", PTX_IS(PTX_B32), 0, 0, pack_16, 0},
	{"pack", PTX_IS(PTX_B64), 0, 0, pack_32, 0},
	{"low", PTX_IS(PTX_B32), 0, 0, low_half_32, 0},
	{"high", PTX_IS(PTX_B32), 0, 0, high_half_32, 0},
	{"low", PTX_IS(PTX_B64), 0, 0, low_half_64, 0},
	{"high", PTX_IS(PTX_B64), 0, 0, high_half_64, 0},
	{0},
};
