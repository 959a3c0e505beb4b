/*
 * Puts recording code into kernels. See trace_code.h for the invariant.
 *
 * Recording code comes from nvcc, as pieces: instructions, and which of their bits name registers, convergence
 * barriers or the parameter. It uses general registers above the kernel's own, and uniform registers and barriers
 * that the kernel never uses. It saves the kernel's predicates. First it waits for all scoreboards, at last for its
 * own, and for all threads of the warp that came with it.
 */
#include "sass/trace_code.h"

#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "sass/blocks.h"

#define SASS_BYTES sizeof(struct instruction)
#define CODE_ALIGN 8u /* instructions */
#define SCHEDULE 41 /* bit of the high word, see code.c */
#define SETTLED 0x7edull
#define BRANCHES 0x7f5ull
#define WAITS_FOR_ALL (0x3full << 11)
#define GUARD 0xf000ull
#define UNGUARDED 0x7000ull
#define RZ 255u
#define REGISTERS_MAX 255u
#define SPARE 2u /* registers that kernels of sm_90 have besides those that they name */
#define UNIFORM_MAX 63u
#define BARRIERS 16u
#define CONTROL 0x40u /* the low byte of opcodes of control flow */
#define CONTROL_END 0x60u
#define DETOUR 16u /* instructions of a detour besides its pieces */
#define KIND_COST 2u

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

/* What special registers stand for. */
enum { SOURCE_NONE, SOURCE_INSTRUCTION, SOURCE_MASK, SOURCE_ADDRESS_LOW, SOURCE_ADDRESS_HIGH, SOURCE_ZERO };

struct template {
	const struct piece *pieces;
	size_t count;
	unsigned registers, uniforms, barriers; /* one more than the highest that is used */
	unsigned first_uniform; /* the lowest that is used */
};

#define COUNT_BLOCKS 0 /* TT_TRACE_COUNT of some blocks of the grid */
#include "sass/trace_templates.h"

#define PARAMETER_90 0x210u
#define KINDS (sizeof(templates_90) / sizeof(*templates_90))

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
/* BSSY B, to; BSYNC B */
static const struct instruction encoding_diverge = {0x0000000000007945, 0x03800000};
static const struct instruction encoding_converge = {0x0000000000007941, 0x03800000};

/* Where a memory instruction of sm_90 has its address. */
enum space { WIDE, WIDE_DESCRIBED, NARROW };

static const struct memory {
	uint16_t opcode;
	uint8_t space;
	uint8_t uniform; /* WIDE_DESCRIBED: the bit that says so; NARROW: that of a uniform register */
} memory_90[] = {
	{0x980, WIDE_DESCRIBED, 76}, {0x981, WIDE_DESCRIBED, 76},
	{0x985, WIDE_DESCRIBED, 76}, {0x986, WIDE_DESCRIBED, 76},
	{0x98a, WIDE_DESCRIBED, 71}, {0x98e, WIDE_DESCRIBED, 71},
	{0x9a3, WIDE_DESCRIBED, 71}, {0x9a6, WIDE_DESCRIBED, 71},
	{0x9a8, WIDE_DESCRIBED, 71}, {0x3a9, WIDE, 0},
	{0x983, NARROW, 32},         {0x984, NARROW, 32},
	{0x387, NARROW, 64},         {0x388, NARROW, 64},
	{0x38c, NARROW, 64},         {0x38d, NARROW, 64},
	{0x987, NARROW, 64},         {0x988, NARROW, 64},
	{0x98c, NARROW, 64},         {0x98d, NARROW, 64},
	{0xf8c, NARROW, 64},
};

/* Where inserted code has its registers. */
struct layout {
	unsigned base, pair, saved, mask, one, registers;
	unsigned uniforms;
	unsigned barrier[BARRIERS];
};

