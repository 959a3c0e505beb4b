/*
 * Operands of instructions: where values come from and go to.
 */
#include "sim/ptx/decode.h"

#include <string.h>

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
	{"%clusterid.x", PTX_S_CLUSTERID_X},
	{"%clusterid.y", PTX_S_CLUSTERID_Y},
	{"%clusterid.z", PTX_S_CLUSTERID_Z},
	{"%nclusterid.x", PTX_S_NCLUSTERID_X},
	{"%nclusterid.y", PTX_S_NCLUSTERID_Y},
	{"%nclusterid.z", PTX_S_NCLUSTERID_Z},
	{"%cluster_ctaid.x", PTX_S_CLUSTER_CTAID_X},
	{"%cluster_ctaid.y", PTX_S_CLUSTER_CTAID_Y},
	{"%cluster_ctaid.z", PTX_S_CLUSTER_CTAID_Z},
	{"%cluster_nctaid.x", PTX_S_CLUSTER_NCTAID_X},
	{"%cluster_nctaid.y", PTX_S_CLUSTER_NCTAID_Y},
	{"%cluster_nctaid.z", PTX_S_CLUSTER_NCTAID_Z},
	{"%cluster_ctarank", PTX_S_CLUSTER_CTARANK},
	{"%cluster_nctarank", PTX_S_CLUSTER_NCTARANK},
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

static bool is_known(struct ptx_decoder *d, const char *name)
{
	if (ptx_map_get(&d->module->names, name) || ptx_find_label(d, name, d->statement->scope))
		return true;
	for (size_t i = 0; i < sizeof(specials) / sizeof(*specials); i++)
		if (!strcmp(name, specials[i].name))
			return true;
	return false;
}

const char *ptx_unknown_name(struct ptx_decoder *d, const struct ptx_operand *o, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const char *name = ptx_unknown_name(d, o[i].elements, o[i].count);
		if (name)
			return name;
		if (o[i].kind == PTX_OPERAND_NAME && !is_known(d, o[i].name))
			return o[i].name;
	}
	return NULL;
}
