/*
 * Decoding of PTX memory instructions: ld, st, atom, red, prefetch, mbarrier, cp.async.
 *
 * Invariant: the state space of an address is fixed here; only generic addresses are resolved when they
 * are used.
 */
#include "sim/ptx/decode.h"

#include <string.h>

enum ptx_space ptx_space_of(struct ptx_decoder *d)
{
	static const struct {
		const char *word;
		enum ptx_space space;
	} words[] = {
		{"global", PTX_SPACE_GLOBAL}, {"const", PTX_SPACE_CONST},	  {"shared", PTX_SPACE_SHARED},
		{"local", PTX_SPACE_LOCAL},   {"shared::cta", PTX_SPACE_SHARED}, {"param", PTX_SPACE_PARAM},
		{"shared::cluster", PTX_SPACE_SHARED}, /* an address has the rank of its CTA: see PTX_RANK_SHIFT */
	};

	for (unsigned at = 0; at < d->word_count; at++)
		for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
			if (!(d->used >> at & 1) && !strcmp(d->words[at], words[i].word)) {
				d->used |= 1u << at;
				return words[i].space;
			}
	return PTX_SPACE_GENERIC;
}

/* Cache hints have no visible effect. */
static void skip_hints(struct ptx_decoder *d)
{
	static const char *const hints[] = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"};

	for (size_t i = 0; i < sizeof(hints) / sizeof(*hints); i++)
		ptx_word(d, hints[i]);
	for (unsigned i = 0; i < d->word_count; i++)
		if (!strncmp(d->words[i], "L1::", 4) || !strncmp(d->words[i], "L2::", 4))
			d->used |= 1u << i;
}

static unsigned order_words(struct ptx_decoder *d)
{
	static const char *const plain[] = {"weak", "cta", "cluster", "gpu", "sys", "mmio"};
	unsigned flags = 0;

	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		ptx_word(d, plain[i]);
	if (ptx_word(d, "acquire"))
		flags |= PTX_STRONG | PTX_ACQUIRE;
	if (ptx_word(d, "release"))
		flags |= PTX_STRONG | PTX_RELEASE;
	if (ptx_word(d, "acq_rel"))
		flags |= PTX_STRONG | PTX_ACQUIRE | PTX_RELEASE;
	if (ptx_word(d, "relaxed") || ptx_word(d, "volatile"))
		flags |= PTX_STRONG;
	return flags;
}

struct address {
	enum ptx_space space;
	uint32_t row;
	int64_t offset;
	unsigned flags;
};

static bool variable_address(struct ptx_decoder *d, const struct ptx_variable *v, struct address *a)
{
	enum ptx_space space = v->space;

	if (a->space == PTX_SPACE_PARAM && space == PTX_SPACE_FRAME)
		a->space = PTX_SPACE_FRAME;
	if (a->space == PTX_SPACE_GENERIC)
		a->space = space;
	if (a->space != space || space == PTX_SPACE_REG)
		return false;
	a->row = ptx_constant_row(d, 0, true);
	a->offset += (int64_t)v->address;
	if (space == PTX_SPACE_FRAME || space == PTX_SPACE_LOCAL)
		a->flags |= PTX_FRAME_RELATIVE;
	if (v->unsized) {
		a->row = PTX_ROW(PTX_FILE_SPECIAL, PTX_S_DYNAMIC_SHARED_BASE * PTX_WARP * 4);
		a->offset -= (int64_t)v->address;
		a->flags |= PTX_NARROW_ADDRESS;
	}
	return true;
}

static bool decode_address(struct ptx_decoder *d, const struct ptx_operand *o, struct address *a)
{
	if (!o || o->kind != PTX_OPERAND_ADDRESS || o->count != 1)
		return false;
	const struct ptx_operand *base = &o->elements[0];
	if (base->negated || base->paired)
		return false;
	a->offset = (int64_t)base->bits;
	a->flags = 0;
	if (base->kind == PTX_OPERAND_INTEGER) {
		a->row = ptx_constant_row(d, base->bits, true);
		a->offset = 0;
		return true;
	}
	if (base->kind == PTX_OPERAND_REGISTER) {
		size_t size = ptx_register_size(d, base);
		bool small = a->space == PTX_SPACE_SHARED || a->space == PTX_SPACE_LOCAL ||
			     a->space == PTX_SPACE_PARAM;
		a->row = d->function->registers[base->reg].row;
		if (a->space == PTX_SPACE_PARAM && !d->function->entry)
			a->space = PTX_SPACE_FRAME;
		if (size == 4 && small)
			a->flags |= PTX_NARROW_ADDRESS;
		return size == 8 || (size == 4 && small);
	}
	const struct ptx_variable *v = ptx_variable_of(d, base);
	return v && variable_address(d, v, a);
}

