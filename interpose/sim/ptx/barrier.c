/*
 * Barriers of a CTA and of a cluster, and exchanges among the threads of a warp.
 *
 * Invariant: a group waits in state PTX_AT_BARRIER or PTX_AT_COLLECTIVE with its pc on the instruction.
 * The group that completes the set writes the results of all and advances them. A barrier does not wait
 * for exited threads.
 */
#include "sim/ptx/internal.h"

#include <string.h>

static unsigned count_of(uint32_t mask)
{
	return (unsigned)__builtin_popcount(mask);
}

/* The value of row, which must be equal in all threads of mask. */
static bool uniform(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, uint32_t row, uint32_t *value)
{
	const lane_u32 *lanes = ptx_row(w, row);

	*value = lanes[__builtin_ctz(mask)];
	for (uint32_t m = mask; m; m &= m - 1)
		if (lanes[__builtin_ctz(m)] != *value) {
			ptx_fault(w, op, m, PTX_TRAP, "threads of one warp give a barrier different operands");
			return false;
		}
	return true;
}

/* --- barriers --- */

/* Barriers with a count apply to whole warps: a warp whose live threads have all arrived counts 32. */
static unsigned threads_at(const struct ptx_cta *cta, unsigned id)
{
	unsigned sum = cta->barriers[id].arrived;

	for (unsigned i = 0; i < cta->warp_count; i++) {
		const struct ptx_warp *w = &cta->warps[i];
		uint32_t here = 0;
		for (unsigned j = 0; j < w->group_count; j++)
			if (w->groups[j].state == PTX_AT_BARRIER && w->groups[j].barrier == id)
				here |= w->groups[j].mask;
		sum += here && here == w->live ? PTX_WARP : count_of(here);
	}
	return sum;
}

static void write_result(struct ptx_warp *w, const struct ptx_group *g, const struct ptx_barrier *b)
{
	const struct ptx_op *op = &w->cta->run->code[g->pc];
	struct ptx_frame *current = w->frame;

	ptx_enter_frame(w, g->frame);
	if (op->kind == PTX_BAR_POPC) {
		lane_u32 *d = ptx_row(w, op->dst);
		for (uint32_t m = g->mask; m; m &= m - 1)
			d[__builtin_ctz(m)] = b->population;
	} else if (op->kind == PTX_BAR_AND || op->kind == PTX_BAR_OR) {
		bool truth = op->kind == PTX_BAR_AND ? b->all : b->any;
		w->predicate[op->dst] = (w->predicate[op->dst] & ~g->mask) | (truth ? g->mask : 0);
	}
	ptx_enter_frame(w, current);
}

static void release_if_complete(struct ptx_cta *cta, unsigned id)
{
	struct ptx_barrier *b = &cta->barriers[id];

	if (!b->waiting && !b->arrived)
		return;
	if (b->expected ? threads_at(cta, id) < b->expected : b->waiting < cta->live)
		return;
	for (unsigned i = 0; i < cta->warp_count; i++) {
		struct ptx_warp *w = &cta->warps[i];
		for (unsigned j = 0; j < w->group_count; j++) {
			struct ptx_group *g = &w->groups[j];
			if (!g->mask || g->state != PTX_AT_BARRIER || g->barrier != id)
				continue;
			write_result(w, g, b);
			g->state = PTX_RUNS;
			g->pc++;
			w->runnable = w->regroup = true;
		}
	}
	*b = (struct ptx_barrier){0};
}

/* --- the barrier of a cluster --- */

/* A phase ends when all live threads of the cluster have arrived. */
static void end_cluster_phase(struct ptx_cta *cta)
{
	struct ptx_cta *other;

	for (unsigned rank = 0; (other = ptx_block_of_cluster(cta, rank)); rank++)
		for (unsigned i = 0; i < other->warp_count; i++)
			if (other->warps[i].live & ~other->warps[i].arrived)
				return;
	for (unsigned rank = 0; (other = ptx_block_of_cluster(cta, rank)); rank++)
		for (unsigned i = 0; i < other->warp_count; i++) {
			struct ptx_warp *w = &other->warps[i];
			w->arrived = 0;
			for (unsigned j = 0; j < w->group_count; j++) {
				struct ptx_group *g = &w->groups[j];
				if (!g->mask || g->state != PTX_AT_BARRIER || g->barrier != PTX_CLUSTER_BARRIER)
					continue;
				g->state = PTX_RUNS;
				g->pc++;
				w->runnable = w->regroup = true;
			}
		}
}

