/*
 * Counts executions. See trace_code.h for the invariant.
 *
 * While all lanes of a warp are active, its counts are in registers: lane n has those of slot n, executions and threads,
 * and adds to them without a predicate. A lane that exits adds what it has to the counts in memory, with one reduction for
 * all lanes that do so. Where lanes are missing, and for slots that have no registers, a warp adds to memory at once, with one
 * reduction. There are many copies of the counts that the clock chooses, so that few warps add to the same line of the cache.
 *
 * Where the kernel leaves a predicate unused, this code uses it. Then it has only instructions of fixed latency, and waits for
 * nothing but the operands of the last reduction. Else it saves the predicates where it needs one.
 */
#include <stddef.h>

#include "sass/blocks.h"
#include "sass/trace_parts.h"
#include "trace_ring.h"

#define PREDICATES 7u
#define RZ 255u
#define ALWAYS 7u /* a predicate */
#define PAIRS_MAX (COUNTS_IN_REGISTERS / LANES)
#define ADDITION 3u /* instructions of an addition, with the branch before it */
#define EXIT 0x94du
#define COPIES_BYTES (1u << 20) /* of all copies together, where they are not few */
#define COPIES_MOST 4096u
#define COPIES_LEAST 128u
#define BYTES_MOST ((uint64_t)64 << 20)

#define STALL(cycles) (0x7e0ull | (cycles))

/* ELECT P, URZ, PT; VOTEU.ANY d, UPT, guard; UPOPC d, b; ULDC.64 d, c[0x0][…] */
static const struct instruction encoding_elect = {0x00000000003f782f, 0x03800000};
static const struct instruction encoding_vote = {0x0000000000007886, 0x000e0100};
static const struct instruction encoding_threads = {0x00000000000072bf, 0x08000000};
static const struct instruction encoding_constant = {0x0000000000007ab9, 0x0a00};
/* CS2R.32 d, SR_CLOCKLO; LOP3.LUT d, a, imm, RZ, 0xc0; IMAD.WIDE.U32 d, a, imm, c */
static const struct instruction encoding_clock = {0x0000000000007805, 0x5000};
static const struct instruction encoding_and = {0x0000000000007812, 0x078ec0ff};
static const struct instruction encoding_place = {0x0000000000007825, 0x078e0000};
/* MOV d, 0; MOV d, UR; VIMNMX d, a, 1, PT; REDG.E.ADD.64.STRONG.GPU desc[c][a], b */
static const struct instruction encoding_zero = {0x0000000000007802, 0xf00};
static const struct instruction encoding_from_uniform = {0x0000000000007c02, 0x08000f00};
static const struct instruction encoding_least = {0x0000000100007848, 0x03fe0100};
static const struct instruction encoding_reduce = {0x000000000000798e, 0x0c10e580};

/* UISETP.NE.AND d, UPT, a, -1, UPT; USEL d, URZ, 1, !a */
static const struct instruction encoding_if_part = {0xffffffff0000788c, 0x0bf05270};
static const struct instruction encoding_any = {0x000000013f007887, 0x0c000000};
/* SHF.R.U32.HI d, RZ, imm, c; IMAD d, a, UR, c; IMAD d, a, imm, c; BRA.U UP */
static const struct instruction encoding_shift = {0x00000000ff007819, 0x00011600};
static const struct instruction encoding_add = {0x0000000000007c24, 0x0f8e0200};
static const struct instruction encoding_add_number = {0x0000000000007824, 0x078e0200};
static const struct instruction encoding_branch_if = {0x0000000100007547, 0x0b800000};
/* S2R d, SR_EQMASK; S2R d, SR_LANEID; LDC.64 d, c[0x0][…]; ISETP.NE.AND P0, PT, a, RZ, PT */
static const struct instruction encoding_lane_bit = {0x0000000000007919, 0x3800};
static const struct instruction encoding_lane = {0x0000000000007919, 0};
static const struct instruction encoding_load_constant = {0x00000000ff007b82, 0x0a00};
static const struct instruction encoding_if_some = {0x000000ff0000720c, 0x03f05270};

