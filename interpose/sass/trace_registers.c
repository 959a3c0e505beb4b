/*
 * Records registers, and what bulk copies are asked for. See trace_code.h for the invariant.
 *
 * A piece begins the record and says where its payload is, code from here stores the registers, and another piece completes
 * the record. operand_forms.h says which registers an instruction has. Of one that it does not know, only the lanes are
 * recorded.
 */
#include <string.h>

#include "sass/blocks.h"
#include "sass/trace_parts.h"
#include "util/vector.h"

#define RZ 255u
#define DESTINATION 16u /* the bit at which the number of the first one is */
#define URZ 63u
#define LANES_BYTES 128u /* a value of each lane */
#define STORES_AT_ONCE 32u /* that one scoreboard counts */
#define TOGETHER 8u /* uniform registers that are stored without a wait between */

/* As in trace_values.c. */
#define LOADED 0x702ull

/* ISETP.NE.AND P0, PT, a, RZ, PT; ULDC.64 d, c[0x0][0x208]; @P0 STG.E desc[c][a], b; MOV d, UR */
static const struct instruction encoding_if_set = {0x000000ff0000720c, 0x03f05270};
static const struct instruction encoding_descriptor = {0x0000820000007ab9, 0x0a00};
static const struct instruction encoding_store = {0x0000000000000986, 0x0c101900};
static const struct instruction encoding_from_uniform = {0x0000000000007c02, 0x08000f00};
/* S2R d, SR_LANEID; IMAD.WIDE d, a, imm, c; SHF.R.U32.HI d, RZ, imm, c */
static const struct instruction encoding_lane = {0x0000000000007919, 0};
static const struct instruction encoding_add_wide = {0x0000000000007825, 0x078e0200};
static const struct instruction encoding_shift = {0x00000000ff007819, 0x00011600};

/* ---- the registers of an instruction ---- */

/* At a bit of the instruction is the first register of an operand; `skipped` behind it, it has so many. */
struct operand {
	uint8_t bit, uniform, skipped, count;
};

#define OPERANDS 5
#define R(bit, skipped, count) {bit, false, skipped, count}
#define U(bit, skipped, count) {bit, true, skipped, count}

/* Instructions whose bits in `mask` are those of `bits`, in the order of their opcodes. */
static const struct form {
	struct instruction mask, bits;
	struct operand operands[OPERANDS];
} forms[] = {
#define FORM(mask_high, mask_low, high, low, ...) {{mask_low, mask_high}, {low, high}, {__VA_ARGS__}},
#include "sass/operand_forms.h"
#undef FORM
};

static const struct form *find_form(struct instruction i)
{
	const size_t count = sizeof(forms) / sizeof(*forms);
	uint64_t opcode = i.low & 0xfff;

	for (size_t f = lower_bound(count, o, (forms[o].bits.low & 0xfff) < opcode);
	     f < count && (forms[f].bits.low & 0xfff) == opcode; f++)
		if ((i.low & forms[f].mask.low) == forms[f].bits.low && (i.high & forms[f].mask.high) == forms[f].bits.high)
			return &forms[f];
	return NULL;
}

static void add(uint8_t *to, unsigned *count, unsigned number)
{
	if (!memchr(to, (int)number, *count))
		to[(*count)++] = (uint8_t)number;
}

void trace_registers_of(struct instruction i, struct registers *r)
{
	const struct form *f = find_form(i);

	*r = (struct registers){.known = f || code_branch_moves(i)};
	for (const struct operand *o = f ? f->operands : NULL; o && o < f->operands + OPERANDS && o->count; o++) {
		unsigned none = o->uniform ? URZ : RZ;
		unsigned first = (unsigned)(o->bit < 64 ? i.low >> o->bit : i.high >> (o->bit - 64)) & none;
		for (unsigned n = first + o->skipped; first != none && n < first + o->skipped + o->count && n < none; n++)
			if (o->uniform)
				add(r->uniform, &r->uniforms, n);
			else
				add(r->general, &r->generals, n);
	}
}

void trace_written(unsigned architecture, struct instruction i, unsigned *first, unsigned *count)
{
	const struct form *f = find_form(i);

	*count = trace_writes(architecture, i, first);
	if (!f || !*count || *count == RZ)
		return;
	*count = 0;
	for (const struct operand *o = f->operands; o < f->operands + OPERANDS && o->count; o++)
		if (o->bit == DESTINATION && !o->uniform)
			*count = o->skipped + o->count;
}

/* ---- bulk copies ---- */

#define OPCODE 0x1ffu /* above are bits for the kinds of operands */
#define LOADS_TENSOR 0x1b4u
#define REDUCES_TENSOR 0x1b6u
#define FETCHES_TENSOR 0x1b8u
#define COPIES 0x1bau
#define REDUCES 0x1bbu
#define TO_SHARED (1ull << 9)
#define TO_BLOCKS (1ull << 11)
#define BLOCKS_SHIFT 16u /* in the register, behind a size or the places of an im2col box */
#define AT_BARRIER 8u    /* in the payload */
#define AT_COORDINATES 16u
#define AT_BLOCKS 36u

/* The first of the registers with its addresses in shared memory, barrier and coordinates. */
static unsigned first_of(struct instruction i)
{
	return i.low >> 32 & URZ;
}

static bool has_map(struct instruction i)
{
	return (i.low & OPCODE) < COPIES;
}

static bool has_barrier(struct instruction i)
{
	return (i.low & OPCODE) == LOADS_TENSOR || (!has_map(i) && i.high & TO_SHARED);
}

bool trace_copies(struct instruction i)
{
	unsigned opcode = i.low & OPCODE;

	return (opcode >= LOADS_TENSOR && opcode <= REDUCES_TENSOR) || opcode == FETCHES_TENSOR || opcode == COPIES ||
	       opcode == REDUCES;
}

