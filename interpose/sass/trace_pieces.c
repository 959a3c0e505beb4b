/*
 * Writes the pieces of recording code. See trace_code.h for the invariant.
 *
 * A piece comes from nvcc: instructions, and which of their bits name registers, convergence barriers or the parameter.
 * What it reads from some special registers is given by the code around it.
 */
#include <string.h>

#include "sass/trace_parts.h"

#define RZ 255u
#define URZ 63u

struct piece {
	struct instruction code;
	uint16_t flags; /* of build_trace_code.py */
};

enum {
	PIECE_REGISTER = 1,       /* shifted by 0 to 3: the operands at bits 16, 24, 32 and 64 */
	PIECE_UNIFORM = 1 << 4,   /* the same of uniform registers */
	PIECE_BARRIER = 1 << 8,
	PIECE_PARAMETER = 1 << 9,
	PIECE_EXIT = 1 << 10,
	PIECE_GONE = 1 << 11,
	PIECE_SOURCE = 12, /* shift */
};

#include "sass/trace_templates.h"

#define PARAMETER_90 0x210u
#define TEMPLATES (sizeof(templates_90) / sizeof(*templates_90))

static const struct instruction encoding_nop = {0x0000000000007918, 0};
/* P2R d, PR, RZ, 0x7f; R2P PR, a, 0x7f; VOTE.ANY d, PT, PT */
static const struct instruction encoding_save = {0x0000007fff007803, 0};
static const struct instruction encoding_restore = {0x0000007f00007804, 0};
static const struct instruction encoding_vote = {0x0000000000007806, 0x000e0100};
/* MOV d, imm; MOV d, b */
static const struct instruction encoding_number = {0x0000000000007802, 0xf00};
static const struct instruction encoding_copy = {0x0000000000007202, 0xf00};
/* IMAD.WIDE d, a, imm, c; IADD3 d, a, imm, RZ; IADD3 d, a, UR, RZ */
static const struct instruction encoding_add_wide = {0x0000000000007825, 0x078e0200};
static const struct instruction encoding_add = {0x0000000000007810, 0x07ffe0ff};
static const struct instruction encoding_add_uniform = {0x0000000000007c10, 0x0fffe0ff};
/* USEL d, URZ, -1, !UP; LOP3.LUT d, a, UR, RZ, 0xc0 */
static const struct instruction encoding_all_unless = {0xffffffff3f007887, 0x0c000000};
static const struct instruction encoding_and_uniform = {0x0000000000007c12, 0x0f8ec0ff};
/* BSSY B, to; BSYNC B */
static const struct instruction encoding_diverge = {0x0000000000007945, 0x03800000};
static const struct instruction encoding_converge = {0x0000000000007941, 0x03800000};

/* Where a memory instruction of sm_90 has its address. */
enum space { WIDE, WIDE_DESCRIBED, NARROW };

static const struct memory {
	uint16_t opcode;
	uint8_t space;
	uint8_t uniform; /* WIDE_DESCRIBED: the bit that says so; NARROW: that of a uniform register */
	bool waits;      /* an operation on an mbarrier */
} memory_90[] = {
	{0x980, WIDE_DESCRIBED, 76, false}, {0x981, WIDE_DESCRIBED, 76, false},
	{0x985, WIDE_DESCRIBED, 76, false}, {0x986, WIDE_DESCRIBED, 76, false},
	{0x98a, WIDE_DESCRIBED, 71, false}, {0x98e, WIDE_DESCRIBED, 71, false},
	{0x9a3, WIDE_DESCRIBED, 71, false}, {0x9a6, WIDE_DESCRIBED, 71, false},
	{0x9a8, WIDE_DESCRIBED, 71, false}, {0x3a9, WIDE, 0, false},
	{0x983, NARROW, 32, false},         {0x984, NARROW, 32, false},
	{0x387, NARROW, 64, false},         {0x388, NARROW, 64, false},
	{0x38c, NARROW, 64, false},         {0x38d, NARROW, 64, false},
	{0x987, NARROW, 64, false},         {0x988, NARROW, 64, false},
	{0x98c, NARROW, 64, false},         {0x98d, NARROW, 64, false},
	{0xf8c, NARROW, 64, false},         {0x5a7, NARROW, 64, true},
	{0x9a7, NARROW, 64, true},
};