#define FIRST_SCOREBOARD 0x702ull /* is set by what has no fixed latency */
#define DESCRIPTOR 0x208u /* in constant bank 0 */

void trace_count_layout(uint32_t slots, uint32_t *stride, uint32_t *copies)
{
	uint32_t least = COPIES_LEAST;

	*stride = LANES; /* what lanes add for slots that there are not is 0, but has its place */
	while (*stride < slots)
		*stride *= 2;
	while (least > 1 && (uint64_t)least * *stride * sizeof(uint64_t) > BYTES_MOST)
		least /= 2;
	*copies = COPIES_MOST;
	while (*copies > least && (uint64_t)*copies * *stride * sizeof(uint64_t) > COPIES_BYTES)
		*copies /= 2;
}

/* ---- registers ---- */

/* The highest predicate that the mask leaves out, which then has it; PREDICATES: there is none. */
static unsigned take_predicate(uint32_t *used)
{
	for (unsigned p = PREDICATES; p--;)
		if (!(*used & 1u << p)) {
			*used |= 1u << p;
			return p;
		}
	return PREDICATES;
}

/* Whether each lane passes the beginning once, and ends at an instruction that can be moved. */
static bool begins_and_ends(const struct trace_kernel *k)
{
	unsigned exits = 0;
	int64_t target;

	for (size_t i = 0; i < k->count; i++) {
		if (code_branch_target(k->code[i], i, &target) && !target)
			return false;
		if ((k->code[i].low & 0xfff) != EXIT)
			continue;
		if (k->fixed && k->fixed[i])
			return false;
		exits++;
	}
	return exits == k->used.exits;
}

/* The most registers with which blocks may have the same number of threads. */
static unsigned registers_of_as_many_threads(unsigned registers)
{
	static const unsigned most[] = {64, 80, 96, 128, 168, 255};

	for (size_t i = 0; i < sizeof(most) / sizeof(*most); i++)
		if (registers <= most[i])
			return most[i];
	return registers;
}

void trace_count_plan(const struct trace_kernel *k, uint32_t slots, unsigned registers, unsigned most, struct counting *c)
{
	uint32_t used = k->used.predicates, uniform = k->used.uniforms.predicates;
	unsigned limit = registers_of_as_many_threads(registers), pairs = (slots + LANES - 1) / LANES;

	limit = limit < most ? limit : most;
	c->predicate = take_predicate(&used);
	c->part = take_predicate(&uniform);
	c->any = take_predicate(&uniform);
	c->pairs = pairs > PAIRS_MAX ? PAIRS_MAX : pairs;
	while (c->pairs && registers + 2 * c->pairs + 2 > limit) /* the bit of the lane, and where pairs may begin */
		c->pairs--;
	if (c->any == PREDICATES || k->levels || !begins_and_ends(k))
		c->pairs = 0;
}

/* ---- code ---- */

static struct instruction constant(struct instruction i, unsigned to, uint32_t offset)
{
	i = trace_with(i, to, 0, 0, 0);
	i.low |= (uint64_t)(offset / 4) << 40;
	return i;
}

static uint32_t place_of_counts(const struct writer *w)
{
	return w->kernel->parameter + (uint32_t)offsetof(struct tt_trace_param, counts);
}

static bool has_guard(struct instruction i)
{
	return (i.low & GUARD) != UNGUARDED;
}

/* Puts the lanes for which the guard of an instruction holds into a uniform register; any: and whether there are some. */
static void put_vote(struct writer *w, struct instruction i, unsigned to, unsigned any)
{
	struct instruction vote = trace_with(encoding_vote, to, 0, 0, 0);

	vote.high = (vote.high & ~(7ull << 17)) | (uint64_t)any << 17;
	vote.high |= (i.low >> 12 & 7) << 23 | (i.low >> 15 & 1) << 26;
	trace_put(w, vote, AT_ONCE | (has_guard(i) ? i.high >> SCHEDULE & WAITS_FOR_ALL : 0));
}

static struct instruction with_predicate(struct instruction i, unsigned predicate)
{
	i.low = (i.low & ~GUARD) | (uint64_t)predicate << 12;
	return i;
}

