/*
 * Copies of boxes of tensors by tensor maps, tiled ones, and reductions: cp.async.bulk.tensor and cp.reduce.
 *
 * Invariant: a copy is complete as soon as it is issued. What a box has outside of its tensor is read as 0 and not
 * written. A store may not begin at a negative coordinate: an H100 ended such a kernel.
 */
#include "sim/ptx/decode.h"

#include <string.h>

#include "sim/tensor_map.h"

#define SHARED_ALIGN 128

/* --- decoding --- */

static bool take_rank(struct ptx_decoder *d, uint8_t *rank)
{
	char word[] = "0d";

	for (*rank = 1; *rank <= SIM_TENSOR_RANK; ++*rank) {
		word[0] = (char)('0' + *rank);
		if (ptx_word(d, word))
			return true;
	}
	return false;
}

/* [map, {coordinates}]: the row of the map's address, and those of the coordinates. */
static bool take_place(struct ptx_decoder *d, const struct ptx_operand *o, uint8_t rank, uint32_t *map, uint32_t *rows)
{
	struct ptx_operand base;

	if (!o || o->kind != PTX_OPERAND_ADDRESS || o->count != 2)
		return false;
	const struct ptx_operand *at = &o->elements[1];
	base = *o;
	base.count = 1;
	if (at->kind != PTX_OPERAND_VECTOR || at->count != rank || !ptx_address_row(d, &base, PTX_SPACE_GENERIC, map))
		return false;
	for (unsigned i = 0; i < rank; i++)
		if (!ptx_source_row(d, &at->elements[i], PTX_S32, &rows[i]))
			return false;
	return true;
}

/* [to], place, [mbarrier] of a load, place, [from] of others; then a mask of blocks and a policy, as the opcode says. */
bool ptx_decode_tensor(struct ptx_decoder *d)
{
	uint32_t *rows = ptx_arena_take(d->source, SIM_TENSOR_RANK * sizeof(*rows)), shared, map, barrier = PTX_NO_ROW;
	uint32_t blocks = PTX_NO_ROW;
	enum ptx_atomic_kind kind = 0;
	bool reduces = ptx_word(d, "reduce");
	uint8_t rank;

	if (!ptx_word(d, "bulk") || !take_rank(d, &rank) || (reduces && !ptx_atomic_word(d, &kind)))
		return false;
	enum ptx_space to = ptx_space_of(d), from = ptx_space_of(d);
	bool store = to == PTX_SPACE_GLOBAL && from == PTX_SPACE_SHARED, multicast = ptx_word(d, "multicast::cluster");
	bool fits = store || reduces ? store && ptx_word(d, "bulk_group") && !multicast && kind < PTX_ATOM_EXCH
			  : to == PTX_SPACE_SHARED && from == PTX_SPACE_GLOBAL && ptx_word(d, "mbarrier::complete_tx::bytes");
	unsigned policy = ptx_word(d, "L2::cache_hint");
	ptx_word(d, "tile");
	if (!fits || !ptx_all_words_used(d) || d->statement->count != (store ? 2u : 3u + multicast) + policy ||
	    !take_place(d, ptx_operand(d, !store), rank, &map, rows) ||
	    !ptx_address_row(d, ptx_operand(d, store), PTX_SPACE_SHARED, &shared) ||
	    (!store && !ptx_address_row(d, ptx_operand(d, 2), PTX_SPACE_SHARED, &barrier)) ||
	    (multicast && !ptx_source_row(d, ptx_operand(d, 3), PTX_U16, &blocks)))
		return false;
	struct ptx_op *op = ptx_emit(d, PTX_OP_TENSOR);
	op->flags = PTX_ACCESS;
	op->space = PTX_SPACE_SHARED;
	op->kind = (uint8_t)(reduces ? PTX_TENSOR_REDUCES + kind : store);
	op->count = rank;
	op->targets = rows;
	op->memory.address = shared;
	op->memory.element[0] = map;
	op->memory.element[1] = barrier;
	op->memory.element[2] = blocks;
	return true;
}

/* --- execution --- */

/* A copy of one lane. */
struct box {
	struct ptx_warp *warp;
	const struct ptx_op *op;
	unsigned lane;
	struct sim_tensor_map map;
	int32_t first[SIM_TENSOR_RANK]; /* coordinates */
	uint8_t *shared;
	uint32_t at; /* its address */
};