static void put_address(struct ptx_op *op, const struct address *a, unsigned flags)
{
	op->memory.address = a->row;
	op->space = (uint8_t)a->space;
	op->imm = a->offset;
	op->flags = (uint16_t)(a->flags | flags);
}

static unsigned vector_word(struct ptx_decoder *d)
{
	return ptx_word(d, "v2") ? 2 : ptx_word(d, "v4") ? 4 : 1;
}

static enum ptx_element element_kind(size_t size)
{
	return size == 8 ? PTX_ELEMENT_64 : size == 2 ? PTX_ELEMENT_16 : PTX_ELEMENT_32;
}

/* The registers of a load or store. All must have one width, at least that of type. */
static bool decode_elements(struct ptx_decoder *d, const struct ptx_operand *o, struct ptx_op *op, bool store)
{
	enum ptx_type type = op->type;
	unsigned count = o->kind == PTX_OPERAND_VECTOR ? o->count : 1;
	size_t width = 0;

	if (count != op->count)
		return false;
	for (unsigned i = 0; i < count; i++) {
		const struct ptx_operand *e = o->kind == PTX_OPERAND_VECTOR ? &o->elements[i] : o;
		size_t size = ptx_register_size(d, e);
		op->memory.element[i] = PTX_NO_ROW;
		if (e->kind == PTX_OPERAND_SINK && !store)
			continue;
		if (size) {
			if (size < ptx_type_size(type) || (width && width != size) || e->negated || e->bits)
				return false;
			op->memory.element[i] = d->function->registers[e->reg].row;
			width = size;
		} else if (!store || e->kind == PTX_OPERAND_REGISTER) {
			return false;
		}
	}
	if (!width)
		width = ptx_type_size(type) == 8 ? 8 : 4;
	for (unsigned i = 0; store && i < count; i++) {
		const struct ptx_operand *e = o->kind == PTX_OPERAND_VECTOR ? &o->elements[i] : o;
		enum ptx_type full = ptx_type_size(type) == width ? type : width == 8 ? PTX_B64 : PTX_B32;
		if (op->memory.element[i] == PTX_NO_ROW && !ptx_source_row(d, e, full, &op->memory.element[i]))
			return false;
	}
	op->kind = (uint8_t)element_kind(width);
	return true;
}

/* With .async, another operand is an mbarrier, which gets the number of stored bytes. */
static bool decode_access(struct ptx_decoder *d, bool store)
{
	bool async = store && ptx_word(d, "async");
	struct address a = {.space = ptx_space_of(d)}, barrier = {.space = PTX_SPACE_SHARED};
	unsigned flags = order_words(d);
	struct ptx_op op = {.count = (uint8_t)vector_word(d), .type = (uint8_t)ptx_type_word(d, false)};
	bool policy = ptx_word(d, "L2::cache_hint"); /* one more operand */

	skip_hints(d);
	if (async && (!ptx_word(d, "mbarrier::complete_tx::bytes") || a.space != PTX_SPACE_SHARED || flags ||
		      !decode_address(d, ptx_operand(d, 2), &barrier)))
		return false;
	if (!ptx_all_words_used(d) || d->statement->count != 2u + policy + async || !ptx_type_size(op.type) ||
	    !decode_address(d, ptx_operand(d, !store), &a) || !decode_elements(d, ptx_operand(d, store), &op, store))
		return false;
	if (store && (a.space == PTX_SPACE_CONST || a.space == PTX_SPACE_PARAM))
		return false;
	struct ptx_op *e = ptx_emit(d, store ? PTX_OP_STORE : PTX_OP_LOAD);
	e->count = op.count;
	e->type = op.type;
	e->kind = op.kind;
	e->memory = op.memory;
	put_address(e, &a, flags | PTX_ACCESS);
	if (a.space == PTX_SPACE_PARAM && a.row == ptx_constant_row(d, 0, true))
		e->code = PTX_OP_LOAD_UNIFORM;
	if (async) {
		struct ptx_op *told = ptx_emit(d, PTX_OP_MBARRIER);
		put_address(told, &barrier, 0);
		told->kind = PTX_MBARRIER_COMPLETE;
		told->memory.element[0] = PTX_NO_ROW;
		told->memory.element[1] = ptx_constant_row(d, op.count * ptx_type_size(op.type), false);
	}
	return true;
}