static bool has_uniform_guard(const struct writer *w, struct instruction i)
{
	return code_has_uniform_guard(w->kernel->architecture, i);
}

/* Puts 1 into a uniform register where the uniform guard of an instruction holds, else 0. */
static void put_uniform_guard(struct writer *w, struct instruction i, unsigned to)
{
	struct instruction holds = trace_with(encoding_any, to, 0, 0, 0);

	holds.high ^= (i.low >> 12 & 7) << 23 | (i.low >> 15 & 1) << 26;
	trace_put(w, holds, SETTLED | (i.high >> SCHEDULE & WAITS_FOR_ALL));
}

static struct instruction without_guard(struct instruction i)
{
	i.low = (i.low & ~GUARD) | UNGUARDED;
	return i;
}

/* One reduction of the warp. */
static void put_reduction(struct writer *w, struct instruction i, uint32_t slot)
{
	const struct layout *l = w->layout;
	const struct counting *c = &l->counting;
	unsigned at = l->base, value = at + 2, counts = l->uniform[0], descriptor = counts, mask = l->uniform[2],
		 threads = l->uniform[3];
	bool saves = c->predicate == PREDICATES;
	unsigned predicate = saves ? 0 : c->predicate;
	struct instruction elect = encoding_elect, reduce = with_predicate(encoding_reduce, predicate);

	if (saves) {
		trace_put_wait(w);
		trace_put_save(w);
	}
	elect.high |= (uint64_t)predicate << 17;
	put_vote(w, has_uniform_guard(w, i) ? without_guard(i) : i, mask, ALWAYS);
	trace_put(w, elect, AT_ONCE);
	trace_put(w, constant(encoding_constant, counts, place_of_counts(w)), AT_ONCE);
	trace_put(w, trace_with(encoding_clock, at, 0, 0, 0), STALL(4u) | AFTER_STORE);
	trace_put(w, trace_with(encoding_threads, threads, 0, mask, 0), AT_ONCE);
	trace_put(w, trace_with(encoding_from_uniform, value, 0, counts, 0), AT_ONCE);
	trace_put(w, trace_with(encoding_from_uniform, value + 1, 0, counts + 1, 0), AT_ONCE);
	trace_put(w, constant(encoding_constant, descriptor, DESCRIPTOR), AT_ONCE);
	trace_put(w, trace_with(encoding_and, at, at, c->copies - 1, 0), QUICK);
	trace_put(w, trace_with(encoding_place, at, at, c->stride * (uint32_t)sizeof(uint64_t), value), QUICK);
	if (has_uniform_guard(w, i)) {
		put_uniform_guard(w, i, mask);
		trace_put(w, trace_with(encoding_from_uniform, value + 1, 0, mask, 0), QUICK);
		trace_put(w, trace_with(encoding_add, value, value + 1, threads, RZ), QUICK);
	} else {
		trace_put(w, trace_with(encoding_from_uniform, value, 0, threads, 0), QUICK);
		if (has_guard(i))
			trace_put(w, trace_with(encoding_least, value + 1, value, 0, 0), QUICK);
		else
			trace_put_number(w, value + 1, 1);
	}
	reduce.low |= (uint64_t)slot * sizeof(uint64_t) << 40;
	trace_put(w, trace_with(reduce, 0, at, value, descriptor), STORES);
	if (saves)
		trace_put_restore(w);
}

/*
 * Adds to the registers of lane slot % LANES; where lanes are missing, it branches away instead. In between is as much as
 * uniform predicates need, and what others read.
 */
