/*
 * Decoding of PTX instructions that compute a value.
 *
 * Most come from tables. An entry has the opcode and its required words, the allowed types, and the types
 * of its operands, result first: t the type, w twice as wide, u 32 bits, f an f32, i a number stored in
 * the operation.
 */
#include "sim/ptx/decode.h"

#include <string.h>

static const struct ptx_alu_entry *const tables[] = {ptx_bit_table, ptx_integer_table, ptx_float_table,
						     ptx_half_table};

static ptx_alu alu_named(const char *opcode, enum ptx_type type)
{
	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (const struct ptx_alu_entry *e = tables[t]; e->opcode; e++)
			if (!strcmp(e->opcode, opcode) && e->types & PTX_IS(type))
				return e->plain;
	return NULL;
}

static struct ptx_op *emit_alu(struct ptx_decoder *d, ptx_alu alu, uint32_t dst, uint32_t a, uint32_t b, bool wide)
{
	struct ptx_op *op = ptx_emit(d, PTX_OP_ALU);

	op->alu = alu;
	op->dst = dst;
	op->src[0] = a;
	op->src[1] = b;
	op->wide = wide;
	return op;
}

void ptx_add_constant(struct ptx_decoder *d, uint32_t dst, uint32_t src, uint64_t addend, bool wide)
{
	uint32_t by = ptx_constant_row(d, addend, wide);

	emit_alu(d, alu_named("add", wide ? PTX_U64 : PTX_U32), dst, src, by, wide);
}

/* --- from tables --- */

static unsigned rounding_word(struct ptx_decoder *d, bool *rounded)
{
	static const char *const words[] = {"rn", "rz", "rm", "rp"};

	for (unsigned i = 0; i < 4; i++)
		if (ptx_word(d, words[i])) {
			*rounded = true;
			return i;
		}
	return PTX_RN;
}

/* Whether the unused words are exactly those that e requires and allows. */
static bool entry_matches(struct ptx_decoder *d, const struct ptx_alu_entry *e, unsigned *flags)
{
	size_t n = strcspn(e->opcode, ".");
	unsigned used = d->used;
	bool rounded;

	if (strlen(d->opcode) != n || memcmp(d->opcode, e->opcode, n))
		return false;
	for (const char *w = e->opcode + n; *w == '.'; w += n) {
		char word[16] = {0};
		n = 1 + strcspn(w + 1, ".");
		memcpy(word, w + 1, n - 1 < sizeof(word) ? n - 1 : 0);
		if (!ptx_word(d, word))
			goto no;
	}
	*flags = 0;
	if (e->flags & PTX_ROUNDING)
		*flags |= rounding_word(d, &rounded);
	if (e->flags & PTX_ROUNDS_NEAREST)
		ptx_word(d, "rn");
	if (e->flags & PTX_FTZ && ptx_word(d, "ftz"))
		*flags |= PTX_FTZ;
	if (e->flags & PTX_SAT && ptx_word(d, "sat"))
		*flags |= PTX_SAT;
	if (ptx_all_words_used(d))
		return true;
no:
	d->used = used;
	return false;
}

static const struct ptx_alu_entry *find_entry(struct ptx_decoder *d, enum ptx_type type, unsigned *flags)
{
	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (const struct ptx_alu_entry *e = tables[t]; e->opcode; e++)
			if (e->shape && e->types & PTX_IS(type) && entry_matches(d, e, flags))
				return e;
	return NULL;
}

static enum ptx_type shaped(char shape, enum ptx_type type)
{
	if (shape == 'u')
		return PTX_U32;
	if (shape == 'f')
		return PTX_F32;
	if (shape == 'w')
		return ptx_type_size(type) == 4 ? PTX_U64 : PTX_U32;
	return type;
}