static unsigned bit_of(struct instruction i, unsigned bit)
{
	return (unsigned)((bit < 64 ? i.low >> bit : i.high >> (bit - 64)) & 1);
}

const struct memory *trace_memory(struct instruction i, bool waits)
{
	for (size_t m = 0; m < sizeof(memory_90) / sizeof(*memory_90); m++) {
		const struct memory *to = &memory_90[m];
		if (to->opcode != (i.low & 0xfff) || (to->waits && !waits))
			continue;
		if (to->space == WIDE_DESCRIBED && !(bit_of(i, 91) && bit_of(i, to->uniform)))
			return NULL;
		if (to->space != NARROW && !bit_of(i, 72))
			return NULL; /* an address of 32 bits */
		if (to->space == NARROW && (bit_of(i, 78) || bit_of(i, 79)) && to->opcode != 0x983 && to->opcode != 0x387)
			return NULL; /* scaled */
		return to;
	}
	return NULL;
}

bool trace_address_uses(struct instruction i, const struct memory *m, unsigned from, unsigned count)
{
	unsigned first = i.low >> 24 & 0xff, last = first + (m->space != NARROW);

	return first != RZ && first < from + count && from <= last;
}

const struct template *trace_template(unsigned which)
{
	return which < TEMPLATES && templates_90[which].count ? &templates_90[which] : NULL;
}

/* ---- single instructions ---- */

struct instruction trace_with(struct instruction i, unsigned to, unsigned a, uint32_t b, unsigned c)
{
	i.low |= (uint64_t)to << 16 | (uint64_t)a << 24 | (uint64_t)b << 32;
	i.high |= c;
	return i;
}

void trace_put(struct writer *w, struct instruction i, uint64_t schedule)
{
	i.high |= schedule << SCHEDULE;
	w->out[w->count++] = i;
}

void trace_put_branch(struct writer *w, size_t to)
{
	w->out[w->count] = code_branch(w->kernel->architecture, w->count * SASS_BYTES, to * SASS_BYTES);
	w->count++;
}

void trace_put_number(struct writer *w, unsigned to, uint32_t number)
{
	trace_put(w, trace_with(encoding_number, to, 0, number, 0), SETTLED);
}

void trace_put_wait(struct writer *w)
{
	trace_put(w, encoding_nop, SETTLED | WAITS_FOR_ALL);
}

void trace_put_mask(struct writer *w, struct instruction guarded)
{
	struct instruction vote = encoding_vote, all = encoding_all_unless;
	uint64_t guard = (guarded.low >> 12 & 7) << 23 | (guarded.low >> 15 & 1) << 26;
	unsigned mask = w->layout->mask, uniform = w->layout->uniform[2];
	bool by_uniform = code_has_uniform_guard(w->kernel->architecture, guarded);

	vote.high |= by_uniform ? 7ull << 23 : guard;
	trace_put(w, trace_with(vote, mask, 0, 0, 0), SETTLED);
	if (!by_uniform)
		return;
	all.high ^= guard;
	trace_put(w, trace_with(all, uniform, 0, 0, 0), SETTLED);
	trace_put(w, trace_with(encoding_and_uniform, mask, mask, uniform, 0), SETTLED);
}

void trace_put_save(struct writer *w)
{
	trace_put(w, trace_with(encoding_save, w->layout->saved, 0, 0, 0), SETTLED);
}

void trace_put_restore(struct writer *w)
{
	trace_put_wait(w);
	trace_put(w, trace_with(encoding_restore, 0, w->layout->saved, 0, 0), SETTLED);
	trace_put(w, encoding_nop, SETTLED);
}

void trace_put_address(struct writer *w, struct instruction i, const struct memory *m)
{
	const struct layout *l = w->layout;
	unsigned from = i.low >> 24 & 0xff;
	int32_t offset = (int32_t)((int64_t)i.low >> 40);

	trace_put_number(w, l->one, 1);
	if (m->space != NARROW) {
		trace_put(w, trace_with(encoding_add_wide, l->pair, l->one, (uint32_t)offset, from), SETTLED);
		return;
	}
	trace_put(w, trace_with(encoding_add, l->pair, from, (uint32_t)offset, 0), SETTLED);
	if (bit_of(i, 91)) {
		unsigned uniform = (unsigned)(m->uniform < 64 ? i.low >> 32 : i.high) & 0x3f;
		trace_put(w, trace_with(encoding_add_uniform, l->pair, l->pair, uniform, 0), SETTLED);
	}
	trace_put_number(w, l->pair + 1, 0);
}

