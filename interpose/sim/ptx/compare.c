/*
 * Comparisons and tests of PTX: from rows to one bit for each lane.
 *
 * Invariant: with a NaN operand, ordered comparisons are false and unordered ones true. With .ftz
 * subnormal operands count as zeros.
 */
#include "sim/ptx/lanes.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* One bit of each of 32 bytes that are 0 or 1. */
static inline uint32_t gather(const uint8_t *truth)
{
	uint32_t mask = 0;

	for (int i = 0; i < 4; i++) {
		uint64_t eight;
		memcpy(&eight, truth + 8 * i, 8);
		mask |= (uint32_t)(eight * 0x0102040810204080ull >> 56) << 8 * i;
	}
	return mask;
}

#define COMPARE(name, L, T, convert, expression)                                                              \
	static uint32_t name(const struct ptx_op *op, const void *const *src)                                 \
	{                                                                                                     \
		const L *pa = src[0], *pb = src[1];                                                           \
		uint8_t truth[PTX_WARP];                                                                      \
		(void)op;                                                                                     \
		LANES                                                                                         \
		{                                                                                             \
			T a = convert(pa[i]), b = convert(pb[i]);                                             \
			truth[i] = expression;                                                                \
		}                                                                                             \
		return gather(truth);                                                                         \
	}