void ptx_frame_access(struct ptx_decoder *d, bool store, size_t address, enum ptx_type type, uint32_t row)
{
	uint32_t zero = ptx_constant_row(d, 0, true);
	struct ptx_op *op = ptx_emit(d, store ? PTX_OP_STORE : PTX_OP_LOAD);

	op->count = 1;
	op->type = (uint8_t)type;
	op->kind = (uint8_t)element_kind(ptx_type_size(type) < 2 ? 2 : ptx_type_size(type));
	op->memory.element[0] = row;
	put_address(op, &(struct address){PTX_SPACE_FRAME, zero, (int64_t)address, PTX_FRAME_RELATIVE}, 0);
}

bool ptx_atomic_word(struct ptx_decoder *d, enum ptx_atomic_kind *kind)
{
	static const char *const words[] = {"add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas"};

	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (ptx_word(d, words[i])) {
			*kind = i;
			return true;
		}
	return false;
}

bool ptx_atomic_allowed(enum ptx_atomic_kind kind, enum ptx_type type)
{
	switch (kind) {
	case PTX_ATOM_ADD:
		return type == PTX_U32 || type == PTX_S32 || type == PTX_U64 || type == PTX_F32 || type == PTX_F64;
	case PTX_ATOM_MIN:
	case PTX_ATOM_MAX:
		return type == PTX_U32 || type == PTX_S32 || type == PTX_U64 || type == PTX_S64;
	case PTX_ATOM_INC:
	case PTX_ATOM_DEC:
		return type == PTX_U32;
	default: /* bits: any type of 32 or 64 bits is allowed */
		return ptx_type_size(type) >= 4;
	}
}

static bool decode_atomic(struct ptx_decoder *d)
{
	bool result = ptx_is(d, "atom");
	struct address a = {.space = ptx_space_of(d)};
	unsigned flags = order_words(d);
	enum ptx_atomic_kind kind;
	enum ptx_type type = ptx_type_word(d, false);
	uint32_t dst = PTX_NO_ROW, b, c = 0;

	skip_hints(d);
	if (!ptx_atomic_word(d, &kind) || !ptx_all_words_used(d) || !ptx_atomic_allowed(kind, type) ||
	    d->statement->count != result + 2u + (kind == PTX_ATOM_CAS))
		return false;
	if (result && ptx_operand(d, 0)->kind != PTX_OPERAND_SINK &&
	    !ptx_result_row(d, ptx_operand(d, 0), type, &dst))
		return false;
	if (!decode_address(d, ptx_operand(d, result), &a) ||
	    (a.space != PTX_SPACE_GENERIC && a.space != PTX_SPACE_GLOBAL && a.space != PTX_SPACE_SHARED) ||
	    !ptx_source_row(d, ptx_operand(d, result + 1u), type, &b) ||
	    (kind == PTX_ATOM_CAS && !ptx_source_row(d, ptx_operand(d, result + 2u), type, &c)))
		return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_ATOMIC);
	put_address(op, &a, flags | PTX_ACCESS);
	op->kind = (uint8_t)kind;
	op->type = (uint8_t)type;
	op->count = 1;
	op->wide = ptx_type_size(type) == 8;
	op->memory.element[0] = dst;
	op->memory.element[1] = b;
	op->memory.element[2] = c;
	return true;
}

static bool mbarrier_kind(struct ptx_decoder *d, enum ptx_mbarrier_kind *kind)
{
	static const char *const words[] = {"init", "inval", "expect_tx", "complete_tx", "arrive"};

	if (ptx_word(d, "arrive_drop")) {
		*kind = PTX_MBARRIER_DROP;
	} else if (ptx_word(d, "arrive")) {
		*kind = ptx_word(d, "expect_tx")    ? PTX_MBARRIER_ARRIVE_EXPECT
			: ptx_word(d, "noComplete") ? PTX_MBARRIER_ARRIVE_PART
						    : PTX_MBARRIER_ARRIVE;
	} else if (ptx_word(d, "test_wait") || ptx_word(d, "try_wait")) {
		*kind = !strcmp(d->words[0], "try_wait") ? PTX_MBARRIER_TRY : PTX_MBARRIER_TEST;
	} else if (ptx_word(d, "pending_count")) {
		*kind = PTX_MBARRIER_PENDING;
	} else {
		for (*kind = 0; *kind < PTX_MBARRIER_ARRIVE; ++*kind)
			if (ptx_word(d, words[*kind]))
				return true;
		return false;
	}
	return true;
}