static bool decode_by_table(struct ptx_decoder *d)
{
	enum ptx_type type = ptx_type_word(d, ptx_is(d, "slct"));
	unsigned flags, used = d->used, given = d->statement->count;
	const struct ptx_alu_entry *e = find_entry(d, type, &flags);
	uint32_t dst, src[4] = {0};
	int64_t imm = 0;

	d->used = used;
	if (!e || strlen(e->shape) != given + ptx_is(d, "getctarank"))
		return false;
	if (!ptx_result_row(d, ptx_operand(d, 0), shaped(e->shape[0], type), &dst))
		return false;
	for (unsigned i = 1; i < given; i++) {
		const struct ptx_operand *o = ptx_operand(d, i);
		if (e->shape[i] == 'i') {
			if (o->kind != PTX_OPERAND_INTEGER)
				return false;
			imm = (int64_t)o->bits;
		} else if (!ptx_source_row(d, o, shaped(e->shape[i], type), &src[i - 1])) {
			return false;
		}
	}
	if (ptx_is(d, "getctarank"))
		src[1] = PTX_ROW(PTX_FILE_SPECIAL, PTX_S_CLUSTER_CTARANK * PTX_WARP * 4u);
	struct ptx_op *op = emit_alu(d, flags ? e->general : e->plain, dst, src[0], src[1],
				     ptx_type_size(shaped(e->shape[0], type)) == 8);
	memcpy(op->src, src, sizeof(src));
	op->flags = (uint16_t)flags;
	op->type = (uint8_t)type;
	op->imm = imm;
	return true;
}

/* --- moves --- */

static bool decode_predicate_logic(struct ptx_decoder *d)
{
	static const struct {
		const char *opcode;
		uint8_t truth, sources;
	} logic[] = {{"and", 8, 2}, {"or", 14, 2}, {"xor", 6, 2}, {"not", 4, 1}, {"mov", 8, 1}};
	uint32_t dst, a, b = PTX_TRUE;

	for (size_t i = 0; i < sizeof(logic) / sizeof(*logic); i++) {
		if (!ptx_is(d, logic[i].opcode))
			continue;
		if (d->statement->count != logic[i].sources + 1u || !ptx_all_words_used(d) ||
		    !ptx_result_predicate(d, ptx_operand(d, 0), &dst) || !ptx_predicate(d, ptx_operand(d, 1), &a) ||
		    (logic[i].sources == 2 && !ptx_predicate(d, ptx_operand(d, 2), &b)))
			return false;
		struct ptx_op *op = ptx_emit(d, PTX_OP_PREDICATE);
		op->dst = dst;
		op->src[0] = a;
		op->src[1] = b;
		op->imm = logic[i].truth;
		return true;
	}
	return false;
}

static enum ptx_type bits_type(size_t size)
{
	return size == 8 ? PTX_B64 : size == 4 ? PTX_B32 : PTX_B16;
}

/* {a, b} or {a, b, c, d} as one row: pairs are packed until one is left. */
static bool pack(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_type type, uint32_t dst)
{
	size_t size = ptx_type_size(type) / (o->count ? o->count : 1);
	uint32_t rows[4];

	if ((o->count != 2 && o->count != 4) || size < 2)
		return false;
	for (unsigned i = 0; i < o->count; i++)
		if (!ptx_source_row(d, &o->elements[i], bits_type(size), &rows[i]))
			return false;
	for (unsigned n = o->count; n > 1; n /= 2, size *= 2)
		for (unsigned i = 0; i < n / 2; i++) {
			bool wide = size == 4;
			ptx_alu alu = alu_named("pack", wide ? PTX_B64 : PTX_B32);
			uint32_t to = n == 2 ? dst : ptx_scratch_row(d, wide);
			emit_alu(d, alu, to, rows[2 * i], rows[2 * i + 1], wide);
			rows[i] = to;
		}
	return true;
}

static bool unpack(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_type type, uint32_t src)
{
	size_t size = ptx_type_size(type);
	uint32_t rows[4] = {src}, dst;

	if ((o->count != 2 && o->count != 4) || size / o->count < 2)
		return false;
	for (unsigned n = 1; n < o->count; n *= 2, size /= 2) {
		enum ptx_type half = size == 8 ? PTX_B64 : PTX_B32;
		for (unsigned i = n; i-- > 0;) {
			uint32_t low = ptx_scratch_row(d, false), high = ptx_scratch_row(d, false);
			emit_alu(d, alu_named("low", half), low, rows[i], rows[i], false);
			emit_alu(d, alu_named("high", half), high, rows[i], rows[i], false);
			rows[2 * i] = low;
			rows[2 * i + 1] = high;
		}
	}
	for (unsigned i = 0; i < o->count; i++) {
		if (o->elements[i].kind == PTX_OPERAND_SINK)
			continue;
		if (!ptx_result_row(d, &o->elements[i], bits_type(size), &dst))
			return false;
		emit_alu(d, alu_named("mov", PTX_B32), dst, rows[i], rows[i], false);
	}
	return true;
}

