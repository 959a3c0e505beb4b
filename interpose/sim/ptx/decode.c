/*
 * Core of the decoder: constants, labels, and the traversal of all functions.
 *
 * Invariant: in decoded code every operand lies inside its file for the function that owns it, and every
 * branch target is the first operation of a statement of the same function.
 */
#include "sim/ptx/decode.h"

#include <stdio.h>
#include <string.h>

#define MOST_CONSTANT_BYTES ((size_t)1 << 29)

/* --- words of the opcode --- */

bool ptx_is(const struct ptx_decoder *d, const char *opcode)
{
	return !strcmp(d->opcode, opcode);
}

bool ptx_word(struct ptx_decoder *d, const char *word)
{
	for (unsigned i = 0; i < d->word_count; i++)
		if (!(d->used >> i & 1) && !strcmp(d->words[i], word)) {
			d->used |= 1u << i;
			return true;
		}
	return false;
}

enum ptx_type ptx_type_word(struct ptx_decoder *d, bool first)
{
	enum ptx_type type = PTX_NONE;
	unsigned at = 0;

	for (unsigned i = 0; i < d->word_count && !(first && type); i++) {
		enum ptx_type t = ptx_type_named(d->words[i], strlen(d->words[i]));
		if (t && !(d->used >> i & 1)) {
			type = t;
			at = i;
		}
	}
	if (type)
		d->used |= 1u << at;
	return type;
}

bool ptx_all_words_used(const struct ptx_decoder *d)
{
	return d->used == (1u << d->word_count) - 1;
}

static bool split_opcode(struct ptx_decoder *d)
{
	size_t length = strlen(d->statement->opcode);

	d->word_count = d->used = 0;
	if (length >= sizeof(d->opcode))
		return false;
	memcpy(d->opcode, d->statement->opcode, length + 1);
	for (char *c = d->opcode; (c = strchr(c, '.')); c++) {
		*c = 0;
		if (d->word_count == PTX_WORDS)
			return false;
		d->words[d->word_count++] = c + 1;
	}
	return true;
}

/* --- emitting --- */

struct ptx_op *ptx_emit(struct ptx_decoder *d, enum ptx_code code)
{
	ptx_module *m = d->module;

	m->code = ptx_arena_grow(d->source, m->code, m->code_count, &d->code_capacity, sizeof(*m->code));
	struct ptx_op *op = &m->code[m->code_count++];
	*op = (struct ptx_op){.code = (uint8_t)code, .guard = d->guard, .line = d->line};
	return op;
}

uint32_t ptx_constant_row(struct ptx_decoder *d, uint64_t value, bool wide)
{
	ptx_module *m = d->module;
	char key[32];

	snprintf(key, sizeof(key), "%c%llx", wide ? 'w' : 'n', (unsigned long long)value);
	uintptr_t known = (uintptr_t)ptx_map_get(&d->constants, key); /* 1 + its offset */
	if (known)
		return PTX_ROW(PTX_FILE_CONSTANT, known - 1);
	size_t at = m->constant_bytes, bytes = wide ? PTX_WARP * 8 : PTX_WARP * 4;
	if (at > MOST_CONSTANT_BYTES)
		ptx_reject(d->source, d->line, "too many constants");
	while (at + bytes > d->constant_capacity)
		m->constants =
			ptx_arena_grow(d->source, m->constants, d->constant_capacity, &d->constant_capacity, 1);
	m->constant_bytes += bytes;
	for (int i = 0; i < PTX_WARP; i++)
		if (wide)
			((lane_u64 *)(m->constants + at))[i] = value;
		else
			((lane_u32 *)(m->constants + at))[i] = (uint32_t)value;
	ptx_map_put(d->source, &d->constants, ptx_arena_string(d->source, key, strlen(key)),
		    (void *)(uintptr_t)(at + 1));
	return PTX_ROW(PTX_FILE_CONSTANT, at);
}

/* Scratch rows are valid for one statement. */
uint32_t ptx_scratch_row(struct ptx_decoder *d, bool wide)
{
	unsigned i = d->scratch_used[wide]++;

	if (i >= PTX_SCRATCH)
		ptx_reject(d->source, d->line, "instruction has too many operands");
	if (i == d->scratch_count[wide]) {
		d->scratch[wide][i] = wide ? PTX_ROW(PTX_FILE_64, d->function->rows64++ * PTX_WARP * 8)
					   : PTX_ROW(PTX_FILE_32, d->function->rows32++ * PTX_WARP * 4);
		d->scratch_count[wide]++;
	}
	return d->scratch[wide][i];
}

void ptx_convert_row(struct ptx_decoder *d, uint32_t dst, enum ptx_type to, uint32_t src, enum ptx_type from)
{
	struct ptx_op *op = ptx_emit(d, PTX_OP_ALU);

	op->dst = dst;
	op->src[0] = src;
	op->type = (uint8_t)to;
	op->kind = (uint8_t)from;
	op->wide = ptx_type_size(to) == 8;
	op->alu = ptx_conversion(to, from, 0, false);
}

