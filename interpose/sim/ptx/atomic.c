/*
 * atom and red: one thread after another, each with an atomic operation of the host, because another
 * launch or the host program may use the same memory meanwhile.
 */
#include "sim/ptx/internal.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Sums in global memory flush subnormal numbers, those in shared memory do not. */
static uint32_t sum_f32(uint32_t a, uint32_t b, bool flush)
{
	float x, y, r;
	uint32_t bits;

	memcpy(&x, &a, sizeof(x));
	memcpy(&y, &b, sizeof(y));
	if (flush && fabsf(x) < FLT_MIN)
		x = copysignf(0, x);
	if (flush && fabsf(y) < FLT_MIN)
		y = copysignf(0, y);
	r = x + y;
	if (flush && fabsf(r) < FLT_MIN)
		r = copysignf(0, r);
	memcpy(&bits, &r, sizeof(bits));
	return r == r ? bits : 0x7fffffff;
}

static uint64_t sum_f64(uint64_t a, uint64_t b)
{
	double x, y;

	memcpy(&x, &a, sizeof(x));
	memcpy(&y, &b, sizeof(y));
	x += y;
	memcpy(&a, &x, sizeof(a));
	return a;
}

static uint32_t combine32(const struct ptx_op *op, uint32_t old, uint32_t b, uint32_t c, bool flush)
{
	bool is_signed = op->type == PTX_S32;

	switch (op->kind) {
	case PTX_ATOM_ADD:
		return op->type == PTX_F32 ? sum_f32(old, b, flush) : old + b;
	case PTX_ATOM_MIN:
		return (is_signed ? (int32_t)b < (int32_t)old : b < old) ? b : old;
	case PTX_ATOM_MAX:
		return (is_signed ? (int32_t)b > (int32_t)old : b > old) ? b : old;
	case PTX_ATOM_AND:
		return old & b;
	case PTX_ATOM_OR:
		return old | b;
	case PTX_ATOM_XOR:
		return old ^ b;
	case PTX_ATOM_INC:
		return old >= b ? 0 : old + 1;
	case PTX_ATOM_DEC:
		return old == 0 || old > b ? b : old - 1;
	case PTX_ATOM_EXCH:
		return b;
	default:
		return old == b ? c : old;
	}
}

static uint64_t combine64(const struct ptx_op *op, uint64_t old, uint64_t b, uint64_t c)
{
	bool is_signed = op->type == PTX_S64;

	switch (op->kind) {
	case PTX_ATOM_ADD:
		return op->type == PTX_F64 ? sum_f64(old, b) : old + b;
	case PTX_ATOM_MIN:
		return (is_signed ? (int64_t)b < (int64_t)old : b < old) ? b : old;
	case PTX_ATOM_MAX:
		return (is_signed ? (int64_t)b > (int64_t)old : b > old) ? b : old;
	case PTX_ATOM_AND:
		return old & b;
	case PTX_ATOM_OR:
		return old | b;
	case PTX_ATOM_XOR:
		return old ^ b;
	case PTX_ATOM_EXCH:
		return b;
	default:
		return old == b ? c : old;
	}
}

static uint64_t combine_at64(_Atomic uint64_t *p, const struct ptx_op *op, uint64_t b, uint64_t c)
{
	uint64_t seen = atomic_load(p);

	while (!atomic_compare_exchange_weak(p, &seen, combine64(op, seen, b, c)))
		;
	return seen;
}

static uint32_t combine_at32(_Atomic uint32_t *p, const struct ptx_op *op, uint32_t b, uint32_t c, bool flush)
{
	uint32_t seen = atomic_load(p);

	while (!atomic_compare_exchange_weak(p, &seen, combine32(op, seen, b, c, flush)))
		;
	return seen;
}

void ptx_reduce(enum ptx_atomic_kind kind, enum ptx_type type, uint8_t *to, const uint8_t *from)
{
	const struct ptx_op op = {.kind = (uint8_t)kind, .type = (uint8_t)type};
	uint64_t b64;
	uint32_t b32;

	if (ptx_type_size(type) == sizeof(b64)) {
		memcpy(&b64, from, sizeof(b64));
		combine_at64((void *)to, &op, b64, 0);
	} else {
		memcpy(&b32, from, sizeof(b32));
		combine_at32((void *)to, &op, b32, 0, true);
	}
}

bool ptx_atomic_rows(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	const uint8_t *shared = w->cta->shared;
	uint8_t *host[PTX_WARP];
	uint64_t old[PTX_WARP];

	if (!ptx_resolve(w, op, mask, ptx_type_size(op->type), true, host))
		return false;
	const lane_u32 *b32 = ptx_row(w, op->memory.element[1]), *c32 = ptx_row(w, op->memory.element[2]);
	const lane_u64 *b64 = (const void *)b32, *c64 = (const void *)c32;
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		if (op->wide) {
			old[i] = combine_at64((void *)host[i], op, b64[i], c64[i]);
		} else {
			bool flush = host[i] < shared || host[i] >= shared + w->cta->run->shared_bytes;
			old[i] = combine_at32((void *)host[i], op, b32[i], c32[i], flush);
		}
	}
	if (op->memory.element[0] == PTX_NO_ROW)
		return true;
	void *dst = ptx_row(w, op->memory.element[0]);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		if (op->wide)
			((lane_u64 *)dst)[i] = old[i];
		else
			((lane_u32 *)dst)[i] = (uint32_t)old[i];
	}
	return true;
}