/* A thread that has not arrived since the last phase ended has nothing to wait for. */
static bool meet_cluster(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	if (op->kind == PTX_BAR_CLUSTER_WAIT && w->arrived & g->mask) {
		g->state = PTX_AT_BARRIER;
		g->barrier = PTX_CLUSTER_BARRIER;
		return true;
	}
	g->pc++;
	if (op->kind == PTX_BAR_CLUSTER_WAIT)
		return true;
	if (w->arrived & g->mask) {
		ptx_fault(w, op, w->arrived & g->mask, PTX_TRAP, "thread arrives twice at the barrier of its cluster");
		return false;
	}
	w->arrived |= g->mask;
	end_cluster_phase(w->cta);
	return true;
}

bool ptx_barrier_arrive(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	struct ptx_cta *cta = w->cta;
	uint32_t id, expected = 0, truth;

	if (op->kind >= PTX_BAR_CLUSTER_ARRIVE)
		return meet_cluster(w, g, op);

	if (!uniform(w, op, g->mask, op->src[0], &id) ||
	    (op->src[1] != PTX_NO_ROW && !uniform(w, op, g->mask, op->src[1], &expected)))
		return false;
	if (id >= PTX_BARRIERS) {
		ptx_fault(w, op, g->mask, PTX_TRAP, "barrier %u: there are only %d", id, PTX_BARRIERS);
		return false;
	}
	if (op->src[1] != PTX_NO_ROW && (!expected || expected % PTX_WARP || expected > 1024)) {
		ptx_fault(w, op, g->mask, PTX_TRAP, "barrier for %u threads: that is no number of whole warps",
			  expected);
		return false;
	}
	struct ptx_barrier *b = &cta->barriers[id];
	if (!b->waiting && !b->arrived) {
		b->expected = expected;
		b->all = true;
	} else if (b->expected != expected) {
		ptx_fault(w, op, g->mask, PTX_TRAP, "barrier %u is used for %u and for %u threads at once", id,
			  b->expected, expected);
		return false;
	}
	truth = ptx_predicate_bits(w, op->src[2]) & g->mask;
	b->population += count_of(truth);
	b->all &= truth == g->mask;
	b->any |= truth != 0;
	if (op->kind == PTX_BAR_ARRIVE) {
		b->arrived += g->mask == w->live ? PTX_WARP : count_of(g->mask);
		g->pc++;
	} else {
		b->waiting += count_of(g->mask);
		g->state = PTX_AT_BARRIER;
		g->barrier = (uint8_t)id;
	}
	release_if_complete(cta, id);
	return true;
}

/* --- exchanges within a warp --- */

struct exchange {
	const struct ptx_op *op;
	uint32_t members; /* the live ones */
	uint32_t truth;	  /* predicate operands, then predicate results */
	uint64_t value[PTX_WARP];
	uint32_t b[PTX_WARP], c[PTX_WARP], result[PTX_WARP];
};

static void gather(struct ptx_warp *w, struct exchange *x, const struct ptx_group *g, uint32_t mask)
{
	const struct ptx_op *op = &w->cta->run->code[g->pc];

	ptx_enter_frame(w, g->frame);
	if (op->type == PTX_PRED) {
		x->truth |= ptx_predicate_bits(w, op->src[0]) & mask;
	} else if (op->type == PTX_B64) {
		ptx_blend(x->value, ptx_row(w, op->src[0]), mask, true);
	} else if (op->type != PTX_NONE) {
		const lane_u32 *a = ptx_row(w, op->src[0]);
		for (int i = 0; i < PTX_WARP; i++)
			x->value[i] = mask & ptx_lane_bit[i] ? a[i] : x->value[i];
		if (op->kind <= PTX_SHFL_IDX) {
			ptx_blend(x->b, ptx_row(w, op->src[1]), mask, false);
			ptx_blend(x->c, ptx_row(w, op->src[2]), mask, false);
		}
	}
}