/* The operands: a result, the address, and a number, token or parity; not every instruction has each. */
static bool mbarrier_operands(struct ptx_decoder *d, enum ptx_mbarrier_kind kind, bool tokens, struct address *a,
			      uint32_t element[2])
{
	const struct ptx_operand *result = ptx_operand(d, 0);
	unsigned i = kind >= PTX_MBARRIER_ARRIVE, count = d->statement->count;
	bool waits = kind >= PTX_MBARRIER_TEST;

	element[0] = PTX_NO_ROW;
	element[1] = ptx_constant_row(d, 1, false);
	if (kind == PTX_MBARRIER_PENDING)
		return count == 2 && ptx_result_row(d, result, PTX_U32, &element[0]) &&
		       ptx_source_row(d, ptx_operand(d, 1), PTX_B64, &element[1]);
	if (waits ? !ptx_result_predicate(d, result, &element[0])
		  : i && result && result->kind != PTX_OPERAND_SINK && !ptx_result_row(d, result, PTX_B64, &element[0]))
		return false;
	if (!decode_address(d, ptx_operand(d, i), a) ||
	    (a->space != PTX_SPACE_GENERIC && a->space != PTX_SPACE_SHARED))
		return false;
	bool optional = kind == PTX_MBARRIER_INVALIDATE || kind == PTX_MBARRIER_ARRIVE || kind == PTX_MBARRIER_DROP;
	if (++i == count)
		return optional;
	/* try_wait may have a hint of how long it waits */
	return count <= i + 1 + (kind == PTX_MBARRIER_TRY) && kind != PTX_MBARRIER_INVALIDATE &&
	       ptx_source_row(d, ptx_operand(d, i), waits && tokens ? PTX_B64 : PTX_U32, &element[1]);
}

static bool decode_mbarrier(struct ptx_decoder *d)
{
	enum ptx_mbarrier_kind kind;
	struct address a = {.space = ptx_space_of(d)};
	uint32_t element[2];

	order_words(d);
	if (!mbarrier_kind(d, &kind))
		return false;
	bool tokens = !ptx_word(d, "parity");
	if (!ptx_word(d, "b64") || !ptx_all_words_used(d) || (!tokens && kind < PTX_MBARRIER_TEST) ||
	    !mbarrier_operands(d, kind, tokens, &a, element))
		return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_MBARRIER);
	if (kind != PTX_MBARRIER_PENDING)
		put_address(op, &a, PTX_ACCESS);
	op->kind = (uint8_t)kind;
	op->wide = tokens;
	memcpy(op->memory.element, element, sizeof(element));
	return true;
}

bool ptx_address_row(struct ptx_decoder *d, const struct ptx_operand *o, enum ptx_space space, uint32_t *row)
{
	struct address a = {.space = space};

	if (!decode_address(d, o, &a) || a.space != space || a.flags & PTX_FRAME_RELATIVE)
		return false;
	*row = a.row;
	if (a.flags & PTX_NARROW_ADDRESS) {
		*row = ptx_scratch_row(d, true);
		ptx_convert_row(d, *row, PTX_U64, a.row, PTX_U32);
	}
	if (a.offset) {
		uint32_t sum = ptx_scratch_row(d, true);
		ptx_add_constant(d, sum, *row, (uint64_t)a.offset, true);
		*row = sum;
	}
	return true;
}

/* Copies are complete at once, so nothing is left to wait for. */
static bool decode_copy_wait(struct ptx_decoder *d)
{
	bool counts = ptx_word(d, "wait_group");

	ptx_word(d, "bulk");
	ptx_word(d, "read");
	if ((!counts && !ptx_word(d, "commit_group") && !ptx_word(d, "wait_all")) || !ptx_all_words_used(d) ||
	    d->statement->count != counts)
		return false;
	ptx_emit(d, PTX_OP_NOTHING);
	return true;
}

