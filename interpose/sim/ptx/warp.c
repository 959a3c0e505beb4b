/*
 * Runs one warp: its threads in groups that execute together.
 *
 * Threads at the same instruction of the same frame form one group. The runnable group that is deepest in
 * calls, then furthest back in the code, runs first until it reaches the next group: there diverged
 * threads reconverge. A group that has waited long runs anyway, because others may be waiting for it.
 *
 * Invariant: the masks of the groups are disjoint and together are the warp's live threads.
 */
#include "sim/ptx/internal.h"

#include <stdatomic.h>
#include <time.h>

#define PATIENCE 4096 /* instructions of other groups after which a waiting group runs */
#define TURN 256      /* instructions that it then may execute */

const uint32_t ptx_lane_bit[PTX_WARP] = {
#define BITS(n) 1u << (n), 2u << (n), 4u << (n), 8u << (n)
	BITS(0), BITS(4), BITS(8), BITS(12), BITS(16), BITS(20), BITS(24), BITS(28),
#undef BITS
};

bool ptx_warp_begin(struct ptx_warp *w, uint32_t threads)
{
	w->live = threads;
	w->carry = 0;
	w->clock = 0;
	w->until = 0;
	w->runnable = true;
	w->group_count = 0;
	if (!ptx_frames_begin(w))
		return false;
	w->group_count = 1;
	w->groups[0] = (struct ptx_group){
		.mask = threads,
		.pc = w->cta->run->kernel->first,
		.frame = w->frame,
	};
	return true;
}

void ptx_warp_release(struct ptx_warp *w)
{
	for (unsigned i = 0; i < w->group_count; i++)
		if (w->groups[i].mask)
			ptx_frame_drop(w, w->groups[i].frame);
	ptx_frames_release(w);
}

struct ptx_group *ptx_split(struct ptx_warp *w, const struct ptx_group *g, uint32_t mask, uint32_t pc)
{
	struct ptx_group *new = &w->groups[w->group_count++];

	*new = *g;
	new->mask = mask;
	new->pc = pc;
	new->state = PTX_RUNS;
	new->frame->references++;
	w->regroup = true;
	return new;
}

static void tidy(struct ptx_warp *w)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w->group_count; i++) {
		struct ptx_group *g = &w->groups[i];
		if (!g->mask)
			continue;
		for (unsigned j = 0; j < n && g->state == PTX_RUNS; j++) {
			struct ptx_group *h = &w->groups[j];
			if (h->state == PTX_RUNS && h->pc == g->pc && h->frame == g->frame) {
				h->mask |= g->mask;
				h->stamp = h->stamp < g->stamp ? h->stamp : g->stamp;
				g->frame->references--;
				g->mask = 0;
				break;
			}
		}
		if (g->mask)
			w->groups[n++] = *g;
	}
	w->group_count = n;
	w->regroup = false;
}

/* Chooses the next group: it may run up to *limit in the code, for *turn instructions. */
static struct ptx_group *choose(struct ptx_warp *w, uint32_t *limit, uint32_t *turn)
{
	struct ptx_group *best = NULL, *oldest = NULL;

	tidy(w);
	for (unsigned i = 0; i < w->group_count; i++) {
		struct ptx_group *g = &w->groups[i];
		if (g->state != PTX_RUNS)
			continue;
		if (!best || g->frame->depth > best->frame->depth ||
		    (g->frame->depth == best->frame->depth && g->pc < best->pc))
			best = g;
		if (!oldest || g->stamp < oldest->stamp)
			oldest = g;
	}
	if (!best)
		return NULL;
	uint64_t waited = w->clock - oldest->stamp;
	*turn = UINT32_MAX;
	if (oldest != best && waited >= PATIENCE) {
		best = oldest;
		*turn = TURN;
	} else if (oldest != best) {
		*turn = (uint32_t)(PATIENCE - waited);
	}
	*limit = UINT32_MAX;
	for (unsigned i = 0; i < w->group_count; i++) {
		const struct ptx_group *g = &w->groups[i];
		if (g->state == PTX_RUNS && g->frame == best->frame && g->pc > best->pc && g->pc < *limit)
			*limit = g->pc;
	}
	return best;
}

