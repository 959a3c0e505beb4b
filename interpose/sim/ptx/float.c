/*
 * Floating-point arithmetic of PTX, f32 and f64.
 *
 * Invariant: what PTX defines exactly is exact: each operation rounds once, in the given direction; fma is
 * fused; NaN results of f32 are the canonical NaN; .ftz flushes operands and results. Approximate
 * operations of PTX are computed in f64 and rounded.
 */
#include "sim/ptx/lanes.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

#define F32 PTX_IS(PTX_F32)
#define F64 PTX_IS(PTX_F64)
#define ALL (PTX_ROUNDING | PTX_FTZ | PTX_SAT)

static const int host_rounding[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

/* The compiler does not know rounding modes: the barrier keeps the arithmetic between both calls. */
static void set_rounding(unsigned flags)
{
	fesetround(host_rounding[flags & PTX_ROUNDING]);
	__asm__ volatile("" ::: "memory");
}

static void reset_rounding(void)
{
	__asm__ volatile("" ::: "memory");
	fesetround(FE_TONEAREST);
}

static inline float as_f32(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint32_t bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline uint64_t bits_of64(double f)
{
	uint64_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline double as_f64(uint64_t bits)
{
	double f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline float canonical(float f)
{
	return f == f ? f : as_f32(0x7fffffff);
}

static inline float flushed(float f)
{
	return fabsf(f) < FLT_MIN ? as_f32(bits_of(f) & 0x80000000) : f;
}

static inline float in(float f, unsigned flags)
{
	return flags & PTX_FTZ ? flushed(f) : f;
}

static inline float out(float f, unsigned flags)
{
	if (flags & PTX_FTZ)
		f = flushed(f);
	if (flags & PTX_SAT)
		return f > 0 ? (f < 1 ? f : 1) : 0; /* NaN gives 0 */
	return canonical(f);
}

/* Each operation has a plain form, which vectorises, and a general form with flags. */
#define F32_OP(name, operands, expression)                                                                    \
	static void name##_f32(const struct ptx_op *op, void *dst, const void *const *src)                    \
	{                                                                                                     \
		lane_f32 *d = dst;                                                                            \
		const lane_f32 *pa = src[0], *pb = src[operands > 1 ? 1 : 0], *pc = src[operands > 2 ? 2 : 0]; \
		(void)op, (void)pb, (void)pc;                                                                 \
		LANES                                                                                         \
		{                                                                                             \
			float a = pa[i], b = pb[i], c = pc[i];                                                \
			(void)b, (void)c;                                                                     \
			d[i] = canonical(expression);                                                         \
		}                                                                                             \
	}                                                                                                     \
	static void name##_f32_general(const struct ptx_op *op, void *dst, const void *const *src)            \
	{                                                                                                     \
		lane_f32 *d = dst;                                                                            \
		const lane_f32 *pa = src[0], *pb = src[operands > 1 ? 1 : 0], *pc = src[operands > 2 ? 2 : 0]; \
		unsigned flags = op->flags;                                                                   \
		set_rounding(flags);                                                                          \
		LANES                                                                                         \
		{                                                                                             \
			float a = in(pa[i], flags), b = in(pb[i], flags), c = in(pc[i], flags);               \
			(void)b, (void)c;                                                                     \
			d[i] = out(expression, flags);                                                        \
		}                                                                                             \
		reset_rounding();                                                                             \
	}

#define F64_PLAIN(name, operands, expression)                                                                 \
	static void name##_f64(const struct ptx_op *op, void *dst, const void *const *src)                    \
	{                                                                                                     \
		lane_f64 *d = dst;                                                                            \
		const lane_f64 *pa = src[0], *pb = src[operands > 1 ? 1 : 0], *pc = src[operands > 2 ? 2 : 0]; \
		(void)op, (void)pb, (void)pc;                                                                 \
		LANES                                                                                         \
		{                                                                                             \
			double a = pa[i], b = pb[i], c = pc[i];                                               \
			(void)b, (void)c;                                                                     \
			d[i] = expression;                                                                    \
		}                                                                                             \
	}
#define F64_OP(name, operands, expression)                                                                    \
	F64_PLAIN(name, operands, expression)                                                                 \
	static void name##_f64_general(const struct ptx_op *op, void *dst, const void *const *src)            \
	{                                                                                                     \
		set_rounding(op->flags);                                                                      \
		name##_f64(op, dst, src);                                                                     \
		reset_rounding();                                                                             \
	}

/* -0 is less than +0; a number wins over a NaN. */
static inline float least_f32(float a, float b)
{
	if (a == b)
		return as_f32(bits_of(a) | bits_of(b));
	return a < b || b != b ? a : b;
}

static inline float greatest_f32(float a, float b)
{
	if (a == b)
		return as_f32(bits_of(a) & bits_of(b));
	return a > b || b != b ? a : b;
}

static inline double least_f64(double a, double b)
{
	if (a == b)
		return as_f64(bits_of64(a) | bits_of64(b));
	return a < b || b != b ? a : b;
}

static inline double greatest_f64(double a, double b)
{
	if (a == b)
		return as_f64(bits_of64(a) & bits_of64(b));
	return a > b || b != b ? a : b;
}

F32_OP(add, 2, a + b)
F32_OP(sub, 2, a - b)
F32_OP(mul, 2, a * b)
F32_OP(div, 2, a / b)
F32_OP(fma, 3, fmaf(a, b, c))
F32_OP(sqrt, 1, sqrtf(a))
F32_OP(rcp, 1, 1 / a)
F32_OP(min, 2, least_f32(a, b))
F32_OP(max, 2, greatest_f32(a, b))
F32_OP(min_nan, 2, a != a || b != b ? NAN : least_f32(a, b))
F32_OP(max_nan, 2, a != a || b != b ? NAN : greatest_f32(a, b))
F32_OP(rsqrt, 1, (float)(1 / sqrt((double)a)))
F32_OP(sin, 1, (float)sin((double)a))
F32_OP(cos, 1, (float)cos((double)a))
F32_OP(ex2, 1, (float)exp2((double)a))
F32_OP(lg2, 1, (float)log2((double)a))
F32_OP(tanh, 1, (float)tanh((double)a))

F64_OP(add, 2, a + b)
F64_OP(sub, 2, a - b)
F64_OP(mul, 2, a * b)
F64_OP(div, 2, a / b)
F64_OP(fma, 3, fma(a, b, c))
F64_OP(sqrt, 1, sqrt(a))
F64_OP(rcp, 1, 1 / a)
F64_PLAIN(min, 2, least_f64(a, b))
F64_PLAIN(max, 2, greatest_f64(a, b))

/* Approximations in f64 read and write only the upper halves. */
static double upper_half(double f)
{
	return as_f64(bits_of64(f) >> 32 << 32);
}

static double flushed64(double f)
{
	return fabs(f) < DBL_MIN ? as_f64(bits_of64(f) & 1ull << 63) : f;
}

F64_PLAIN(rcp_gross, 1, flushed64(upper_half(1 / flushed64(upper_half(a)))))
F64_PLAIN(rsqrt_gross, 1, upper_half(1 / sqrt(a)))
F64_PLAIN(rsqrt_gross_ftz, 1, flushed64(upper_half(1 / sqrt(flushed64(upper_half(a))))))

#define SIGN_OPS(t, L, V, sign)                                                                               \
	LANES1(neg_f##t, L, L, V, V, a ^ sign)                                                                \
	LANES1(abs_f##t, L, L, V, V, a & ~sign)                                                               \
	LANES2(copysign_f##t, L, L, L, V, V, V, (a & sign) | (b & ~sign))
SIGN_OPS(32, lane_u32, uint32_t, 0x80000000u)
SIGN_OPS(64, lane_u64, uint64_t, 0x8000000000000000ull)

LANES1(neg_ftz_f32, lane_f32, lane_f32, float, float, -flushed(a))
LANES1(abs_ftz_f32, lane_f32, lane_f32, float, float, fabsf(flushed(a)))

#define BOTH(opcode, shape, f)                                                                                \
	{opcode, F32, shape, ALL, f##_f32, f##_f32_general}, {opcode, F64, shape, PTX_ROUNDING, f##_f64,      \
							      f##_f64_general}

const struct ptx_alu_entry ptx_float_table[] = {
	BOTH("add", "ttt", add),
	BOTH("sub", "ttt", sub),
	BOTH("mul", "ttt", mul),
	BOTH("div", "ttt", div),
	BOTH("fma", "tttt", fma),
	BOTH("mad", "tttt", fma),
	BOTH("sqrt", "tt", sqrt),
	BOTH("rcp", "tt", rcp),
	{"div.full", F32, "ttt", PTX_FTZ, div_f32, div_f32_general},
	{"div.approx", F32, "ttt", PTX_FTZ, div_f32, div_f32_general},
	{"sqrt.approx", F32, "tt", PTX_FTZ, sqrt_f32, sqrt_f32_general},
	{"rcp.approx", F32, "tt", PTX_FTZ, rcp_f32, rcp_f32_general},
	{"rcp.approx.ftz", F64, "tt", 0, rcp_gross_f64, 0},
	{"rsqrt.approx", F32, "tt", PTX_FTZ, rsqrt_f32, rsqrt_f32_general},
	{"rsqrt.approx.ftz", F64, "tt", 0, rsqrt_gross_ftz_f64, 0},
	{"rsqrt.approx", F64, "tt", 0, rsqrt_gross_f64, 0},
	{"sin.approx", F32, "tt", PTX_FTZ, sin_f32, sin_f32_general},
	{"cos.approx", F32, "tt", PTX_FTZ, cos_f32, cos_f32_general},
	{"ex2.approx", F32, "tt", PTX_FTZ, ex2_f32, ex2_f32_general},
	{"lg2.approx", F32, "tt", PTX_FTZ, lg2_f32, lg2_f32_general},
	{"tanh.approx", F32, "tt", PTX_FTZ, tanh_f32, tanh_f32_general},
	{"min", F32, "ttt", PTX_FTZ, min_f32, min_f32_general},
	{"max", F32, "ttt", PTX_FTZ, max_f32, max_f32_general},
	{"min.NaN", F32, "ttt", PTX_FTZ, min_nan_f32, min_nan_f32_general},
	{"max.NaN", F32, "ttt", PTX_FTZ, max_nan_f32, max_nan_f32_general},
	{"min", F64, "ttt", 0, min_f64, 0},
	{"max", F64, "ttt", 0, max_f64, 0},
	{"neg", F32, "tt", PTX_FTZ, neg_f32, neg_ftz_f32},
	{"abs", F32, "tt", PTX_FTZ, abs_f32, abs_ftz_f32},
	{"neg", F64, "tt", 0, neg_f64, 0},
	{"abs", F64, "tt", 0, abs_f64, 0},
	{"copysign", F32, "ttt", 0, copysign_f32, 0},
	{"copysign", F64, "ttt", 0, copysign_f64, 0},
	{0},
};