static bool decode_move(struct ptx_decoder *d)
{
	unsigned used = d->used;
	enum ptx_type type = ptx_type_word(d, false);
	const struct ptx_operand *to = ptx_operand(d, 0), *from = ptx_operand(d, 1);
	uint32_t row;

	if (d->statement->count != 2 || !ptx_all_words_used(d))
		return false;
	if (type == PTX_PRED)
		return decode_predicate_logic(d);
	if (from->kind == PTX_OPERAND_VECTOR)
		return ptx_result_row(d, to, type, &row) && pack(d, from, type, row);
	if (to->kind == PTX_OPERAND_VECTOR)
		return ptx_source_row(d, from, type, &row) && unpack(d, to, type, row);
	d->used = used;
	return decode_by_table(d);
}

static bool decode_address_conversion(struct ptx_decoder *d)
{
	bool to = ptx_word(d, "to");
	enum ptx_type type = ptx_type_word(d, false);
	uint64_t window = ptx_word(d, "shared") || ptx_word(d, "shared::cta") || ptx_word(d, "shared::cluster")
				  ? PTX_SHARED_WINDOW
			  : ptx_word(d, "local")			      ? PTX_LOCAL_WINDOW
			  : ptx_word(d, "param")			      ? PTX_PARAM_WINDOW
									      : 0;
	uint32_t dst, src;

	if (!window && !ptx_word(d, "global") && !ptx_word(d, "const"))
		return false;
	if (!ptx_all_words_used(d) || ptx_type_size(type) != 8 || d->statement->count != 2 ||
	    !ptx_result_row(d, ptx_operand(d, 0), type, &dst) ||
	    !ptx_source_row(d, ptx_operand(d, 1), type, &src))
		return false;
	if (window)
		ptx_add_constant(d, dst, src, to ? 0 - window : window, true);
	else
		emit_alu(d, alu_named("mov", PTX_B64), dst, src, src, true);
	return true;
}

/* --- conversions --- */

/* The row of a register with its full width: narrower results are extended. */
static void extend_result(struct ptx_decoder *d, uint32_t dst, size_t size, uint32_t row, enum ptx_type type)
{
	bool is_signed = type == PTX_S8 || type == PTX_S16 || type == PTX_S32;

	if (size == 8 && ptx_type_size(type) < 8)
		ptx_convert_row(d, dst, is_signed ? PTX_S64 : PTX_U64, row, type == PTX_S8 ? PTX_S32 : type);
	else if (size == 4 && type == PTX_S16)
		ptx_convert_row(d, dst, PTX_S32, row, PTX_S16);
	else if (size == 2 && type == PTX_S8)
		ptx_convert_row(d, dst, PTX_U16, row, PTX_U32);
}

static unsigned conversion_words(struct ptx_decoder *d, bool *rounded)
{
	static const char *const whole[] = {"rni", "rzi", "rmi", "rpi"};
	unsigned flags = rounding_word(d, rounded);

	for (unsigned i = 0; i < 4; i++)
		if (ptx_word(d, whole[i]))
			flags |= PTX_TO_INTEGER | i;
	if (ptx_word(d, "ftz"))
		flags |= PTX_FTZ;
	if (ptx_word(d, "sat"))
		flags |= PTX_SAT;
	return flags;
}