static uint32_t box_bytes(const struct sim_tensor_map *m)
{
	uint64_t size = m->element;

	for (unsigned i = 0; i < m->rank; i++)
		size *= sim_tensor_count(m, i);
	return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

/* How elements are reduced; PTX_NONE: they are not. */
static enum ptx_type reduced_type(const struct sim_tensor_map *m)
{
	switch (m->form) {
	case 'u':
		return m->element == 8 ? PTX_U64 : PTX_U32;
	case 's':
		return m->element == 8 ? PTX_S64 : PTX_S32;
	case 'f':
		return m->element == 8 ? PTX_F64 : PTX_F32;
	default:
		return PTX_NONE;
	}
}

/* Copies the elements of one line of the box, the number-th; global: that of its first coordinate 0. */
static bool copy_line(const struct box *b, uint64_t number, uint64_t global, bool inside)
{
	const struct sim_tensor_map *m = &b->map;
	int64_t size = (int64_t)m->last[0] + 1, first = b->first[0], low = first < 0 ? -first : 0;
	int64_t high = size - first < m->box[0] ? size - first : m->box[0];
	uint8_t *host = NULL;

	if (!inside || high <= low)
		low = high = 0;
	else if (!(host = ptx_device_memory(b->warp, b->op, b->lane, global + (uint64_t)(first + low) * m->element,
				     (size_t)(high - low) * m->element, b->op->kind)))
		return false;
	for (int64_t i = 0; i < m->box[0]; i++) {
		uint32_t at = b->at + (uint32_t)(number * m->box[0] + (uint64_t)i) * m->element;
		uint8_t *shared = b->shared + ((at ^ (at >> 3 & m->swizzle)) - b->at);
		bool here = i >= low && i < high;
		if (here && b->op->kind >= PTX_TENSOR_REDUCES)
			ptx_reduce(b->op->kind - PTX_TENSOR_REDUCES, reduced_type(m), host + (i - low) * m->element, shared);
		else if (here && b->op->kind)
			memcpy(host + (i - low) * m->element, shared, m->element);
		else if (here)
			memcpy(shared, host + (i - low) * m->element, m->element);
		else if (!b->op->kind)
			memset(shared, 0, m->element);
	}
	return true;
}

static bool copy_lines(const struct box *b)
{
	const struct sim_tensor_map *m = &b->map;
	uint64_t lines = box_bytes(m) / (m->box[0] * m->element);

	for (uint64_t line = 0; line < lines; line++) {
		uint64_t rest = line, global = m->address;
		bool inside = true;
		for (unsigned i = 1; i < m->rank; i++) {
			int64_t at = b->first[i] + (int64_t)(rest % sim_tensor_count(m, i)) * m->step[i];
			rest /= sim_tensor_count(m, i);
			inside &= at >= 0 && at <= m->last[i];
			global += (uint64_t)at * m->stride[i];
		}
		if (!copy_line(b, line, global, inside))
			return false;
	}
	return true;
}

const void *ptx_tensor_map(struct ptx_warp *w, const struct ptx_op *op, unsigned lane)
{
	uint8_t *host[PTX_WARP];

	return ptx_resolve_row(w, op, op->memory.element[0], PTX_SPACE_GENERIC, ptx_lane_bit[lane], 64,
			       sizeof(struct sim_tensor_map), false, host)
		       ? host[lane]
		       : NULL;
}

static bool refuse(const struct box *b, ptx_status status, const char *why)
{
	ptx_fault(b->warp, b->op, ptx_lane_bit[b->lane], status, "%s", why);
	return false;
}

/* A kernel may have written to it. */
static bool is_valid(const struct sim_tensor_map *m, unsigned rank)
{
	if (m->magic != SIM_TENSOR_MAP || m->rank != rank || !m->element || m->element > sizeof(uint64_t) ||
	    (m->swizzle && m->box[0] * m->element != m->swizzle + SIM_TENSOR_LINE))
		return false;
	for (unsigned i = 0; i < rank; i++)
		if (!m->box[i] || m->box[i] > SIM_TENSOR_BOX || !m->step[i])
			return false;
	return true;
}

/* Where a box may not begin. */
static bool begins_wrong(const struct box *b)
{
	bool wrong = (int64_t)b->first[0] * b->map.element % SIM_TENSOR_LINE;

	for (unsigned i = 0; i < b->map.rank; i++)
		wrong |= b->op->kind && b->first[i] < 0;
	return wrong;
}

/* rank: of the block of the cluster that has the shared memory; -1: the addresses say it. */
static bool copy_by(struct box *b, int rank)
{
	const struct ptx_op *op = b->op;
	uint32_t mask = ptx_lane_bit[b->lane], size = box_bytes(&b->map);
	uint8_t *host[PTX_WARP];

	if (!ptx_resolve_at(b->warp, op, op->memory.address, rank, mask, SHARED_ALIGN, size, !op->kind, host))
		return false;
	b->shared = host[b->lane];
	return copy_lines(b) && (op->kind || (ptx_resolve_at(b->warp, op, op->memory.element[1], rank, mask, 8, 8, true, host) &&
					      ptx_mbarrier_apply(b->warp, op, PTX_MBARRIER_COMPLETE, (int)b->lane, host[b->lane],
								 size)));
}

static bool copy_box(struct box *b)
{
	const struct ptx_op *op = b->op;
	const void *map = ptx_tensor_map(b->warp, op, b->lane);
	uint32_t blocks = op->memory.element[2];

	if (!map)
		return false;
	memcpy(&b->map, map, sizeof(b->map));
	if (!is_valid(&b->map, op->count))
		return refuse(b, PTX_ILLEGAL, "no tensor map of as many dimensions");
	b->at = (uint32_t)((const lane_u64 *)ptx_row(b->warp, op->memory.address))[b->lane];
	for (unsigned i = 0; i < op->count; i++)
		b->first[i] = (int32_t)((const lane_u32 *)ptx_row(b->warp, op->targets[i]))[b->lane];
	if (op->kind >= PTX_TENSOR_REDUCES && !ptx_atomic_allowed(op->kind - PTX_TENSOR_REDUCES, reduced_type(&b->map)))
		return refuse(b, PTX_UNSUPPORTED, "a tensor reduction of elements of this type");
	if (begins_wrong(b))
		return refuse(b, PTX_ILLEGAL, op->kind ? "a store that begins at a negative coordinate or inside 16 bytes"
						       : "a load that begins inside 16 bytes");
	if (blocks == PTX_NO_ROW)
		return copy_by(b, -1);
	for (uint32_t m = ((const lane_u32 *)ptx_row(b->warp, blocks))[b->lane]; m; m &= m - 1)
		if (!copy_by(b, __builtin_ctz(m)))
			return false;
	return true;
}

bool ptx_tensor_copy(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op)
{
	g->pc++;
	for (uint32_t m = g->mask; m; m &= m - 1) {
		struct box b = {.warp = w, .op = op, .lane = (unsigned)__builtin_ctz(m)};
		if (!copy_box(&b))
			return false;
	}
	return true;
}