static void read_time(const struct ptx_op *op, void *dst)
{
	struct timespec t;
	uint64_t value;

	clock_gettime(op->kind < PTX_TIMER ? CLOCK_MONOTONIC : CLOCK_REALTIME, &t);
	value = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	if (op->kind == PTX_CLOCK_HIGH || op->kind == PTX_TIMER_HIGH)
		value >>= 32;
	for (int i = 0; i < PTX_WARP; i++)
		if (op->wide)
			((lane_u64 *)dst)[i] = op->kind == PTX_CLOCK ? (uint32_t)value : value;
		else
			((lane_u32 *)dst)[i] = (uint32_t)value;
}

static void fill(void *dst, uint64_t value, bool wide)
{
	for (int i = 0; i < PTX_WARP; i++)
		if (wide)
			((lane_u64 *)dst)[i] = value;
		else
			((lane_u32 *)dst)[i] = (uint32_t)value;
}

static void select_rows(struct ptx_warp *w, const struct ptx_op *op, void *dst)
{
	uint32_t which = ptx_predicate_bits(w, op->src[2]);

	if (op->wide) {
		lane_u64 *d = dst;
		const lane_u64 *a = ptx_row(w, op->src[0]), *b = ptx_row(w, op->src[1]);
		INDEPENDENT
		for (int i = 0; i < PTX_WARP; i++)
			d[i] = which & ptx_lane_bit[i] ? a[i] : b[i];
	} else {
		lane_u32 *d = dst;
		const lane_u32 *a = ptx_row(w, op->src[0]), *b = ptx_row(w, op->src[1]);
		INDEPENDENT
		for (int i = 0; i < PTX_WARP; i++)
			d[i] = which & ptx_lane_bit[i] ? a[i] : b[i];
	}
}

static uint32_t combined(struct ptx_warp *w, const struct ptx_op *op, uint32_t truth)
{
	uint32_t c = ptx_predicate_bits(w, op->src[2]);

	return op->kind == PTX_AND ? truth & c : op->kind == PTX_OR ? truth | c : truth ^ c;
}

static void set_predicate(struct ptx_warp *w, uint32_t index, uint32_t mask, uint32_t bits)
{
	w->predicate[index] = (w->predicate[index] & ~mask) | (bits & mask);
}

static void compare_rows(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	const void *src[2] = {ptx_row(w, op->src[0]), ptx_row(w, op->src[1])};
	uint32_t truth = op->compare(op, src), first = combined(w, op, truth);

	if (op->src[3])
		set_predicate(w, op->src[3], mask, combined(w, op, ~truth));
	set_predicate(w, op->dst, mask, first);
}

static void set_rows(struct ptx_warp *w, const struct ptx_op *op, void *dst)
{
	const void *src[2] = {ptx_row(w, op->src[0]), ptx_row(w, op->src[1])};
	uint32_t truth = combined(w, op, op->compare(op, src));

	for (int i = 0; i < PTX_WARP; i++)
		((lane_u32 *)dst)[i] = truth >> i & 1 ? (uint32_t)op->imm : 0;
}

static void predicate_logic(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	uint32_t a = ptx_predicate_bits(w, op->src[0]), b = ptx_predicate_bits(w, op->src[1]), bits = 0;

	bits |= op->imm & 1 ? ~a & ~b : 0;
	bits |= op->imm & 2 ? a & ~b : 0;
	bits |= op->imm & 4 ? ~a & b : 0;
	bits |= op->imm & 8 ? a & b : 0;
	set_predicate(w, op->dst, mask, bits);
}

static void compute_carry(struct ptx_warp *w, const struct ptx_op *op, void *dst, uint32_t mask)
{
	const void *src[3] = {ptx_row(w, op->src[0]), ptx_row(w, op->src[1]), ptx_row(w, op->src[2])};
	uint32_t out = ptx_carry(op, dst, src, w->carry);

	if (op->flags & PTX_SETS_CARRY)
		w->carry = (w->carry & ~mask) | (out & mask);
}

static bool branch_by_table(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	const lane_u32 *index = ptx_row(w, op->src[0]);
	uint32_t rest = g->mask;

	while (rest) {
		unsigned first = (unsigned)__builtin_ctz(rest);
		uint32_t same = 0;
		if (index[first] >= (uint64_t)op->imm) {
			ptx_fault(w, op, ptx_lane_bit[first], PTX_TRAP, "branch to entry %u of a table of %d",
				  index[first], (int)op->imm);
			return false;
		}
		for (uint32_t m = rest; m; m &= m - 1)
			if (index[__builtin_ctz(m)] == index[first])
				same |= m & -m;
		rest &= ~same;
		if (rest)
			ptx_split(w, g, same, op->targets[index[first]]);
		else
			g->pc = op->targets[index[first]];
		g->mask = rest ? rest : same;
	}
	return true;
}

