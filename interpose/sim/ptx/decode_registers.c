/* Which registers a statement names: a trace has their values. */
#include "sim/ptx/decode.h"

#define MOST 4096 /* as many do not fit into a record */

static void add_operand(struct ptx_decoder *d, uint32_t value)
{
	ptx_module *m = d->module;

	m->operands = ptx_arena_grow(d->source, m->operands, d->operand_count, &d->operand_capacity, sizeof(*m->operands));
	m->operands[d->operand_count++] = value;
}

static void list_register(struct ptx_decoder *d, size_t first, uint32_t reg)
{
	const struct ptx_register *r = &d->function->registers[reg];

	if (d->operand_count - first == MOST)
		return;
	for (size_t i = first; i < d->operand_count; i++)
		if (d->module->operands[i] == r->row)
			return;
	if (r->type != PTX_PRED)
		add_operand(d, r->row);
}

static void list_registers(struct ptx_decoder *d, size_t first, const struct ptx_operand *o, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		if (o[i].kind == PTX_OPERAND_REGISTER)
			list_register(d, first, o[i].reg);
		if (o[i].paired)
			list_register(d, first, o[i].pair);
		list_registers(d, first, o[i].elements, o[i].count);
	}
}

void ptx_list_registers(struct ptx_decoder *d, size_t first)
{
	const struct ptx_statement *t = d->statement;
	size_t count = d->operand_count;

	if (d->module->code_count == first)
		ptx_emit(d, PTX_OP_NOTHING);
	add_operand(d, 0);
	list_registers(d, d->operand_count, t->operands, t->count);
	d->module->operands[count] = (uint32_t)(d->operand_count - count - 1);
	d->module->code[first].operands = (uint32_t)(count + 1);
}