#define INTEGER_COMPARES(t, L, T)                                                                             \
	COMPARE(eq_##t, L, T, (T), a == b)                                                                    \
	COMPARE(ne_##t, L, T, (T), a != b)                                                                    \
	COMPARE(lt_##t, L, T, (T), a < b)                                                                     \
	COMPARE(le_##t, L, T, (T), a <= b)                                                                    \
	COMPARE(gt_##t, L, T, (T), a > b)                                                                     \
	COMPARE(ge_##t, L, T, (T), a >= b)
INTEGER_COMPARES(u16, lane_u32, uint16_t)
INTEGER_COMPARES(s16, lane_u32, int16_t)
INTEGER_COMPARES(u32, lane_u32, uint32_t)
INTEGER_COMPARES(s32, lane_u32, int32_t)
INTEGER_COMPARES(u64, lane_u64, uint64_t)
INTEGER_COMPARES(s64, lane_u64, int64_t)

#define FLOAT_COMPARES(t, L, T, convert)                                                                      \
	COMPARE(eq_##t, L, T, convert, a == b)                                                                \
	COMPARE(ne_##t, L, T, convert, a < b || a > b)                                                        \
	COMPARE(lt_##t, L, T, convert, a < b)                                                                 \
	COMPARE(le_##t, L, T, convert, a <= b)                                                                \
	COMPARE(gt_##t, L, T, convert, a > b)                                                                 \
	COMPARE(ge_##t, L, T, convert, a >= b)                                                                \
	COMPARE(equ_##t, L, T, convert, !(a < b || a > b))                                                    \
	COMPARE(neu_##t, L, T, convert, a != b)                                                               \
	COMPARE(ltu_##t, L, T, convert, !(a >= b))                                                            \
	COMPARE(leu_##t, L, T, convert, !(a > b))                                                             \
	COMPARE(gtu_##t, L, T, convert, !(a <= b))                                                            \
	COMPARE(geu_##t, L, T, convert, !(a < b))                                                             \
	COMPARE(num_##t, L, T, convert, a == a && b == b)                                                     \
	COMPARE(nan_##t, L, T, convert, a != a || b != b)

#define AS_IT_IS(x) (x)
#define FLUSHED(x) (fabsf(x) < FLT_MIN ? 0.0f : (x))
#define HALF(x) ptx_half_to_float((uint16_t)(x))
#define HALF_FLUSHED(x) (((x) & 0x7c00) ? HALF(x) : 0.0f)
FLOAT_COMPARES(f32, lane_f32, float, AS_IT_IS)
FLOAT_COMPARES(f32_ftz, lane_f32, float, FLUSHED)
FLOAT_COMPARES(f64, lane_f64, double, AS_IT_IS)
FLOAT_COMPARES(f16, lane_u32, float, HALF)
FLOAT_COMPARES(f16_ftz, lane_u32, float, HALF_FLUSHED)

#define TEST(name, L, T, expression)                                                                          \
	static uint32_t name(const struct ptx_op *op, const void *const *src)                                 \
	{                                                                                                     \
		const L *pa = src[0];                                                                         \
		uint8_t truth[PTX_WARP];                                                                      \
		(void)op;                                                                                     \
		LANES                                                                                         \
		{                                                                                             \
			T a = pa[i];                                                                          \
			truth[i] = !!(expression);                                                            \
		}                                                                                             \
		return gather(truth);                                                                         \
	}

#define FLOAT_TESTS(t, L, T)                                                                                  \
	TEST(finite_##t, L, T, isfinite(a))                                                                   \
	TEST(infinite_##t, L, T, isinf(a))                                                                    \
	TEST(number_##t, L, T, !isnan(a))                                                                     \
	TEST(notanumber_##t, L, T, isnan(a))                                                                  \
	TEST(normal_##t, L, T, isnormal(a))                                                                   \
	TEST(subnormal_##t, L, T, fpclassify(a) == FP_SUBNORMAL)
FLOAT_TESTS(f32, lane_f32, float)
FLOAT_TESTS(f64, lane_f64, double)

static bool in_window(uint64_t address, uint64_t window)
{
	return address - window < PTX_WINDOW;
}

TEST(space_shared, lane_u64, uint64_t, in_window(a, PTX_SHARED_WINDOW))
TEST(space_local, lane_u64, uint64_t, in_window(a, PTX_LOCAL_WINDOW))
TEST(space_global, lane_u64, uint64_t,
     !in_window(a, PTX_SHARED_WINDOW) && !in_window(a, PTX_LOCAL_WINDOW) && !in_window(a, PTX_CODE_WINDOW) &&
	     !in_window(a, PTX_PARAM_WINDOW))

#define U(n) (PTX_IS(PTX_U##n) | PTX_IS(PTX_B##n))
#define S(n) PTX_IS(PTX_S##n)
#define INTEGER_ROWS(name, f)                                                                                 \
	{name, U(16), f##_u16}, {name, S(16), f##_s16}, {name, U(32), f##_u32}, {name, S(32), f##_s32},       \
		{name, U(64), f##_u64}, {name, S(64), f##_s64}
#define UNSIGNED_ROWS(name, f) {name, U(16), f##_u16}, {name, U(32), f##_u32}, {name, U(64), f##_u64}
#define FLOAT_ROWS(name, f)                                                                                   \
	{name, PTX_IS(PTX_F32), f##_f32}, {name, PTX_IS(PTX_F64), f##_f64}, {name, PTX_IS(PTX_F16), f##_f16}, \
		{name ".ftz", PTX_IS(PTX_F32), f##_f32_ftz}, {name ".ftz", PTX_IS(PTX_F16), f##_f16_ftz}
#define TEST_ROWS(name) {#name, PTX_IS(PTX_F32), name##_f32}, {#name, PTX_IS(PTX_F64), name##_f64}

const struct ptx_compare_entry ptx_compare_table[] = {
	INTEGER_ROWS("eq", eq),	 INTEGER_ROWS("ne", ne),  INTEGER_ROWS("lt", lt),  INTEGER_ROWS("le", le),
	INTEGER_ROWS("gt", gt),	 INTEGER_ROWS("ge", ge),  UNSIGNED_ROWS("lo", lt), UNSIGNED_ROWS("ls", le),
	UNSIGNED_ROWS("hi", gt), UNSIGNED_ROWS("hs", ge), FLOAT_ROWS("eq", eq),	   FLOAT_ROWS("ne", ne),
	FLOAT_ROWS("lt", lt),	 FLOAT_ROWS("le", le),	  FLOAT_ROWS("gt", gt),	   FLOAT_ROWS("ge", ge),
	FLOAT_ROWS("equ", equ),	 FLOAT_ROWS("neu", neu),  FLOAT_ROWS("ltu", ltu),  FLOAT_ROWS("leu", leu),
	FLOAT_ROWS("gtu", gtu),	 FLOAT_ROWS("geu", geu),  FLOAT_ROWS("num", num),  FLOAT_ROWS("nan", nan),
	TEST_ROWS(finite),	 TEST_ROWS(infinite),	  TEST_ROWS(number),	   TEST_ROWS(notanumber),
	TEST_ROWS(normal),	 TEST_ROWS(subnormal),
	{"shared", PTX_IS(PTX_U64), space_shared},
	{"local", PTX_IS(PTX_U64), space_local},
	{"global", PTX_IS(PTX_U64), space_global},
	{0},
};
