/*
 * Counts executions. See trace_code.h for the invariant.
 *
 * A warp adds with one reduction, to one of many copies of the counts that the clock chooses, so that few warps add to the
 * same line of the cache. The code uses a predicate that the kernel never writes, and instructions of fixed latency, so it
 * waits for nothing but the operands of the last reduction.
 */
#include <stddef.h>

#include "sass/trace_parts.h"
#include "trace_ring.h"

#define PREDICATES 7u
#define COPIES_BYTES (1u << 20) /* of all copies together, where they are not few */
#define COPIES_MOST 4096u
#define COPIES_LEAST 128u
#define BYTES_MOST ((uint64_t)64 << 20)

#define QUICK 0x7e5ull
#define AT_ONCE 0x7e2ull
#define STORES 0x5e2ull /* as in trace_beats.c */
#define AFTER_STORE (1ull << (11 + 5))

/* ELECT P, URZ, PT; VOTEU.ANY d, UPT, guard; UPOPC d, b; ULDC.64 d, c[0x0][…] */
static const struct instruction encoding_elect = {0x00000000003f782f, 0x03800000};
static const struct instruction encoding_vote = {0x0000000000007886, 0x000e0100};
static const struct instruction encoding_threads = {0x00000000000072bf, 0x08000000};
static const struct instruction encoding_constant = {0x0000000000007ab9, 0x0a00};
/* CS2R.32 d, SR_CLOCKLO; LOP3.LUT d, a, imm, RZ, 0xc0; IMAD.WIDE.U32 d, a, imm, c */
static const struct instruction encoding_clock = {0x0000000000007805, 0x5000};
static const struct instruction encoding_and = {0x0000000000007812, 0x078ec0ff};
static const struct instruction encoding_place = {0x0000000000007825, 0x078e0000};
/* MOV d, UR; VIMNMX d, a, 1, PT; REDG.E.ADD.64.STRONG.GPU desc[c][a], b */
static const struct instruction encoding_from_uniform = {0x0000000000007c02, 0x08000f00};
static const struct instruction encoding_least = {0x0000000100007848, 0x03fe0100};
static const struct instruction encoding_reduce = {0x000000000000798e, 0x0c10e580};

#define DESCRIPTOR 0x208u /* in constant bank 0 */

bool trace_count_quickly(const struct trace_kernel *k, unsigned *predicate)
{
	for (unsigned p = PREDICATES; p--;)
		if (!(k->used.predicates & 1u << p)) {
			*predicate = p;
			return !k->wish.some_blocks;
		}
	return false;
}

void trace_count_layout(uint32_t slots, uint32_t *stride, uint32_t *copies)
{
	uint32_t least = COPIES_LEAST;

	*stride = 1;
	while (*stride < slots)
		*stride *= 2;
	while (least > 1 && (uint64_t)least * *stride * sizeof(uint64_t) > BYTES_MOST)
		least /= 2;
	*copies = COPIES_MOST;
	while (*copies > least && (uint64_t)*copies * *stride * sizeof(uint64_t) > COPIES_BYTES)
		*copies /= 2;
}

static struct instruction constant(unsigned to, uint32_t offset)
{
	struct instruction i = trace_with(encoding_constant, to, 0, 0, 0);

	i.low |= (uint64_t)(offset / 4) << 40;
	return i;
}

void trace_put_count(struct writer *w, struct instruction i, const struct counting *c, uint32_t slot)
{
	const struct layout *l = w->layout;
	unsigned at = l->base, value = at + 2, descriptor = l->uniforms, counts = descriptor + 2, threads = descriptor + 4;
	struct instruction elect = encoding_elect, vote = encoding_vote, reduce = encoding_reduce;
	bool guarded = (i.low & GUARD) != UNGUARDED;

	elect.high |= (uint64_t)c->predicate << 17;
	vote.high |= (i.low >> 12 & 7) << 23 | (i.low >> 15 & 1) << 26;
	trace_put(w, elect, AT_ONCE);
	trace_put(w, trace_with(vote, threads, 0, 0, 0), AT_ONCE | (i.high >> SCHEDULE & WAITS_FOR_ALL));
	trace_put(w, constant(counts, w->kernel->parameter + offsetof(struct tt_trace_param, counts)), AT_ONCE);
	trace_put(w, constant(descriptor, DESCRIPTOR), AT_ONCE);
	trace_put(w, trace_with(encoding_clock, at, 0, 0, 0), AT_ONCE | AFTER_STORE);
	trace_put(w, trace_with(encoding_threads, threads + 1, 0, threads, 0), AT_ONCE);
	trace_put(w, trace_with(encoding_from_uniform, value, 0, counts, 0), AT_ONCE);
	trace_put(w, trace_with(encoding_from_uniform, value + 1, 0, counts + 1, 0), AT_ONCE);
	trace_put(w, trace_with(encoding_and, at, at, c->copies - 1, 0), QUICK);
	trace_put(w, trace_with(encoding_place, at, at, c->stride * (uint32_t)sizeof(uint64_t), value), QUICK);
	trace_put(w, trace_with(encoding_from_uniform, value, 0, threads + 1, 0), QUICK);
	if (guarded)
		trace_put(w, trace_with(encoding_least, value + 1, value, 0, 0), QUICK);
	else
		trace_put_number(w, value + 1, 1);
	reduce.low = (reduce.low & ~GUARD) | (uint64_t)c->predicate << 12 | (uint64_t)slot * sizeof(uint64_t) << 40;
	trace_put(w, trace_with(reduce, 0, at, value, descriptor), STORES);
}