uint32_t trace_kinds(unsigned architecture)
{
	uint32_t kinds = 0;

	for (unsigned k = TT_TRACE_OPCODE; architecture == 90 && k < KINDS; k++)
		if (templates_90[k].count)
			kinds |= 1u << k;
	return kinds;
}

void trace_use(unsigned architecture, struct instruction i, struct trace_used *used)
{
	const char *mnemonic = code_mnemonic(architecture, i);

	code_uniforms(architecture, i, &used->uniforms);
	if (!mnemonic && (i.low & 0xff) >= CONTROL && (i.low & 0xff) < CONTROL_END)
		used->refused = "unknown opcode";
	else if (!mnemonic)
		return;
	else if (!strcmp(mnemonic, "BSSY") || !strcmp(mnemonic, "BSYNC") || !strcmp(mnemonic, "BREAK"))
		used->barriers |= 1u << (i.low >> 16 & 15);
	else if (!strcmp(mnemonic, "BMOV"))
		used->refused = "it saves convergence barriers";
}

static unsigned bit_of(struct instruction i, unsigned bit)
{
	return (unsigned)((bit < 64 ? i.low >> bit : i.high >> (bit - 64)) & 1);
}

static const struct memory *memory_of(struct instruction i)
{
	for (size_t m = 0; m < sizeof(memory_90) / sizeof(*memory_90); m++) {
		const struct memory *to = &memory_90[m];
		if (to->opcode != (i.low & 0xfff))
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

static const char *point_refused(const struct trace_kernel *k, size_t at, uint32_t kinds)
{
	struct instruction i = k->code[at];

	if (at + 1 >= k->count)
		return "nothing follows it";
	const char *pinned = code_pinned(k->architecture, i);
	if (pinned)
		return pinned;
	if (k->fixed && k->fixed[at])
		return "the instruction has a relocation, or is part of a collective operation";
	if (kinds & ~trace_kinds(k->architecture))
		return "no code records this kind";
	if (code_is_uniform(k->architecture, i) && (i.low & GUARD) != UNGUARDED)
		return "its guard is a uniform predicate";
	if (kinds & 1u << TT_TRACE_ADDRESSES && !memory_of(i))
		return "it has no address, or one of an unknown form";
	return NULL;
}

static const struct template *template_of(const struct trace_kernel *k, unsigned kind)
{
	return &templates_90[kind == TT_TRACE_COUNT && k->some_blocks ? COUNT_BLOCKS : kind];
}

static const char *plan(const struct trace_kernel *k, uint32_t kinds, struct layout *l)
{
	unsigned registers = 0, uniforms = 0, first = UNIFORM_MAX, barriers = 0, found = 0;

	for (unsigned kind = 0; kind < KINDS; kind++) {
		const struct template *t = template_of(k, kind);
		if (!(kinds & 1u << kind))
			continue;
		registers = t->registers > registers ? t->registers : registers;
		uniforms = t->uniforms > uniforms ? t->uniforms : uniforms;
		barriers = t->barriers > barriers ? t->barriers : barriers;
		first = t->first_uniform < first ? t->first_uniform & ~1u : first;
	}
	l->base = (k->registers + 3) & ~3u;
	l->pair = l->base + ((registers + 1) & ~1u);
	l->saved = l->pair + 2;
	l->mask = l->pair + 3;
	l->one = l->pair + 4;
	l->registers = l->pair + 5 + SPARE;
	if (l->registers > REGISTERS_MAX)
		return "it leaves too few registers free";
	/* starts from the highest, because compilers use the lowest first */
	unsigned at = (UNIFORM_MAX - uniforms) & ~1u; /* added to their numbers */
	while (k->used.uniforms.registers & (((1ull << (uniforms - first)) - 1) << (at + first)))
		if ((at -= 2) > UNIFORM_MAX)
			return "no free uniform registers";
	l->uniforms = at;
	for (unsigned b = BARRIERS; b-- && found <= barriers;)
		if (!(k->used.barriers & 1u << b))
			l->barrier[found++] = b;
	return found > barriers ? NULL : "no free convergence barriers";
}

struct writer {
	const struct trace_kernel *kernel;
	const struct layout *layout;
	struct instruction *out;
	size_t count;
};

static struct instruction with(struct instruction i, unsigned to, unsigned a, uint32_t b, unsigned c)
{
	i.low |= (uint64_t)to << 16 | (uint64_t)a << 24 | (uint64_t)b << 32;
	i.high |= c;
	return i;
}

static void put(struct writer *w, struct instruction i, uint64_t schedule)
{
	i.high |= schedule << SCHEDULE;
	w->out[w->count++] = i;
}

/* Puts the addresses of the lanes into the pair of registers. */
static void put_address(struct writer *w, struct instruction i)
{
	const struct layout *l = w->layout;
	const struct memory *m = memory_of(i);
	unsigned from = i.low >> 24 & 0xff;
	int32_t offset = (int32_t)((int64_t)i.low >> 40);

	put(w, with(encoding_number, l->one, 0, 1, 0), SETTLED);
	if (m->space != NARROW) {
		put(w, with(encoding_add_wide, l->pair, l->one, (uint32_t)offset, from), SETTLED);
		return;
	}
	put(w, with(encoding_add, l->pair, from, (uint32_t)offset, 0), SETTLED);
	if (bit_of(i, 91)) {
		unsigned uniform = (unsigned)(m->uniform < 64 ? i.low >> 32 : i.high) & 0x3f;
		put(w, with(encoding_add_uniform, l->pair, l->pair, uniform, 0), SETTLED);
	}
	put(w, with(encoding_number, l->pair + 1, 0, 0, 0), SETTLED);
}

static struct instruction renumbered(const struct writer *w, const struct piece *p)
{
	static const unsigned bits[] = {16, 24, 32};
	const struct layout *l = w->layout;
	struct instruction i = p->code;

	for (unsigned at = 0; at < 4; at++) {
		uint64_t by = (p->flags & PIECE_REGISTER << at ? l->base : 0) +
			      (p->flags & PIECE_UNIFORM << at ? l->uniforms : 0);
		if (at < 3)
			i.low += by << bits[at];
		else
			i.high += by;
	}
	if (p->flags & PIECE_BARRIER) {
		unsigned number = i.low >> 16 & 15;
		i.low = (i.low & ~(15ull << 16)) | (uint64_t)l->barrier[number] << 16;
	}
	if (p->flags & PIECE_PARAMETER)
		i.low += (uint64_t)(w->kernel->parameter - PARAMETER_90) / 4 << 40;
	return i;
}

/* What takes the place of an instruction that reads an input; it keeps what that waits for. */
static struct instruction input(const struct writer *w, const struct piece *p, uint32_t number)
{
	const struct layout *l = w->layout;
	unsigned to = (unsigned)(p->code.low >> 16 & 0xff) + l->base, source = p->flags >> PIECE_SOURCE;
	struct instruction i;

	if (source == SOURCE_INSTRUCTION || source == SOURCE_ZERO)
		i = with(encoding_number, to, 0, source == SOURCE_ZERO ? 0 : number, 0);
	else
		i = with(encoding_copy, to, 0, source == SOURCE_MASK ? l->mask : l->pair + (source == SOURCE_ADDRESS_HIGH), 0);
	i.low = (i.low & ~GUARD) | (p->code.low & GUARD);
	i.high |= SETTLED << SCHEDULE | (p->code.high & WAITS_FOR_ALL << SCHEDULE);
	return i;
}

static struct instruction kept_schedule(struct instruction i, struct instruction from, uint64_t schedule)
{
	i.low = (i.low & ~GUARD) | (from.low & GUARD);
	i.high = (i.high & ((1ull << SCHEDULE) - 1)) | schedule << SCHEDULE | (from.high & WAITS_FOR_ALL << SCHEDULE);
	return i;
}

static void put_piece(struct writer *w, const struct piece *p, uint32_t number, size_t end)
{
	struct instruction i;

	if (p->flags & PIECE_EXIT)
		i = kept_schedule(code_branch(w->kernel->architecture, w->count * SASS_BYTES, end * SASS_BYTES), p->code,
				  BRANCHES);
	else if (p->flags & PIECE_GONE)
		i = kept_schedule(encoding_nop, (struct instruction){UNGUARDED, p->code.high}, SETTLED);
	else if (p->flags >> PIECE_SOURCE)
		i = input(w, p, number);
	else
		i = renumbered(w, p);
	w->out[w->count++] = i;
}

/* The pieces of a kind, which all lanes leave together. */
static void put_kind(struct writer *w, const struct template *t, uint32_t number)
{
	unsigned barrier = w->layout->barrier[t->barriers];
	size_t end = w->count + 1 + t->count; /* of the barrier */
	struct instruction begin = with(encoding_diverge, barrier, 0, (uint32_t)(t->count + 1) * SASS_BYTES, 0);

	put(w, begin, SETTLED);
	for (size_t i = 0; i < t->count; i++)
		put_piece(w, &t->pieces[i], number, end);
	put(w, with(encoding_converge, barrier, 0, 0, 0), BRANCHES | WAITS_FOR_ALL);
}

static void put_detour(struct writer *w, size_t from, uint32_t kinds, uint32_t slot)
{
	const struct layout *l = w->layout;
	struct instruction i = w->kernel->code[from], vote = encoding_vote;

	w->out[from] = code_branch(w->kernel->architecture, from * SASS_BYTES, w->count * SASS_BYTES);
	if (from)
		w->out[from - 1] = code_without_reuse(w->out[from - 1]);
	vote.high |= (i.low >> 12 & 7) << 23 | (i.low >> 15 & 1) << 26;
	put(w, encoding_nop, SETTLED | WAITS_FOR_ALL);
	put(w, with(encoding_save, l->saved, 0, 0, 0), SETTLED);
	put(w, with(vote, l->mask, 0, 0, 0), SETTLED);
	if (kinds & 1u << TT_TRACE_ADDRESSES)
		put_address(w, i);
	for (unsigned kind = 0; kind < KINDS; kind++)
		if (kinds & 1u << kind)
			put_kind(w, template_of(w->kernel, kind), kind == TT_TRACE_COUNT ? slot - 1 : (uint32_t)from);
	put(w, encoding_nop, SETTLED | WAITS_FOR_ALL);
	put(w, with(encoding_restore, 0, l->saved, 0, 0), SETTLED);
	put(w, encoding_nop, SETTLED);
}

static size_t room_for(const struct trace_kernel *k, const uint32_t *kinds)
{
	size_t room = k->count + CODE_ALIGN;

	for (size_t i = 0; i < k->count; i++) {
		room += kinds[i] ? DETOUR : 0;
		for (unsigned kind = 0; kind < KINDS; kind++)
			if (kinds[i] & 1u << kind)
				room += template_of(k, kind)->count + KIND_COST;
	}
	return room;
}

static void put_all(struct writer *w, const uint32_t *kinds, struct traced_code *out)
{
	unsigned architecture = w->kernel->architecture;

	for (size_t i = 0; i < w->kernel->count; i++) {
		if (!kinds[i])
			continue;
		put_detour(w, i, kinds[i], out->slots[i]);
		out->moved[i] = (uint32_t)(w->count * SASS_BYTES);
		w->out[w->count++] = code_without_reuse(w->kernel->code[i]);
		w->out[w->count] = code_branch(architecture, w->count * SASS_BYTES, (i + 1) * SASS_BYTES);
		w->count++;
		out->points++;
	}
	/* execution must not continue past the end */
	w->out[w->count] = code_branch(architecture, w->count * SASS_BYTES, w->count * SASS_BYTES);
	for (w->count++; w->count % CODE_ALIGN; w->count++)
		w->out[w->count] = code_nop();
}

/* ---- counts ---- */

static bool is_guarded(struct instruction i)
{
	return (i.low & GUARD) != UNGUARDED;
}

/*
 * Gives each instruction that is to be counted a slot. All of a block without a guard have the slot of the first of them
 * that can have recording code.
 */
static void share_counts(const struct trace_kernel *k, struct trace_point *points, const uint32_t *block, uint32_t *kinds,
			 struct traced_code *out)
{
	const uint32_t count = 1u << TT_TRACE_COUNT;

	for (size_t begin = 0, end; begin < k->count; begin = end) {
		uint32_t shared = 0;
		size_t first = k->count;
		bool any = false;
		for (end = begin; end < k->count && block[end] == block[begin]; end++) {
			bool guarded = is_guarded(k->code[end]), possible = !point_refused(k, end, count);
			any |= points[end].kinds & count && !guarded;
			first = first == k->count && possible && !guarded ? end : first;
			if (points[end].kinds & count && guarded && possible) {
				kinds[end] |= count;
				out->slots[end] = ++out->slot_count;
			}
		}
		if (any && first < k->count) {
			kinds[first] |= count;
			shared = ++out->slot_count;
		}
		for (size_t i = begin; shared && i < end; i++)
			if (i == first || (points[i].kinds & count && !is_guarded(k->code[i])))
				out->slots[i] = shared;
	}
}

/* Fills in which kinds of recording code each instruction gets. */
static void choose(const struct trace_kernel *k, struct trace_point *points, uint32_t *kinds, struct traced_code *out)
{
	uint32_t *block = kinds + k->count;

	for (size_t i = 0; i < k->count; i++) {
		points[i].refused = points[i].kinds ? point_refused(k, i, points[i].kinds) : NULL;
		kinds[i] = points[i].refused ? 0 : points[i].kinds & ~(1u << TT_TRACE_COUNT);
	}
	code_blocks(k->architecture, k->code, k->count, block);
	share_counts(k, points, block, kinds, out);
	for (size_t i = 0; i < k->count; i++)
		if (kinds[i] || (out->slots[i] && points[i].kinds == 1u << TT_TRACE_COUNT))
			points[i].refused = NULL;
}

void traced_code_free(struct traced_code *code)
{
	free(code->code);
	free(code->moved);
	free(code->slots);
	*code = (struct traced_code){0};
}

static const char *insert(const struct trace_kernel *k, const uint32_t *kinds, struct traced_code *out)
{
	struct layout l = {0};
	const char *wrong;
	uint32_t all = 0;

	for (size_t i = 0; i < k->count; i++)
		all |= kinds[i];
	if (!all)
		return "no instruction that can be traced";
	if ((wrong = plan(k, all, &l)))
		return wrong;
	if (!(out->code = malloc(room_for(k, kinds) * sizeof(*out->code))))
		return "no host memory";
	memcpy(out->code, k->code, k->count * sizeof(*k->code));
	struct writer w = {k, &l, out->code, k->count};
	put_all(&w, kinds, out);
	out->count = w.count;
	out->registers = l.registers;
	return NULL;
}

const char *trace_insert(const struct trace_kernel *k, struct trace_point *points, struct traced_code *out)
{
	const char *wrong = "no host memory";

	*out = (struct traced_code){0};
	if (!trace_kinds(k->architecture))
		return "no recording code for this architecture";
	if (k->used.refused)
		return k->used.refused;
	uint32_t *kinds = calloc(2 * k->count + 1, sizeof(*kinds));
	out->moved = calloc(k->count + 1, sizeof(*out->moved));
	out->slots = calloc(k->count + 1, sizeof(*out->slots));
	if (kinds && out->moved && out->slots) {
		choose(k, points, kinds, out);
		wrong = insert(k, kinds, out);
	}
	free(kinds);
	if (wrong)
		traced_code_free(out);
	return wrong;
}