uint32_t ptx_same_target(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	const lane_u64 *address = ptx_row(w, op->src[0]);
	uint64_t first = address[__builtin_ctz(mask)];
	uint32_t same = 0;

	for (uint32_t m = mask; m; m &= m - 1)
		if (address[__builtin_ctz(m)] == first)
			same |= m & -m;
	return same;
}

static bool call_by_row(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	const lane_u64 *address = ptx_row(w, op->src[0]);
	unsigned first = (unsigned)__builtin_ctz(g->mask);
	const struct ptx_function *f = ptx_function_of(w->cta->run->kernel->module, address[first]);

	if (!f) {
		ptx_fault(w, op, ptx_lane_bit[first], PTX_BAD_ADDRESS, "call of %#llx, which is no function",
			  (unsigned long long)address[first]);
		return false;
	}
	uint32_t same = ptx_same_target(w, op, g->mask);
	if (same != g->mask)
		ptx_split(w, g, g->mask & ~same, g->pc);
	g->mask = same;
	return ptx_call(w, g, op, f);
}

static void leave(struct ptx_warp *w, struct ptx_group *g)
{
	uint32_t mask = g->mask;

	ptx_frame_drop(w, g->frame);
	g->mask = 0;
	ptx_threads_left(w, mask);
}

/* An instruction that may split the group or make it wait; g->pc is its position. */
static void steer(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op, uint32_t mask)
{
	if (mask != g->mask) {
		ptx_split(w, g, g->mask & ~mask, g->pc + 1);
		g->mask = mask;
	}
	switch (op->code) {
	case PTX_OP_BRANCH:
		g->pc = (uint32_t)op->target;
		break;
	case PTX_OP_BRANCH_TABLE:
		branch_by_table(w, g, op);
		break;
	case PTX_OP_CALL:
		ptx_call(w, g, op, op->call->callee);
		break;
	case PTX_OP_CALL_ROW:
		call_by_row(w, g, op);
		break;
	case PTX_OP_RETURN:
		ptx_return(w, g);
		break;
	case PTX_OP_EXIT:
		leave(w, g);
		break;
	case PTX_OP_BARRIER:
		ptx_barrier_arrive(w, g, op);
		break;
	case PTX_OP_MBARRIER:
		ptx_mbarrier(w, g, op);
		break;
	case PTX_OP_COPY:
		ptx_copy(w, g, op);
		break;
	case PTX_OP_TENSOR:
		ptx_tensor_copy(w, g, op);
		break;
	case PTX_OP_COLLECTIVE:
		ptx_collective_arrive(w, g, op);
		break;
	case PTX_OP_PAUSE:
		w->pause = true;
		g->pc++;
		break;
	case PTX_OP_ASSERT:
		ptx_fail_assertion(w, g, op);
		break;
	case PTX_OP_SET_CONDITION:
		ptx_set_condition(w, g, op);
		break;
	case PTX_OP_TRAP:
		ptx_fault(w, op, g->mask, PTX_TRAP, "trap");
		break;
	default:
		ptx_fault(w, op, g->mask, PTX_UNSUPPORTED, "unsupported: %s", op->text);
		break;
	}
}

