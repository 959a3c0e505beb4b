/*
 * mbarrier objects: 8 bytes of shared memory each.
 *
 * Invariant: a phase ends as soon as neither arrivals nor bytes are pending; then the next one begins with the
 * expected number of arrivals.
 */
#include "sim/ptx/internal.h"

#include <string.h>

struct object {
	uint64_t expected : 20, pending : 20;
	int64_t bytes : 23;
	uint64_t phase : 1;
};

_Static_assert(sizeof(struct object) == 8, "an mbarrier has 64 bits");

static void end_phase(struct object *o)
{
	if (o->pending || o->bytes)
		return;
	o->phase++;
	o->pending = o->expected;
}

static const char *arrive(struct object *o, uint32_t count)
{
	if (count > o->pending)
		return "more threads arrive at an mbarrier than it expects";
	o->pending -= count;
	end_phase(o);
	return NULL;
}

/* NULL, or why it is an error. */
static const char *apply(unsigned kind, struct object *o, uint32_t n)
{
	uint64_t phase = o->phase;
	const char *error = NULL;

	switch (kind) {
	case PTX_MBARRIER_INIT:
		*o = (struct object){.expected = n, .pending = n};
		return n && n < 1u << 20 ? NULL : "an mbarrier for no threads, or for more than 2^20 - 1";
	case PTX_MBARRIER_INVALIDATE:
		*o = (struct object){0};
		return NULL;
	case PTX_MBARRIER_EXPECT:
		o->bytes += n;
		return NULL;
	case PTX_MBARRIER_COMPLETE:
		o->bytes -= n;
		end_phase(o);
		return NULL;
	case PTX_MBARRIER_ARRIVE_EXPECT:
		o->bytes += n;
		return arrive(o, 1);
	case PTX_MBARRIER_DROP:
		o->expected -= n;
		return arrive(o, n);
	default:
		error = arrive(o, n);
		if (kind == PTX_MBARRIER_ARRIVE_PART && o->phase != phase)
			error = "an arrival with .noComplete completes the phase of an mbarrier";
		return error;
	}
}

/* Whether the phase has ended that a token or a parity names. */
static bool ended(const struct ptx_op *op, const struct object *o, const void *row, int lane)
{
	struct object token;

	if (!op->wide)
		return o->phase != (((const lane_u32 *)row)[lane] & 1);
	memcpy(&token, (const lane_u64 *)row + lane, sizeof(token));
	return o->phase != token.phase;
}

static void wait(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, uint8_t *const *host)
{
	const void *row = ptx_row(w, op->memory.element[1]);
	uint32_t *result = &w->predicate[op->memory.element[0]], through = 0;

	for (uint32_t m = mask; m; m &= m - 1) {
		int lane = __builtin_ctz(m);
		struct object o;
		memcpy(&o, host[lane], sizeof(o));
		through |= ended(op, &o, row, lane) ? ptx_lane_bit[lane] : 0;
	}
	*result = (*result & ~mask) | through;
	w->pause |= op->kind == PTX_MBARRIER_TRY && through != mask;
}

/* Without an address: how many arrivals the token says are pending. */
static void count_pending(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	const lane_u64 *tokens = ptx_row(w, op->memory.element[1]);
	lane_u32 *counts = ptx_row(w, op->memory.element[0]);

	for (uint32_t m = mask; m; m &= m - 1) {
		int lane = __builtin_ctz(m);
		struct object token;
		memcpy(&token, &tokens[lane], sizeof(token));
		counts[lane] = token.pending;
	}
}

bool ptx_mbarrier_apply(struct ptx_warp *w, const struct ptx_op *op, unsigned kind, int lane, uint8_t *host, uint32_t n)
{
	struct object o;

	memcpy(&o, host, sizeof(o));
	const char *error = apply(kind, &o, n);
	if (error)
		ptx_fault(w, op, ptx_lane_bit[lane], PTX_TRAP, "%s", error);
	memcpy(host, &o, sizeof(o));
	return !error;
}

bool ptx_mbarrier(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	const lane_u32 *counts = ptx_row(w, op->memory.element[1]);
	lane_u64 *tokens = op->memory.element[0] == PTX_NO_ROW ? NULL : ptx_row(w, op->memory.element[0]);
	uint8_t *host[PTX_WARP];

	g->pc++;
	if (op->kind == PTX_MBARRIER_PENDING) {
		count_pending(w, op, g->mask);
		return true;
	}
	if (!ptx_resolve(w, op, g->mask, sizeof(struct object), true, host))
		return false;
	if (op->kind >= PTX_MBARRIER_TEST) {
		wait(w, op, g->mask, host);
		return true;
	}
	for (uint32_t m = g->mask; m; m &= m - 1) {
		int lane = __builtin_ctz(m);
		uint64_t before;
		memcpy(&before, host[lane], sizeof(before));
		if (!ptx_mbarrier_apply(w, op, op->kind, lane, host[lane], counts[lane]))
			return false;
		if (tokens)
			tokens[lane] = before;
	}
	return true;
}