static void put_addition(struct writer *w, struct instruction i, uint32_t slot)
{
	const struct layout *l = w->layout;
	const struct counting *c = &l->counting;
	unsigned active = l->uniform[0], any = l->uniform[1], mask = l->uniform[2], threads = l->uniform[3], one = l->one;
	unsigned low = c->first + 2 * (slot / LANES), high = low + 1;
	bool uniform = has_uniform_guard(w, i), guarded = has_guard(i) && !uniform;
	struct instruction part = trace_with(encoding_if_part, 0, active, 0, 0), some = trace_with(encoding_any, any, 0, 0, 0);

	part.high |= (uint64_t)c->part << 17;
	some.high |= (uint64_t)c->any << 23;
	put_vote(w, (struct instruction){UNGUARDED, 0}, active, ALWAYS);
	if (guarded)
		put_vote(w, i, mask, c->any);
	trace_put(w, trace_with(encoding_shift, one, 0, slot % LANES, c->bit), guarded ? AT_ONCE : QUICK);
	trace_put(w, part, guarded ? AT_ONCE : QUICK);
	if (guarded)
		trace_put(w, trace_with(encoding_threads, threads, 0, mask, 0), AT_ONCE);
	trace_put(w, trace_with(encoding_and, one, one, 1, 0), guarded ? STALL(7u) : STALL(8u));
	if (guarded)
		trace_put(w, some, AT_ONCE);
	if (uniform) {
		put_uniform_guard(w, i, any);
		trace_put(w, trace_with(encoding_add, one, one, any, RZ), SETTLED);
	}
	w->parts[slot] = w->count;
	trace_put(w, trace_with(encoding_branch_if, 0, c->part, 0, 0), BRANCHES);
	if (guarded) {
		trace_put(w, trace_with(encoding_add, high, one, any, high), AT_ONCE);
		trace_put(w, trace_with(encoding_add, low, one, threads, low), AT_ONCE);
	} else {
		trace_put(w, trace_with(encoding_add_number, high, one, 1, high), AT_ONCE);
		trace_put(w, trace_with(encoding_add_number, low, one, LANES, low), AT_ONCE);
	}
}

void trace_put_count(struct writer *w, struct instruction i, uint32_t slot)
{
	if (slot < w->layout->counting.pairs * LANES)
		put_addition(w, i, slot);
	else
		put_reduction(w, i, slot);
}

void trace_put_count_of_part(struct writer *w, struct instruction i, uint32_t slot)
{
	size_t from = slot < COUNTS_IN_REGISTERS ? w->parts[slot] : 0;

	if (!from)
		return;
	w->out[from] = code_retarget(w->kernel->architecture, w->out[from], from * SASS_BYTES, w->count * SASS_BYTES);
	put_reduction(w, i, slot);
	trace_put_branch(w, from + ADDITION);
}

void trace_put_first_counts(struct writer *w)
{
	const struct counting *c = &w->layout->counting;

	for (unsigned r = 0; r < 2 * c->pairs; r++)
		trace_put(w, trace_with(encoding_zero, c->first + r, 0, 0, 0), AT_ONCE);
	trace_put(w, trace_with(encoding_lane_bit, c->bit, 0, 0, 0), FIRST_SCOREBOARD);
	trace_put_wait(w);
}

/* Uniform registers are left alone: lanes that exit may leave others behind, which use them. */
void trace_put_last_counts(struct writer *w)
{
	const struct layout *l = w->layout;
	const struct counting *c = &l->counting;
	unsigned at = l->base, counts = at + 2, copy = l->one;

	trace_put(w, trace_with(encoding_lane, at, 0, 0, 0), FIRST_SCOREBOARD);
	trace_put(w, constant(encoding_load_constant, counts, place_of_counts(w)), FIRST_SCOREBOARD);
	trace_put(w, trace_with(encoding_clock, copy, 0, 0, 0), SETTLED);
	trace_put(w, trace_with(encoding_and, copy, copy, c->copies - 1, 0), QUICK);
	trace_put_wait(w);
	trace_put(w, trace_with(encoding_add_number, copy, copy, c->stride, at), QUICK);
	trace_put(w, trace_with(encoding_place, at, copy, (uint32_t)sizeof(uint64_t), counts), QUICK);
	for (unsigned pair = 0; pair < c->pairs; pair++) {
		unsigned low = c->first + 2 * pair;
		struct instruction reduce = with_predicate(encoding_reduce, 0);
		trace_put(w, trace_with(encoding_if_some, 0, low + 1, 0, 0), SETTLED);
		reduce.low |= (uint64_t)pair * LANES * sizeof(uint64_t) << 40;
		trace_put(w, trace_with(reduce, 0, at, low, l->descriptor), STORES);
	}
}