/* It counts as an arrival once the thread's copies are complete. Without .noinc it is one more that is expected. */
static bool decode_copy_arrival(struct ptx_decoder *d)
{
	struct address a = {.space = ptx_space_of(d)};
	bool counts = ptx_word(d, "noinc");

	if (!ptx_word(d, "arrive") || !ptx_word(d, "b64") || !ptx_all_words_used(d) || d->statement->count != 1 ||
	    !decode_address(d, ptx_operand(d, 0), &a) ||
	    (a.space != PTX_SPACE_GENERIC && a.space != PTX_SPACE_SHARED))
		return false;
	struct ptx_op *op = ptx_emit(d, counts ? PTX_OP_MBARRIER : PTX_OP_NOTHING);
	put_address(op, &a, counts ? PTX_ACCESS : 0);
	op->kind = PTX_MBARRIER_ARRIVE;
	op->memory.element[0] = PTX_NO_ROW;
	op->memory.element[1] = ptx_constant_row(d, 1, false);
	return true;
}

/*
 * cp.async[.bulk] [to], [from], bytes, then an mbarrier of a bulk copy and perhaps a mask of blocks, or how many bytes are
 * given, then a policy.
 */
static bool decode_copy(struct ptx_decoder *d)
{
	struct address to = {.space = PTX_SPACE_GENERIC};
	bool bulk = ptx_word(d, "bulk"), group = ptx_word(d, "bulk_group");
	bool barrier = ptx_word(d, "mbarrier::complete_tx::bytes"), multicast = bulk && ptx_word(d, "multicast::cluster");
	unsigned policy = ptx_word(d, "L2::cache_hint"), count = d->statement->count - policy;
	uint32_t row[4] = {0, 0, PTX_NO_ROW, PTX_NO_ROW};

	to.space = ptx_space_of(d);
	enum ptx_space from = ptx_space_of(d);
	bool fits = bulk ? group != barrier && (from == PTX_SPACE_SHARED || to.space == PTX_SPACE_SHARED)
			 : !group && !barrier && to.space == PTX_SPACE_SHARED && from == PTX_SPACE_GLOBAL;
	skip_hints(d);
	if (!fits || (multicast && !barrier) || !ptx_all_words_used(d) || count < 3u + barrier + multicast ||
	    count > 3u + (barrier || !bulk) + multicast ||
	    !ptx_address_row(d, ptx_operand(d, 1), from, &row[0]) || !ptx_source_row(d, ptx_operand(d, 2), PTX_U32, &row[1]) ||
	    (barrier && !ptx_address_row(d, ptx_operand(d, 3), PTX_SPACE_SHARED, &row[2])) ||
	    (count > 3 && !bulk && !ptx_source_row(d, ptx_operand(d, 3), PTX_U32, &row[3])) ||
	    (multicast && !ptx_source_row(d, ptx_operand(d, 4), PTX_U16, &row[3])) ||
	    !decode_address(d, ptx_operand(d, 0), &to))
		return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_COPY);
	put_address(op, &to, PTX_ACCESS);
	op->kind = (uint8_t)from;
	op->wide = bulk;
	memcpy(op->memory.element, row, sizeof(row));
	return true;
}

static bool decode_async(struct ptx_decoder *d)
{
	if (!ptx_word(d, "async"))
		return false;
	if (ptx_word(d, "mbarrier"))
		return decode_copy_arrival(d);
	if (ptx_word(d, "tensor"))
		return ptx_decode_tensor(d);
	if (decode_copy_wait(d))
		return true;
	d->used = 1;
	return decode_copy(d);
}

bool ptx_decode_memory(struct ptx_decoder *d)
{
	d->used = 0;
	if (ptx_is(d, "ld") || ptx_is(d, "ldu"))
		return decode_access(d, false);
	if (ptx_is(d, "st"))
		return decode_access(d, true);
	if (ptx_is(d, "atom") || ptx_is(d, "red"))
		return decode_atomic(d);
	if (ptx_is(d, "mbarrier"))
		return decode_mbarrier(d);
	if (ptx_is(d, "cp"))
		return decode_async(d);
	if (ptx_is(d, "prefetch") || ptx_is(d, "prefetchu") || ptx_is(d, "discard") || ptx_is(d, "applypriority")) {
		/* Hints, except discard, which may also leave the bytes as they are. */
		ptx_emit(d, PTX_OP_NOTHING);
		return true;
	}
	return false;
}