static inline __attribute__((always_inline)) uint32_t execute(struct ptx_warp *w, struct ptx_group *g, uint32_t limit,
							       uint32_t turn, const uint8_t *stops)
{
	const struct ptx_op *code = w->cta->run->code;
	_Alignas(64) uint64_t aside[PTX_WARP];
	uint32_t pc = g->pc, n = 0;

	while (n < turn && pc < limit && !(stops && n && stops[pc])) {
		const struct ptx_op *op = &code[pc];
		uint32_t mask = g->mask;
		n++;
		if (op->guard) {
			mask &= ptx_predicate_bits(w, op->guard);
			if (!mask) {
				pc++;
				continue;
			}
		}
		/* Lanes of exited threads may be overwritten, those of other groups may not. */
		bool whole = mask == w->live;
		void *dst = aside;
		switch (op->code) {
		case PTX_OP_ALU: {
			const void *src[4] = {ptx_row(w, op->src[0]), ptx_row(w, op->src[1]), ptx_row(w, op->src[2]),
					      ptx_row(w, op->src[3])};
			if (whole) {
				op->alu(op, ptx_row(w, op->dst), src);
				pc++;
				continue;
			}
			op->alu(op, aside, src);
			break;
		}
		case PTX_OP_SELECT:
			select_rows(w, op, dst);
			break;
		case PTX_OP_SET:
			set_rows(w, op, dst);
			break;
		case PTX_OP_CARRY:
			compute_carry(w, op, dst, mask);
			break;
		case PTX_OP_TIME:
			read_time(op, dst);
			break;
		case PTX_OP_ACTIVE_MASK:
			fill(dst, mask, false);
			break;
		case PTX_OP_FRAME_ADDRESS:
			fill(dst, w->frame->local + (uint64_t)op->imm, op->wide);
			break;
		case PTX_OP_COMPARE:
			compare_rows(w, op, mask);
			pc++;
			continue;
		case PTX_OP_PREDICATE:
			predicate_logic(w, op, mask);
			pc++;
			continue;
		case PTX_OP_LOAD:
			if (!ptx_load_rows(w, op, mask))
				return n;
			pc++;
			continue;
		case PTX_OP_LOAD_UNIFORM:
			if (!ptx_load_uniform(w, op, mask))
				return n;
			pc++;
			continue;
		case PTX_OP_STORE:
			if (!ptx_store_rows(w, op, mask))
				return n;
			pc++;
			continue;
		case PTX_OP_ATOMIC:
			if (!ptx_atomic_rows(w, op, mask))
				return n;
			pc++;
			continue;
		case PTX_OP_FENCE:
			atomic_thread_fence(memory_order_seq_cst);
			pc++;
			continue;
		case PTX_OP_NOTHING:
			pc++;
			continue;
		default:
			if (op->code == PTX_OP_BRANCH && mask == g->mask) {
				pc = (uint32_t)op->target;
				continue;
			}
			g->pc = pc;
			g->stamp = w->clock + n; /* those that split off have run until now as well */
			steer(w, g, op, mask);
			if (w->regroup || g->mask != mask || g->state != PTX_RUNS || g->frame != w->frame || w->pause)
				return n;
			pc = g->pc;
			continue;
		}
		if (whole && !op->wide)
			__builtin_memcpy(ptx_row(w, op->dst), aside, PTX_WARP * 4);
		else
			ptx_blend(ptx_row(w, op->dst), aside, whole ? PTX_EVERYONE : mask, op->wide);
		pc++;
	}
	g->pc = pc;
	return n;
}

uint32_t ptx_execute(struct ptx_warp *w, struct ptx_group *g, uint32_t limit, uint32_t turn)
{
	return execute(w, g, limit, turn, NULL);
}

uint32_t ptx_execute_until(struct ptx_warp *w, struct ptx_group *g, uint32_t limit, uint32_t turn, const uint8_t *stops)
{
	return execute(w, g, limit, turn, stops);
}

void ptx_warp_run(struct ptx_warp *w, uint32_t slice)
{
	struct ptx_run *run = w->cta->run;
	const ptx_module *m = run->kernel->module;
	const uint8_t *delayed = m->any_delays && !w->cta->traced ? m->delayed : NULL;

	w->pause = false;
	while (slice && run->status == PTX_OK && !w->pause) {
		uint32_t limit, turn;
		struct ptx_group *g = choose(w, &limit, &turn);
		if (!g) {
			w->runnable = false;
			if (w->cta->traced)
				ptx_trace_state(w);
			return;
		}
		ptx_enter_frame(w, g->frame);
		if (delayed && delayed[g->pc] && ptx_hold(w, g))
			return;
		turn = turn < slice ? turn : slice;
		uint32_t n = w->cta->traced ? ptx_trace_execute(w, g, limit, turn)
			     : delayed      ? ptx_execute_until(w, g, limit, turn, delayed)
					    : ptx_execute(w, g, limit, turn);
		w->clock += n;
		w->cta->clock += n;
		run->now += n;
		g->stamp = w->clock;
		slice -= n;
		if (n > run->budget) {
			ptx_fault(w, &run->code[g->pc], g->mask, PTX_TIMEOUT, "the kernel does not end");
			return;
		}
		run->budget -= n;
	}
}