static bool decode_conversion(struct ptx_decoder *d)
{
	bool rounded = false;
	unsigned flags = conversion_words(d, &rounded);
	enum ptx_type to = ptx_type_word(d, true), from = ptx_type_word(d, true);
	const struct ptx_operand *result = ptx_operand(d, 0), *source = ptx_operand(d, 1);
	size_t size = ptx_register_size(d, result), source_size = ptx_register_size(d, source);

	if (!ptx_all_words_used(d) || d->statement->count != 2 || !to || !from || size < ptx_type_size(to) ||
	    result->bits || result->negated)
		return false;
	/* Only integers are extended to wider registers. */
	if ((to == PTX_F16 || to == PTX_F32) && size != ptx_type_size(to))
		return false;
	ptx_alu alu = ptx_conversion(to, from, flags, rounded);
	if (!alu)
		return false;
	uint32_t src, dst = d->function->registers[result->reg].row, row = dst;
	if (source_size > ptx_type_size(from)) {
		if (source->bits || source->negated)
			return false;
		src = d->function->registers[source->reg].row;
		if (source_size == 8) {
			uint32_t narrow = ptx_scratch_row(d, false);
			ptx_convert_row(d, narrow, PTX_U32, src, PTX_U64);
			src = narrow;
		}
	} else if (!ptx_source_row(d, source, from, &src)) {
		return false;
	}
	if (size == 8 && ptx_type_size(to) < 8)
		row = ptx_scratch_row(d, false);
	struct ptx_op *op = emit_alu(d, alu, row, src, src, ptx_type_size(to) == 8);
	op->type = (uint8_t)to;
	op->kind = (uint8_t)from;
	op->flags = (uint16_t)flags;
	extend_result(d, dst, size, row, to);
	return true;
}

/* --- comparisons --- */

static ptx_compare comparison(struct ptx_decoder *d, enum ptx_type type)
{
	const char *suffix = ptx_word(d, "ftz") ? ".ftz" : "";

	for (const struct ptx_compare_entry *e = ptx_compare_table; e->name; e++) {
		size_t n = strcspn(e->name, ".");
		char word[16] = {0};
		memcpy(word, e->name, n);
		if (e->types & PTX_IS(type) && !strcmp(e->name + n, suffix) && ptx_word(d, word))
			return e->compare;
	}
	return NULL;
}

static enum ptx_boolean boolean_word(struct ptx_decoder *d, bool *combined)
{
	static const char *const words[] = {"and", "or", "xor"};

	for (unsigned i = 0; i < 3; i++)
		if (ptx_word(d, words[i])) {
			*combined = true;
			return i;
		}
	return PTX_AND;
}

static bool decode_comparison(struct ptx_decoder *d)
{
	bool set = ptx_is(d, "set"), combined = false;
	enum ptx_type type = ptx_type_word(d, false), result = set ? ptx_type_word(d, true) : PTX_PRED;
	ptx_compare compare = comparison(d, type);
	enum ptx_boolean boolean = boolean_word(d, &combined);
	struct ptx_operand o;
	uint32_t dst, pair, a, b, c = PTX_TRUE;

	if (!compare || !ptx_all_words_used(d) || d->statement->count != (combined ? 4 : 3) ||
	    !ptx_split_pair(d, ptx_operand(d, 0), &o, &pair))
		return false;
	if (set ? pair || (result != PTX_U32 && result != PTX_S32 && result != PTX_F32) ||
			  !ptx_result_row(d, &o, result, &dst)
		: !ptx_result_predicate(d, &o, &dst))
		return false;
	if (!ptx_source_row(d, ptx_operand(d, 1), type, &a) || !ptx_source_row(d, ptx_operand(d, 2), type, &b) ||
	    (combined && !ptx_predicate(d, ptx_operand(d, 3), &c)))
		return false;
	struct ptx_op *op = ptx_emit(d, set ? PTX_OP_SET : PTX_OP_COMPARE);
	op->compare = compare;
	op->kind = (uint8_t)boolean;
	op->dst = dst;
	op->src[0] = a;
	op->src[1] = b;
	op->src[2] = c;
	op->src[3] = pair;
	op->imm = result == PTX_F32 ? 0x3f800000 : PTX_EVERYONE;
	return true;
}