/* --- labels --- */

const struct ptx_label *ptx_find_label(struct ptx_decoder *d, const char *name, unsigned scope)
{
	size_t room = strlen(name) + 16;
	char *key = ptx_arena_take(d->source, room);

	for (;; scope = d->function->scopes[scope]) {
		snprintf(key, room, "%s@%u", name, scope);
		const struct ptx_label *l = ptx_map_get(&d->function->labels, key);
		if (l || !scope)
			return l;
	}
}

void ptx_fix_label(struct ptx_decoder *d, struct ptx_op *op, uint32_t *target, const char *label)
{
	d->fixups = ptx_arena_grow(d->source, d->fixups, d->fixup_count, &d->fixup_capacity, sizeof(*d->fixups));
	d->fixups[d->fixup_count++] = (struct ptx_fixup){
		.op = (size_t)(op - d->module->code),
		.target = target,
		.label = label,
		.scope = d->statement->scope,
		.line = d->line,
	};
}

static void fix_labels(struct ptx_decoder *d)
{
	for (size_t i = 0; i < d->fixup_count; i++) {
		const struct ptx_fixup *x = &d->fixups[i];
		const struct ptx_label *l = ptx_find_label(d, x->label, x->scope);
		if (!l || l->table)
			ptx_reject(d->source, x->line, "no label is named %s", x->label);
		if (x->target)
			*x->target = d->first_of[l->statement];
		else
			d->module->code[x->op].target = d->first_of[l->statement];
	}
	d->fixup_count = 0;
}

/* --- functions --- */

static const char *reason(struct ptx_decoder *d)
{
	const struct ptx_statement *t = d->statement;
	const char *name = ptx_unknown_name(d, t->operands, t->count);

	if (d->why || !name)
		return d->why ? d->why : t->opcode;
	size_t room = strlen(t->opcode) + strlen(name) + 16;
	char *text = ptx_arena_take(d->source, room);
	snprintf(text, room, "%s with %s", t->opcode, name);
	return text;
}

static void decode_statement(struct ptx_decoder *d)
{
	size_t before = d->module->code_count, fixups = d->fixup_count;
	const struct ptx_statement *t = d->statement;

	d->line = t->line;
	d->guard = t->guarded ? d->function->registers[t->guard].row << 1 | t->guard_negated : PTX_TRUE;
	d->why = NULL;
	d->tolerated = false;
	d->scratch_used[0] = d->scratch_used[1] = 0;
	if (split_opcode(d) && (ptx_decode_memory(d) || ptx_decode_control(d) || ptx_decode_value(d)))
		return;
	d->module->code_count = before;
	d->fixup_count = fixups;
	struct ptx_op *op = ptx_emit(d, PTX_OP_UNSUPPORTED);
	op->text = reason(d);
	if (!d->function->unsupported && !d->tolerated)
		d->function->unsupported = d->module->code_count;
}

static void load_register_parameters(struct ptx_decoder *d)
{
	struct ptx_function *f = d->function;

	for (size_t i = 0; i < f->parameter_count; i++) {
		const struct ptx_variable *v = f->parameters[i];
		if (v->space == PTX_SPACE_REG)
			ptx_frame_access(d, false, v->address, v->type, f->registers[v->reg].row);
	}
}

static void decode_function(struct ptx_decoder *d, struct ptx_function *f)
{
	d->function = f;
	d->scratch_count[0] = d->scratch_count[1] = 0;
	d->guard = PTX_TRUE;
	d->line = f->line;
	d->first_of = ptx_arena_take(d->source, (f->statement_count + 1) * sizeof(*d->first_of));
	f->first_of = d->first_of;
	f->first = (uint32_t)d->module->code_count;
	load_register_parameters(d);
	for (size_t i = 0; i < f->statement_count; i++) {
		d->first_of[i] = (uint32_t)d->module->code_count;
		d->statement = &f->statements[i];
		decode_statement(d);
		ptx_list_registers(d, d->first_of[i]);
	}
	/* Control that reaches the end of a body returns. */
	d->first_of[f->statement_count] = (uint32_t)d->module->code_count;
	d->statement = &(struct ptx_statement){.opcode = "ret", .line = d->line};
	decode_statement(d);
	fix_labels(d);
	uint32_t registers = f->rows32 + 2 * f->rows64 + f->rows_saved;
	f->info.registers = registers < 255 ? registers : 255;
}

void ptx_decode(struct ptx_source *s, ptx_module *m)
{
	struct ptx_decoder *d = ptx_arena_take(s, sizeof(*d));

	d->source = s;
	d->module = m;
	for (size_t i = 0; i < m->function_count; i++)
		if (m->functions[i]->defined)
			decode_function(d, m->functions[i]);
}