/* ---- code ---- */

static struct input in_register(unsigned r)
{
	return (struct input){false, r};
}

static struct inputs inputs_of(const struct layout *l, uint32_t number)
{
	struct inputs in = {.output = l->pair, .outputs = 3};

	in.of[SOURCE_INSTRUCTION] = (struct input){true, number};
	in.of[SOURCE_ZERO] = (struct input){true, 0};
	in.of[SOURCE_MASK] = in_register(l->mask);
	in.of[SOURCE_TAG] = in_register(l->tag);
	in.of[SOURCE_ADDRESS_LOW] = in_register(l->pair);
	in.of[SOURCE_ADDRESS_HIGH] = in_register(l->pair + 1);
	return in;
}

static void put_from_uniform(struct writer *w, unsigned to, unsigned from)
{
	trace_put(w, trace_with(encoding_from_uniform, to, 0, from, 0), SETTLED);
}

static void put_store(struct writer *w, unsigned offset, unsigned from)
{
	struct instruction store = trace_with(encoding_store, 0, w->layout->pair, from, w->layout->uniform[0]);

	store.low |= (uint64_t)offset << 40;
	trace_put(w, store, STORES);
}

/* What may store: lanes of which a record has something, if there is room for it. */
static void put_condition(struct writer *w)
{
	trace_put(w, trace_with(encoding_if_set, 0, w->layout->tag, 0, 0), SETTLED);
	trace_put(w, trace_with(encoding_descriptor, w->layout->uniform[0], 0, 0, 0), SETTLED);
}

/* Gives each lane its place in the payload's first row, and completes the record behind what is stored there. */
static void put_rows(struct writer *w, const uint8_t *registers, unsigned count, const struct inputs *in)
{
	const struct layout *l = w->layout;

	trace_put(w, trace_with(encoding_lane, l->one, 0, 0, 0), LOADED);
	trace_put_wait(w);
	trace_put(w, trace_with(encoding_add_wide, l->pair, l->one, sizeof(uint32_t), l->pair), SETTLED);
	for (unsigned n = 0; n < count; n++) {
		if (n % STORES_AT_ONCE == STORES_AT_ONCE - 1)
			trace_put_wait(w);
		put_store(w, n * LANES_BYTES, registers[n]);
	}
	trace_put_piece(w, VALUES_END, in);
}

static size_t bytes_of(const struct registers *r)
{
	return sizeof(struct tt_trace_record) + r->generals * LANES_BYTES + ((r->uniforms + 1) & ~1u) * sizeof(uint32_t);
}

void trace_put_registers(struct writer *w, struct instruction i, uint32_t number)
{
	const struct layout *l = w->layout;
	struct inputs in = inputs_of(l, number);
	struct registers r;

	trace_registers_of(i, &r);
	in.of[SOURCE_TAG] = (struct input){true, TT_TRACE_TAG(TT_TRACE_REGISTERS, 0, bytes_of(&r))};
	trace_put_piece(w, TT_TRACE_REGISTERS, &in);
	in.of[SOURCE_TAG] = in_register(l->tag);
	put_condition(w);
	for (unsigned n = 0; n < r.uniforms; n++) { /* all lanes have the same */
		put_from_uniform(w, l->base + n % TOGETHER, r.uniform[n]);
		put_store(w, r.generals * LANES_BYTES + n * (unsigned)sizeof(uint32_t), l->base + n % TOGETHER);
		if (n % TOGETHER == TOGETHER - 1)
			trace_put_wait(w);
	}
	put_rows(w, r.general, r.generals, &in);
}

void trace_put_copy(struct writer *w, struct instruction i, uint32_t number)
{
	const struct layout *l = w->layout;
	struct inputs in = inputs_of(l, number);
	unsigned map = i.low >> 24 & URZ, first = first_of(i), addresses = has_barrier(i) ? 2 : 1;

	if (has_map(i)) {
		put_from_uniform(w, l->pair, map);
		put_from_uniform(w, l->pair + 1, map + 1);
	} else {
		trace_put_number(w, l->pair, 0);
		trace_put_number(w, l->pair + 1, 0);
	}
	trace_put_piece(w, TT_TRACE_TMA, &in);
	put_condition(w);
	if (has_barrier(i)) {
		put_from_uniform(w, l->base, first + 1);
		put_store(w, AT_BARRIER, l->base);
	}
	if ((i.low & OPCODE) == FETCHES_TENSOR)
		addresses = 0;
	for (unsigned n = 0; has_map(i) && n <= (i.high >> 15 & 7); n++) {
		put_from_uniform(w, l->base + 1 + n, first + addresses + n);
		put_store(w, AT_COORDINATES + n * (unsigned)sizeof(uint32_t), l->base + 1 + n);
	}
	if (i.high & TO_BLOCKS) {
		put_from_uniform(w, l->base + TOGETHER, i.high & URZ);
		trace_put(w, trace_with(encoding_shift, l->base + TOGETHER, 0, BLOCKS_SHIFT, l->base + TOGETHER), SETTLED);
		put_store(w, AT_BLOCKS, l->base + TOGETHER);
	}
	put_rows(w, NULL, 0, &in);
}

size_t trace_registers_room(struct instruction i)
{
	struct registers r;

	trace_registers_of(i, &r);
	return trace_template(TT_TRACE_REGISTERS)->count + trace_template(VALUES_END)->count + REGISTERS_COST +
	       2 * (r.generals + 2 * r.uniforms);
}

size_t trace_copy_room(void)
{
	return trace_template(TT_TRACE_TMA)->count + trace_template(VALUES_END)->count + COPY_COST;
}
