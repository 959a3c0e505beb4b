/*
 * Core of the decoder: operands, constants, labels, and the traversal of all functions.
 *
 * Invariant: in decoded code every operand lies inside its file for the function that owns it, and every
 * branch target is the first operation of a statement of the same function.
 */
#include "sim/ptx/decode.h"

#include <stdio.h>
#include <string.h>

#define MOST_CONSTANT_BYTES ((size_t)1 << 29)

static const struct {
	const char *name;
	uint8_t special;
} specials[] = {
	{"%tid.x", PTX_S_TID_X},
	{"%tid.y", PTX_S_TID_Y},
	{"%tid.z", PTX_S_TID_Z},
	{"%ntid.x", PTX_S_NTID_X},
	{"%ntid.y", PTX_S_NTID_Y},
	{"%ntid.z", PTX_S_NTID_Z},
	{"%ctaid.x", PTX_S_CTAID_X},
	{"%ctaid.y", PTX_S_CTAID_Y},
	{"%ctaid.z", PTX_S_CTAID_Z},
	{"%nctaid.x", PTX_S_NCTAID_X},
	{"%nctaid.y", PTX_S_NCTAID_Y},
	{"%nctaid.z", PTX_S_NCTAID_Z},
	{"%laneid", PTX_S_LANEID},
	{"%warpid", PTX_S_WARPID},
	{"%nwarpid", PTX_S_NWARPID},
	{"%smid", PTX_S_SMID},
	{"%nsmid", PTX_S_NSMID},
	{"%gridid", PTX_S_GRIDID},
	{"%lanemask_eq", PTX_S_LANEMASK_EQ},
	{"%lanemask_lt", PTX_S_LANEMASK_LT},
	{"%lanemask_le", PTX_S_LANEMASK_LE},
	{"%lanemask_gt", PTX_S_LANEMASK_GT},
	{"%lanemask_ge", PTX_S_LANEMASK_GE},
	{"%dynamic_smem_size", PTX_S_DYNAMIC_SHARED_SIZE},
	{"%total_smem_size", PTX_S_TOTAL_SHARED_SIZE},
	{"%envreg1", PTX_S_WORKSPACE_HIGH},
	{"%envreg2", PTX_S_WORKSPACE_LOW},
};

static const struct {
	const char *name;
	enum ptx_time_kind kind;
} times[] = {
	{"%clock", PTX_CLOCK},		       {"%clock_hi", PTX_CLOCK_HIGH},
	{"%clock64", PTX_CLOCK64},	       {"%globaltimer", PTX_TIMER},
	{"%globaltimer_lo", PTX_TIMER_LOW}, {"%globaltimer_hi", PTX_TIMER_HIGH},
};

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

/* --- operands --- */

const struct ptx_operand *ptx_operand(const struct ptx_decoder *d, unsigned index)
{
	return index < d->statement->count ? &d->statement->operands[index] : NULL;
}

size_t ptx_register_size(const struct ptx_decoder *d, const struct ptx_operand *o)
{
	if (!o || o->kind != PTX_OPERAND_REGISTER)
		return 0;
	enum ptx_type t = d->function->registers[o->reg].type;
	return t == PTX_B8 || t == PTX_U8 || t == PTX_S8 ? 2 : ptx_type_size(t);
}

const struct ptx_variable *ptx_variable_of(const struct ptx_decoder *d, const struct ptx_operand *o)
{
	if (o->kind == PTX_OPERAND_VARIABLE)
		return o->variable;
	if (o->kind != PTX_OPERAND_NAME)
		return NULL;
	const struct ptx_name *n = ptx_map_get(&d->module->names, o->name);
	return n ? n->variable : NULL;
}

static bool constant_bits(const struct ptx_operand *o, enum ptx_type type, uint64_t *bits)
{
	bool is_float = type == PTX_F32 || type == PTX_F64;
	size_t size = ptx_type_size(type);

	*bits = o->bits;
	if (o->kind == PTX_OPERAND_INTEGER) {
		if (size < 8)
			*bits &= (1ull << 8 * size) - 1;
		return !is_float;
	}
	double value;
	float single;
	if (o->kind == PTX_OPERAND_FLOAT32) {
		uint32_t low = (uint32_t)o->bits;
		memcpy(&single, &low, sizeof(single));
		value = (double)single;
		if (type == PTX_F64)
			memcpy(bits, &value, sizeof(value));
		return size >= 4;
	}
	if (size == 4) {
		uint32_t low;
		memcpy(&value, &o->bits, sizeof(value));
		single = (float)value;
		memcpy(&low, &single, sizeof(low));
		*bits = low;
	}
	return size >= 4;
}

static uint32_t widened(struct ptx_decoder *d, uint32_t row, enum ptx_type type)
{
	size_t size = ptx_type_size(type);

	if (size == 4)
		return row;
	uint32_t scratch = ptx_scratch_row(d, size == 8);
	ptx_convert_row(d, scratch, size == 8 ? PTX_U64 : PTX_U16, row, PTX_U32);
	return scratch;
}