static void scatter(struct ptx_warp *w, const struct exchange *x, const struct ptx_group *g, uint32_t mask)
{
	const struct ptx_op *op = &w->cta->run->code[g->pc];
	uint32_t predicate = (uint32_t)op->imm;
	bool to_predicate = op->kind >= PTX_VOTE_ALL && op->kind <= PTX_VOTE_UNI;

	ptx_enter_frame(w, g->frame);
	if (op->kind == PTX_SYNC_WARP)
		return;
	if (to_predicate)
		predicate = op->dst;
	else if (op->dst != PTX_NO_ROW)
		ptx_blend(ptx_row(w, op->dst), x->result, mask, false);
	if (predicate)
		w->predicate[predicate] = (w->predicate[predicate] & ~mask) | (x->truth & mask);
}

static void shuffle(struct exchange *x)
{
	x->truth = 0;
	for (int lane = 0; lane < PTX_WARP; lane++) {
		int b = x->b[lane] & 31, clamp = x->c[lane] & 31, segment = x->c[lane] >> 8 & 31, from;
		int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
		bool inside;
		switch (x->op->kind) {
		case PTX_SHFL_UP:
			from = lane - b;
			inside = from >= most;
			break;
		case PTX_SHFL_DOWN:
			from = lane + b;
			inside = from <= most;
			break;
		case PTX_SHFL_BFLY:
			from = lane ^ b;
			inside = from <= most;
			break;
		default:
			from = least | (b & ~segment);
			inside = from <= most;
			break;
		}
		if (!inside)
			from = lane;
		x->result[lane] = x->members >> from & 1 ? (uint32_t)x->value[from] : 0;
		x->truth |= (uint32_t)inside << lane;
	}
}

static void vote(struct exchange *x)
{
	uint32_t truth = x->truth;
	bool all = truth == x->members, any = truth != 0;

	for (int i = 0; i < PTX_WARP; i++)
		x->result[i] = truth;
	x->truth = x->op->kind == PTX_VOTE_ALL	? (all ? PTX_EVERYONE : 0)
		   : x->op->kind == PTX_VOTE_ANY ? (any ? PTX_EVERYONE : 0)
						 : (all || !any ? PTX_EVERYONE : 0);
}

static void match(struct exchange *x)
{
	for (uint32_t m = x->members; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		x->result[i] = 0;
		for (uint32_t n = x->members; n; n &= n - 1)
			if (x->value[__builtin_ctz(n)] == x->value[i])
				x->result[i] |= n & -n;
	}
	if (x->op->kind == PTX_MATCH_ANY)
		return;
	bool all = x->result[__builtin_ctz(x->members)] == x->members;
	for (int i = 0; i < PTX_WARP; i++)
		x->result[i] = all ? x->members : 0;
	x->truth = all ? PTX_EVERYONE : 0;
}

static void reduce(struct exchange *x)
{
	/* Signed numbers are compared with their sign bit flipped. */
	uint32_t flip = x->op->type == PTX_S32 ? 0x80000000u : 0;
	uint32_t r = (uint32_t)x->value[__builtin_ctz(x->members)];

	for (uint32_t m = x->members & (x->members - 1); m; m &= m - 1) {
		uint32_t v = (uint32_t)x->value[__builtin_ctz(m)];
		switch (x->op->kind) {
		case PTX_REDUX_ADD:
			r += v;
			break;
		case PTX_REDUX_MIN:
			r = (v ^ flip) < (r ^ flip) ? v : r;
			break;
		case PTX_REDUX_MAX:
			r = (v ^ flip) > (r ^ flip) ? v : r;
			break;
		case PTX_REDUX_AND:
			r &= v;
			break;
		case PTX_REDUX_OR:
			r |= v;
			break;
		default:
			r ^= v;
			break;
		}
	}
	for (int i = 0; i < PTX_WARP; i++)
		x->result[i] = r;
}