/* ---- pieces ---- */

static struct instruction renumbered(const struct writer *w, const struct piece *p)
{
	static const unsigned bits[] = {16, 24, 32, 0};
	const struct layout *l = w->layout;
	struct instruction i = p->code;

	for (unsigned at = 0; at < 4; at++) {
		uint64_t *word = at < 3 ? &i.low : &i.high;
		unsigned own = (unsigned)(*word >> bits[at]) & URZ;
		if (p->flags & PIECE_REGISTER << at)
			*word += (uint64_t)l->base << bits[at];
		else if (p->flags & PIECE_UNIFORM << at)
			*word ^= (uint64_t)(own ^ l->uniform[own - OF_PIECES]) << bits[at];
	}
	if (p->flags & PIECE_BARRIER) {
		unsigned number = i.low >> 16 & 15;
		i.low = (i.low & ~(15ull << 16)) | (uint64_t)l->barrier[number] << 16;
	}
	if (p->flags & PIECE_PARAMETER)
		i.low += (uint64_t)(w->kernel->parameter - PARAMETER_90) / 4 << 40;
	return i;
}

/* With the guard of the piece's instruction, and what that waits for. */
static struct instruction in_place_of(struct instruction i, const struct piece *p, uint64_t guard, uint64_t schedule)
{
	i.low = (i.low & ~GUARD) | guard;
	i.high = (i.high & ((1ull << SCHEDULE) - 1)) | schedule << SCHEDULE | (p->code.high & WAITS_FOR_ALL << SCHEDULE);
	return i;
}

/* What takes the place of an instruction that reads a special register, or of one that stands for an output. */
static struct instruction moved_value(const struct writer *w, const struct piece *p, const struct inputs *in, unsigned *outputs,
				      uint64_t schedule)
{
	unsigned to = (unsigned)(p->code.low >> 16 & 0xff) + w->layout->base, from = p->code.low >> 32 & 0xff;
	enum source source = p->flags >> PIECE_SOURCE;
	struct instruction i;

	if (source == SOURCE_OUTPUT)
		i = trace_with(encoding_copy, in->output + (*outputs)++ % in->outputs, 0,
			       from == RZ ? RZ : from + w->layout->base, 0);
	else if (in->of[source].number)
		i = trace_with(encoding_number, to, 0, in->of[source].value, 0);
	else
		i = trace_with(encoding_copy, to, 0, in->of[source].value, 0);
	return in_place_of(i, p, p->code.low & GUARD, schedule);
}

void trace_put_straight(struct writer *w, unsigned which, const struct inputs *in)
{
	const struct template *t = trace_template(which);
	unsigned outputs = 0;

	for (size_t n = 0; n + 1 < t->count; n++) {
		const struct piece *p = &t->pieces[n];
		w->out[w->count++] = p->flags >> PIECE_SOURCE ? moved_value(w, p, in, &outputs, QUICK) : renumbered(w, p);
	}
}

void trace_put_piece(struct writer *w, unsigned which, const struct inputs *in)
{
	const struct template *t = trace_template(which);
	unsigned barrier = w->layout->barrier[t->barriers], outputs = 0;
	size_t end = w->count + 1 + t->count; /* of the barrier */

	trace_put(w, trace_with(encoding_diverge, barrier, 0, (uint32_t)(t->count + 1) * SASS_BYTES, 0), SETTLED);
	for (size_t n = 0; n < t->count; n++) {
		const struct piece *p = &t->pieces[n];
		struct instruction i;
		if (p->flags & PIECE_EXIT)
			i = in_place_of(code_branch(w->kernel->architecture, w->count * SASS_BYTES, end * SASS_BYTES), p,
					p->code.low & GUARD, BRANCHES);
		else if (p->flags & PIECE_GONE)
			i = in_place_of(encoding_nop, p, UNGUARDED, SETTLED);
		else if (p->flags >> PIECE_SOURCE)
			i = moved_value(w, p, in, &outputs, SETTLED);
		else
			i = renumbered(w, p);
		w->out[w->count++] = i;
	}
	trace_put(w, trace_with(encoding_converge, barrier, 0, 0, 0), BRANCHES | WAITS_FOR_ALL);
}
