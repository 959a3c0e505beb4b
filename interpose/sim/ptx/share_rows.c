/*
 * Registers that share rows. Compilers give each value a register of its own; without sharing, the frames of
 * large kernels would be far larger than a processor's caches.
 *
 * Invariant: a register gives up its row only if no path reads it before it is written: all statements that
 * name it lie between two labels, and the first one writes it in all threads. Two registers of one statement
 * never share a row.
 */
#include "sim/ptx/parse.h"

#include <string.h>

#define NEVER SIZE_MAX

struct life {
	size_t first, last;
	bool own; /* it shares no row */
	bool placed;
};

struct sharing {
	struct ptx_source *source;
	struct ptx_function *function;
	struct life *lives;
	size_t block; /* the first statement after the last label */
	uint32_t *spare[2];
	size_t spare_count[2];
};

/* Whether the first operand is a result; of other instructions nobody asks. Sorted as by strcmp. */
static bool has_result(const char *opcode)
{
	static const char *const names[] = {
		"abs", "add", "and", "bfe", "bfi", "bfind", "brev", "clz", "cvt", "cvta", "div", "ex2",
		"fma", "ld", "lg2", "lop3", "mad", "mad24", "max", "min", "mov", "mul", "mul24", "neg",
		"not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "selp", "shf", "shfl", "shl", "shr",
		"sqrt", "sub", "xor",
	};
	const char *name = ptx_instruction(opcode);
	size_t low = 0, high = sizeof(names) / sizeof(*names);

	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(name, names[middle]);
		if (!order)
			return true;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}

static void note(struct sharing *h, size_t at, uint32_t reg, bool written)
{
	struct life *l = &h->lives[reg];

	if (l->first == NEVER) {
		l->first = at;
		l->own |= !written;
	} else if (l->first == at) {
		l->own |= !written; /* it reads what it writes */
	} else if (l->first < h->block) {
		l->own = true;
	}
	l->last = at;
}

static void note_operands(struct sharing *h, size_t at, const struct ptx_operand *o, unsigned count, bool written)
{
	for (unsigned i = 0; i < count; i++) {
		if (o[i].kind == PTX_OPERAND_REGISTER)
			note(h, at, o[i].reg, written);
		if (o[i].paired)
			note(h, at, o[i].pair, written);
		note_operands(h, at, o[i].elements, o[i].count, written && o[i].kind == PTX_OPERAND_VECTOR);
	}
}

static void note_statement(struct sharing *h, size_t at)
{
	const struct ptx_statement *t = &h->function->statements[at];
	unsigned results = t->count && !t->guarded && has_result(t->opcode);

	note_operands(h, at, t->operands, results, true);
	note_operands(h, at, t->operands + results, t->count - results, false);
}

static void find_lives(struct sharing *h)
{
	struct ptx_function *f = h->function;
	uint8_t *labelled = ptx_arena_take(h->source, f->statement_count + 1);

	for (size_t i = 0; i < f->labels.capacity; i++)
		if (f->labels.keys[i])
			labelled[((const struct ptx_label *)f->labels.values[i])->statement] = 1;
	for (size_t i = 0; i < f->register_count; i++)
		h->lives[i].first = NEVER;
	for (size_t at = 0; at < f->statement_count; at++) {
		if (labelled[at])
			h->block = at;
		note_statement(h, at);
	}
}

static uint32_t new_row(struct ptx_function *f, bool wide)
{
	return wide ? PTX_ROW(PTX_FILE_64, f->rows64++ * PTX_WARP * 8) : PTX_ROW(PTX_FILE_32, f->rows32++ * PTX_WARP * 4);
}

static bool is_wide(const struct ptx_register *r)
{
	return ptx_type_size(r->type) == 8;
}

/* Gives rows to the registers that a statement names first, or takes those of the ones that it names last. */
static void place(struct sharing *h, size_t at, uint32_t reg, bool ends)
{
	struct ptx_register *r = &h->function->registers[reg];
	struct life *l = &h->lives[reg];
	bool wide = is_wide(r);

	if (l->own || l->placed != ends || (ends ? l->last : l->first) != at)
		return;
	if (ends)
		h->spare[wide][h->spare_count[wide]++] = r->row;
	else if (h->spare_count[wide])
		r->row = h->spare[wide][--h->spare_count[wide]];
	else
		r->row = new_row(h->function, wide);
	l->placed = !ends;
}

static void place_operands(struct sharing *h, size_t at, const struct ptx_operand *o, unsigned count, bool ends)
{
	for (unsigned i = 0; i < count; i++) {
		if (o[i].kind == PTX_OPERAND_REGISTER)
			place(h, at, o[i].reg, ends);
		if (o[i].paired)
			place(h, at, o[i].pair, ends);
		place_operands(h, at, o[i].elements, o[i].count, ends);
	}
}

void ptx_share_rows(struct ptx_source *s, struct ptx_function *f)
{
	struct sharing h = {.source = s, .function = f};

	h.lives = ptx_arena_take(s, f->register_count * sizeof(*h.lives));
	for (int wide = 0; wide < 2; wide++)
		h.spare[wide] = ptx_arena_take(s, f->register_count * sizeof(*h.spare[wide]));
	for (size_t i = 0; i < f->parameter_count + f->return_count; i++) {
		const struct ptx_variable *v =
			i < f->parameter_count ? f->parameters[i] : f->returns[i - f->parameter_count];
		if (v->space == PTX_SPACE_REG)
			h.lives[v->reg].own = true;
	}
	find_lives(&h);
	f->rows_saved = f->rows32 + 2 * f->rows64;
	f->rows32 = f->rows64 = 0;
	for (size_t i = 0; i < f->register_count; i++) {
		struct ptx_register *r = &f->registers[i];
		h.lives[i].own |= r->type == PTX_PRED || h.lives[i].first == NEVER;
		if (h.lives[i].own && r->type != PTX_PRED)
			r->row = new_row(f, is_wide(r));
	}
	for (size_t at = 0; at < f->statement_count; at++) {
		const struct ptx_statement *t = &f->statements[at];
		place_operands(&h, at, t->operands, t->count, false);
		place_operands(&h, at, t->operands, t->count, true);
	}
	f->rows_saved -= f->rows32 + 2 * f->rows64;
}