static void compute(struct exchange *x)
{
	switch (x->op->kind) {
	case PTX_SHFL_UP:
	case PTX_SHFL_DOWN:
	case PTX_SHFL_BFLY:
	case PTX_SHFL_IDX:
		shuffle(x);
		break;
	case PTX_VOTE_ALL:
	case PTX_VOTE_ANY:
	case PTX_VOTE_UNI:
	case PTX_VOTE_BALLOT:
		vote(x);
		break;
	case PTX_MATCH_ANY:
	case PTX_MATCH_ALL:
		match(x);
		break;
	case PTX_SYNC_WARP:
		break;
	default:
		reduce(x);
		break;
	}
}

/* All threads of members are in g, or in groups that wait for the same members. */
static bool same_exchange(const struct ptx_warp *w, const struct ptx_group *g, const struct ptx_group *h)
{
	const struct ptx_op *a = &w->cta->run->code[g->pc], *b = &w->cta->run->code[h->pc];

	return h->mask && h->state == PTX_AT_COLLECTIVE && h->members == g->members && a->kind == b->kind &&
	       a->type == b->type;
}

static void begin(const struct ptx_warp *w, struct exchange *x, const struct ptx_group *g, uint32_t members)
{
	x->op = &w->cta->run->code[g->pc];
	x->members = members;
	x->truth = 0;
}

static void finish_waiting(struct ptx_warp *w)
{
	struct ptx_frame *current = w->frame;

	for (unsigned i = 0; i < w->group_count; i++) {
		struct ptx_group *g = &w->groups[i];
		struct exchange x;
		uint32_t come = 0;
		if (!same_exchange(w, g, g))
			continue;
		for (unsigned j = 0; j < w->group_count; j++)
			if (same_exchange(w, g, &w->groups[j]))
				come |= w->groups[j].mask;
		if (come != (g->members & w->live))
			continue;
		memset(&x, 0, sizeof(x));
		begin(w, &x, g, come);
		for (unsigned j = i; j < w->group_count; j++)
			if (same_exchange(w, g, &w->groups[j]))
				gather(w, &x, &w->groups[j], w->groups[j].mask);
		compute(&x);
		struct ptx_group first = *g;
		for (unsigned j = i; j < w->group_count; j++) {
			struct ptx_group *h = &w->groups[j];
			if (!same_exchange(w, &first, h))
				continue;
			scatter(w, &x, h, h->mask);
			h->state = PTX_RUNS;
			h->pc++;
			w->runnable = w->regroup = true;
		}
	}
	ptx_enter_frame(w, current);
}

/* Threads of mask all name members, and no further ones are awaited. */
static void exchange_now(struct ptx_warp *w, const struct ptx_group *g, uint32_t mask)
{
	struct exchange x;

	begin(w, &x, g, mask);
	gather(w, &x, g, PTX_EVERYONE);
	x.truth &= mask;
	compute(&x);
	scatter(w, &x, g, mask);
}

bool ptx_collective_arrive(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	uint32_t members[PTX_WARP], rest = g->mask, through = 0;
	bool waits = false;

	memcpy(members, ptx_row(w, op->src[3]), sizeof(members));
	while (rest) {
		uint32_t named = members[__builtin_ctz(rest)], same = 0;
		for (uint32_t m = rest; m; m &= m - 1)
			if (members[__builtin_ctz(m)] == named)
				same |= m & -m;
		rest &= ~same;
		if (same & ~named) {
			ptx_fault(w, op, same & ~named, PTX_TRAP, "thread is not in the member mask %#x that it gives",
				  named);
			return false;
		}
		if ((named & w->live) == same) {
			exchange_now(w, g, same);
			through |= same;
			continue;
		}
		struct ptx_group *h = g;
		if (same != g->mask) {
			h = ptx_split(w, g, same, g->pc);
			g->mask &= ~same;
		}
		h->state = PTX_AT_COLLECTIVE;
		h->members = named;
		waits = true;
	}
	if (through)
		g->pc++;
	if (waits)
		finish_waiting(w);
	return true;
}

void ptx_threads_left(struct ptx_warp *w, uint32_t mask)
{
	struct ptx_cta *cta = w->cta;

	w->live &= ~mask;
	cta->live -= count_of(mask);
	if (w->live)
		finish_waiting(w);
	else if (cta->traced)
		ptx_trace_state(w);
	for (unsigned id = 0; id < PTX_BARRIERS; id++)
		release_if_complete(cta, id);
	end_cluster_phase(cta);
}
