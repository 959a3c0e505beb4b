/*
 * Conversions of PTX (cvt) between integers and floating point of all widths.
 *
 * Invariant: integers are truncated or, with .sat, clamped. Floats become integers by the given rounding,
 * clamped to the range of the result; NaN gives 0 (from f64 or to 64 bits: only the top bit). Floats are
 * rounded once, in the given direction.
 */
#include "sim/ptx/lanes.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* --- from integers: a table by both types --- */

/* Results of 8 bits are extended to 32: their registers are wider than 8 bits. */
#define INTEGERS(from, LF, TF)                                                                                \
	LANES1(from##_u8, lane_u32, LF, TF, uint32_t, (uint8_t)a)                                             \
	LANES1(from##_s8, lane_u32, LF, TF, uint32_t, (int8_t)a)                                              \
	LANES1(from##_16, lane_u32, LF, TF, uint16_t, a)                                                      \
	LANES1(from##_32, lane_u32, LF, TF, uint32_t, a)                                                      \
	LANES1(from##_64, lane_u64, LF, TF, uint64_t, a)                                                      \
	LANES1(from##_f32, lane_f32, LF, TF, float, a)                                                        \
	LANES1(from##_f64, lane_f64, LF, TF, double, a)
INTEGERS(u8, lane_u32, uint8_t)
INTEGERS(s8, lane_u32, int8_t)
INTEGERS(u16, lane_u32, uint16_t)
INTEGERS(s16, lane_u32, int16_t)
INTEGERS(u32, lane_u32, uint32_t)
INTEGERS(s32, lane_u32, int32_t)
INTEGERS(u64, lane_u64, uint64_t)
INTEGERS(s64, lane_u64, int64_t)

#define INTEGER_ROW(f) {f##_u8, f##_s8, f##_16, f##_16, f##_32, f##_32, f##_64, f##_64, f##_f32, f##_f64}
static const ptx_alu from_integer[8][10] = {
	INTEGER_ROW(u8),  INTEGER_ROW(s8),  INTEGER_ROW(u16), INTEGER_ROW(s16),
	INTEGER_ROW(u32), INTEGER_ROW(s32), INTEGER_ROW(u64), INTEGER_ROW(s64),
};

/* Index into the table; -1: other types. */
static int integer_index(enum ptx_type t)
{
	switch (t) {
	case PTX_B8:
	case PTX_U8:
		return 0;
	case PTX_S8:
		return 1;
	case PTX_B16:
	case PTX_U16:
		return 2;
	case PTX_S16:
		return 3;
	case PTX_B32:
	case PTX_U32:
		return 4;
	case PTX_S32:
		return 5;
	case PTX_B64:
	case PTX_U64:
		return 6;
	case PTX_S64:
		return 7;
	default:
		return -1;
	}
}

/* --- the general case: one lane at a time --- */

static const int host_rounding[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

static unsigned width_of(enum ptx_type t)
{
	return (unsigned)ptx_type_size(t) * 8;
}

static uint64_t lane(const void *row, int i, enum ptx_type t)
{
	return ptx_type_size(t) == 8 ? ((const lane_u64 *)row)[i] : ((const lane_u32 *)row)[i];
}

static void set_lane(void *row, int i, enum ptx_type t, uint64_t bits)
{
	if (ptx_type_size(t) == 8)
		((lane_u64 *)row)[i] = bits;
	else
		((lane_u32 *)row)[i] = (uint32_t)bits;
}

static bool is_signed(enum ptx_type t)
{
	return integer_index(t) & 1;
}

static uint64_t cut(uint64_t bits, enum ptx_type t)
{
	unsigned width = width_of(t);

	if (width == 64)
		return bits;
	if (t == PTX_S8)
		return (uint32_t)(int8_t)bits;
	return bits & ((1ull << width) - 1);
}

static int64_t extended(uint64_t bits, enum ptx_type t)
{
	unsigned shift = 64 - width_of(t);

	return is_signed(t) ? (int64_t)(bits << shift) >> shift : (int64_t)(bits << shift >> shift);
}

static void clamp_integer(const struct ptx_op *op, void *dst, const void *const *src)
{
	enum ptx_type to = op->type, from = op->kind;
	unsigned width = width_of(to);

	for (int i = 0; i < PTX_WARP; i++) {
		int64_t x = extended(lane(src[0], i, from), from);
		bool huge = !is_signed(from) && x < 0; /* a u64 of 2^63 or more */
		uint64_t most = is_signed(to) ? ~0ull >> (65 - width) : ~0ull >> (64 - width);
		int64_t least = is_signed(to) ? -(int64_t)most - 1 : 0;
		uint64_t r = (uint64_t)x;
		if (!huge && x < least)
			r = (uint64_t)least;
		else if (huge || x > 0)
			r = (uint64_t)x > most ? most : (uint64_t)x;
		set_lane(dst, i, to, cut(r, to));
	}
}

static double load_float(const void *row, int i, enum ptx_type t, unsigned flags)
{
	if (t == PTX_F64)
		return ((const lane_f64 *)row)[i];
	if (t == PTX_F16)
		return (double)ptx_half_to_float((uint16_t)((const lane_u32 *)row)[i]);
	float f = ((const lane_f32 *)row)[i];
	return (double)(flags & PTX_FTZ && fabsf(f) < FLT_MIN ? copysignf(0, f) : f);
}

static void store_float(void *row, int i, enum ptx_type t, unsigned flags, double f)
{
	if (flags & PTX_SAT)
		f = f > 0 ? (f < 1 ? f : 1) : 0;
	if (t == PTX_F64) {
		((lane_f64 *)row)[i] = f;
	} else if (t == PTX_F16) {
		((lane_u32 *)row)[i] = ptx_half_from(f, flags & PTX_TO_INTEGER ? PTX_RN : flags & PTX_ROUNDING);
	} else if (f != f) {
		((lane_u32 *)row)[i] = 0x7fffffff;
	} else {
		bool directed = flags & PTX_ROUNDING && !(flags & PTX_TO_INTEGER);
		if (directed)
			fesetround(host_rounding[flags & PTX_ROUNDING]);
		volatile double exact = f;
		volatile float rounded = (float)exact;
		if (directed)
			fesetround(FE_TONEAREST);
		float r = rounded;
		((lane_f32 *)row)[i] = flags & PTX_FTZ && fabsf(r) < FLT_MIN ? copysignf(0, r) : r;
	}
}

static double whole(double f, unsigned flags)
{
	switch (flags & PTX_ROUNDING) {
	case PTX_RN:
		return rint(f);
	case PTX_RZ:
		return trunc(f);
	case PTX_RM:
		return floor(f);
	default:
		return ceil(f);
	}
}

static void float_to_float(const struct ptx_op *op, void *dst, const void *const *src)
{
	for (int i = 0; i < PTX_WARP; i++) {
		double f = load_float(src[0], i, op->kind, op->flags);
		if (op->flags & PTX_TO_INTEGER)
			f = whole(f, op->flags);
		store_float(dst, i, op->type, op->flags, f);
	}
}

static void float_to_integer(const struct ptx_op *op, void *dst, const void *const *src)
{
	enum ptx_type to = op->type;
	unsigned width = width_of(to);
	double above = ldexp(1, (int)width - is_signed(to)), below = is_signed(to) ? -above : 0;
	uint64_t most = is_signed(to) ? ~0ull >> (65 - width) : ~0ull >> (64 - width);

	for (int i = 0; i < PTX_WARP; i++) {
		double f = load_float(src[0], i, op->kind, op->flags);
		uint64_t r;
		if (f != f) {
			r = op->kind == PTX_F64 || width == 64 ? 1ull << (width - 1) : 0;
		} else {
			f = whole(f, op->flags);
			if (f >= above)
				r = most;
			else if (f <= below)
				r = is_signed(to) ? most + 1 : 0;
			else
				r = is_signed(to) ? (uint64_t)(int64_t)f : (uint64_t)f;
		}
		set_lane(dst, i, to, cut(r, to));
	}
}

static void integer_to_float(const struct ptx_op *op, void *dst, const void *const *src)
{
	enum ptx_type from = op->kind;

	fesetround(host_rounding[op->type == PTX_F16 ? PTX_RN : op->flags & PTX_ROUNDING]);
	for (int i = 0; i < PTX_WARP; i++) {
		volatile int64_t x = extended(lane(src[0], i, from), from);
		if (op->type == PTX_F64) {
			volatile double f = is_signed(from) ? (double)x : (double)(uint64_t)x;
			((lane_f64 *)dst)[i] = f;
		} else if (op->type == PTX_F32) {
			volatile float f = is_signed(from) ? (float)x : (float)(uint64_t)x;
			((lane_f32 *)dst)[i] = f;
		} else {
			/* From 2^53 on, where f64 rounds, every half is infinite or the largest. */
			double f = is_signed(from) ? (double)x : (double)(uint64_t)x;
			((lane_u32 *)dst)[i] = ptx_half_from(f, op->flags & PTX_ROUNDING);
		}
	}
	fesetround(FE_TONEAREST);
	if (op->flags & PTX_SAT)
		for (int i = 0; i < PTX_WARP; i++)
			store_float(dst, i, op->type, op->flags, load_float(dst, i, op->type, 0));
}

/* --- common cases, which vectorise --- */

LANES1(f32_f64, lane_f64, lane_f32, float, double, a)

static uint32_t narrowed(double a)
{
	float f = (float)a;
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return a == a ? bits : 0x7fffffff;
}

LANES1(f64_f32, lane_u32, lane_f64, double, uint32_t, narrowed(a))

ptx_alu ptx_conversion(enum ptx_type to, enum ptx_type from, unsigned flags, bool rounded)
{
	int to_index = integer_index(to), from_index = integer_index(from);
	bool from_float = from == PTX_F32 || from == PTX_F64 || from == PTX_F16;
	bool to_float = to == PTX_F32 || to == PTX_F64 || to == PTX_F16;

	if (from_index >= 0 && to_index >= 0)
		return flags & PTX_TO_INTEGER || rounded ? NULL
		       : flags & PTX_SAT		 ? clamp_integer
							 : from_integer[from_index][to_index];
	if (from_index >= 0 && to_float) {
		if (!rounded || flags & PTX_TO_INTEGER)
			return NULL;
		if (flags & (PTX_ROUNDING | PTX_SAT) || to == PTX_F16)
			return integer_to_float;
		return from_integer[from_index][to == PTX_F32 ? 8 : 9];
	}
	if (from_float && to_index >= 0)
		return flags & PTX_TO_INTEGER ? float_to_integer : NULL;
	if (!from_float || !to_float)
		return NULL;
	if (!flags && from == PTX_F32 && to == PTX_F64)
		return f32_f64;
	if (!flags && rounded && from == PTX_F64 && to == PTX_F32)
		return f64_f32;
	bool narrows = ptx_type_size(to) < ptx_type_size(from);
	return narrows == rounded || flags & PTX_TO_INTEGER ? float_to_float : NULL;
}