static bool decode_test(struct ptx_decoder *d)
{
	bool space = ptx_is(d, "isspacep");
	enum ptx_type type = space ? PTX_U64 : ptx_type_word(d, false);
	uint32_t dst, a;

	for (unsigned i = 0; space && i < d->word_count; i++)
		if (!strncmp(d->words[i], "shared::", 8))
			d->words[i] = "shared";
	ptx_compare compare = comparison(d, type);
	if (!compare || !ptx_all_words_used(d) || d->statement->count != 2 ||
	    !ptx_result_predicate(d, ptx_operand(d, 0), &dst) || !ptx_source_row(d, ptx_operand(d, 1), type, &a))
		return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_COMPARE);
	op->compare = compare;
	op->kind = PTX_AND;
	op->dst = dst;
	op->src[0] = op->src[1] = a;
	op->src[2] = op->src[3] = PTX_TRUE;
	return true;
}

static bool decode_selection(struct ptx_decoder *d)
{
	enum ptx_type type = ptx_type_word(d, false);
	uint32_t dst, a, b, p;

	if (!ptx_all_words_used(d) || d->statement->count != 4 || !ptx_result_row(d, ptx_operand(d, 0), type, &dst) ||
	    !ptx_source_row(d, ptx_operand(d, 1), type, &a) || !ptx_source_row(d, ptx_operand(d, 2), type, &b) ||
	    !ptx_predicate(d, ptx_operand(d, 3), &p))
		return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_SELECT);
	op->wide = ptx_type_size(type) == 8;
	op->dst = dst;
	op->src[0] = a;
	op->src[1] = b;
	op->src[2] = p;
	return true;
}

/* --- with carry --- */

static bool decode_carry(struct ptx_decoder *d)
{
	bool uses = ptx_is(d, "addc") || ptx_is(d, "subc") || ptx_is(d, "madc");
	bool sets = ptx_word(d, "cc"), multiplies = d->opcode[0] == 'm';
	bool high = multiplies && ptx_word(d, "hi");
	enum ptx_type type = ptx_type_word(d, false);
	unsigned sources = multiplies ? 3 : 2;
	uint32_t dst, src[4] = {0};

	if (multiplies && !high && !ptx_word(d, "lo"))
		return false;
	if (!ptx_all_words_used(d) || d->statement->count != sources + 1 || ptx_type_size(type) < 4 ||
	    type == PTX_F32 || type == PTX_F64 || type == PTX_F16X2 ||
	    !ptx_result_row(d, ptx_operand(d, 0), type, &dst))
		return false;
	for (unsigned i = 0; i < sources; i++)
		if (!ptx_source_row(d, ptx_operand(d, i + 1), type, &src[i]))
			return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_CARRY);
	op->dst = dst;
	memcpy(op->src, src, sizeof(src));
	op->type = (uint8_t)type;
	op->wide = ptx_type_size(type) == 8;
	op->kind = multiplies;
	op->flags = (uint16_t)((uses ? PTX_USES_CARRY : 0) | (sets ? PTX_SETS_CARRY : 0) | (high ? PTX_HIGH : 0) |
			       (d->opcode[0] == 's' ? PTX_NEGATE_RIGHT : 0));
	return true;
}

static bool has_word(const struct ptx_decoder *d, const char *word)
{
	for (unsigned i = 0; i < d->word_count; i++)
		if (!strcmp(d->words[i], word))
			return true;
	return false;
}

bool ptx_decode_value(struct ptx_decoder *d)
{
	d->used = 0;
	if (ptx_is(d, "mov"))
		return decode_move(d);
	if (ptx_is(d, "cvt"))
		return decode_conversion(d);
	if (ptx_is(d, "cvta"))
		return decode_address_conversion(d);
	if (ptx_is(d, "setp") || ptx_is(d, "set"))
		return decode_comparison(d);
	if (ptx_is(d, "testp") || ptx_is(d, "isspacep"))
		return decode_test(d);
	if (ptx_is(d, "selp"))
		return decode_selection(d);
	if (ptx_is(d, "addc") || ptx_is(d, "subc") || ptx_is(d, "madc") || has_word(d, "cc"))
		return decode_carry(d);
	if (ptx_word(d, "pred"))
		return decode_predicate_logic(d);
	if (ptx_is(d, "mapa") || ptx_is(d, "getctarank"))
		ptx_word(d, "shared::cluster");
	return decode_by_table(d);
}