/* An address that only the frame or the launch knows, as a row. */
static bool address_row(struct ptx_decoder *d, const struct ptx_variable *v, uint64_t offset, enum ptx_type type,
			uint32_t *row)
{
	bool wide = ptx_type_size(type) == 8;

	if (ptx_type_size(type) < 4)
		return false;
	if (v->unsized) {
		*row = PTX_ROW(PTX_FILE_SPECIAL, PTX_S_DYNAMIC_SHARED_BASE * PTX_WARP * 4);
		*row = widened(d, *row, type);
		if (!offset)
			return true;
		uint32_t sum = ptx_scratch_row(d, wide);
		ptx_add_constant(d, sum, *row, offset, wide);
		*row = sum;
		return true;
	}
	if (v->space == PTX_SPACE_LOCAL || v->space == PTX_SPACE_FRAME) {
		uint32_t scratch = ptx_scratch_row(d, wide);
		struct ptx_op *op = ptx_emit(d, PTX_OP_FRAME_ADDRESS);
		op->dst = *row = scratch;
		op->wide = wide;
		op->imm = (int64_t)(v->address + offset);
		return true;
	}
	*row = ptx_constant_row(d, v->address + offset, wide);
	return v->space != PTX_SPACE_REG;
}

static bool named_row(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_type type, uint32_t *row)
{
	const struct ptx_name *n = ptx_map_get(&d->module->names, o->name);

	if (n && n->variable)
		return address_row(d, n->variable, o->bits, type, row);
	if (n) {
		*row = ptx_constant_row(d, PTX_CODE_WINDOW + 16 * (uint64_t)(n->function->index + 1), true);
		return ptx_type_size(type) == 8 && !o->bits;
	}
	if (!strcmp(o->name, "WARP_SZ")) {
		*row = ptx_constant_row(d, PTX_WARP, ptx_type_size(type) == 8);
		return true;
	}
	for (size_t i = 0; i < sizeof(specials) / sizeof(*specials); i++)
		if (!strcmp(o->name, specials[i].name)) {
			*row = widened(d, PTX_ROW(PTX_FILE_SPECIAL, specials[i].special * PTX_WARP * 4u), type);
			return true;
		}
	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++)
		if (!strcmp(o->name, times[i].name)) {
			uint32_t scratch = ptx_scratch_row(d, ptx_type_size(type) == 8);
			struct ptx_op *op = ptx_emit(d, PTX_OP_TIME);
			op->dst = *row = scratch;
			op->kind = (uint8_t)times[i].kind;
			op->wide = ptx_type_size(type) == 8;
			return ptx_type_size(type) >= 4;
		}
	return false;
}

bool ptx_source_row(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_type type, uint32_t *row)
{
	uint64_t bits;

	if (!o || o->negated || o->paired || type == PTX_PRED || type == PTX_NONE)
		return false;
	switch (o->kind) {
	case PTX_OPERAND_REGISTER:
		*row = d->function->registers[o->reg].row;
		return ptx_register_size(d, o) == ptx_type_size(type) && !o->bits;
	case PTX_OPERAND_INTEGER:
	case PTX_OPERAND_FLOAT32:
	case PTX_OPERAND_FLOAT64:
		if (!constant_bits(o, type, &bits))
			return false;
		*row = ptx_constant_row(d, bits, ptx_type_size(type) == 8);
		return true;
	case PTX_OPERAND_VARIABLE:
		return address_row(d, o->variable, o->bits, type, row);
	case PTX_OPERAND_NAME:
		return named_row(d, o, type, row);
	default:
		return false;
	}
}

bool ptx_result_row(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_type type, uint32_t *row)
{
	if (!o || o->kind != PTX_OPERAND_REGISTER || o->negated || o->paired || o->bits)
		return false;
	*row = d->function->registers[o->reg].row;
	return ptx_register_size(d, o) == ptx_type_size(type) && type != PTX_PRED;
}

bool ptx_result_predicate(struct ptx_decoder *d, const struct ptx_operand *o, uint32_t *predicate)
{
	if (!o || o->kind != PTX_OPERAND_REGISTER || o->negated || o->paired || o->bits)
		return false;
	*predicate = d->function->registers[o->reg].row;
	return d->function->registers[o->reg].type == PTX_PRED;
}

bool ptx_predicate(struct ptx_decoder *d, const struct ptx_operand *o, uint32_t *predicate)
{
	if (!o)
		return false;
	if (o->kind == PTX_OPERAND_INTEGER) {
		*predicate = PTX_TRUE | !o->bits;
		return true;
	}
	if (o->kind != PTX_OPERAND_REGISTER || o->paired || o->bits)
		return false;
	*predicate = d->function->registers[o->reg].row << 1 | o->negated;
	return d->function->registers[o->reg].type == PTX_PRED;
}

/* Splits "a|p": a becomes an operand of its own; *predicate is 0 without p. */
bool ptx_split_pair(struct ptx_decoder *d, const struct ptx_operand *o, struct ptx_operand *a, uint32_t *predicate)
{
	*a = *o;
	a->paired = false;
	*predicate = o->paired ? d->function->registers[o->pair].row : 0;
	return !o->paired || d->function->registers[o->pair].type == PTX_PRED;
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

static bool is_known(struct ptx_decoder *d, const char *name)
{
	if (ptx_map_get(&d->module->names, name) || ptx_find_label(d, name, d->statement->scope))
		return true;
	for (size_t i = 0; i < sizeof(specials) / sizeof(*specials); i++)
		if (!strcmp(name, specials[i].name))
			return true;
	return false;
}

/* An unknown name among the operands, if that is the error. */
static const char *unknown_name(struct ptx_decoder *d, const struct ptx_operand *o, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const char *name = unknown_name(d, o[i].elements, o[i].count);
		if (name)
			return name;
		if (o[i].kind == PTX_OPERAND_NAME && !is_known(d, o[i].name))
			return o[i].name;
	}
	return NULL;
}

static const char *reason(struct ptx_decoder *d)
{
	const struct ptx_statement *t = d->statement;
	const char *name = unknown_name(d, t->operands, t->count);

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
	f->info.registers = f->rows32 + 2 * f->rows64 < 255 ? f->rows32 + 2 * f->rows64 : 255;
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
