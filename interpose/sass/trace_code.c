/*
 * Puts recording code into kernels. See trace_code.h for the invariant.
 *
 * Recording code uses general registers above the kernel's own, and uniform registers and convergence barriers that the
 * kernel never uses. It saves the kernel's predicates. First it waits for all scoreboards, at last for its own, and for
 * all threads of the warp that came with it.
 */
#include "sass/trace_code.h"

#include <stdlib.h>
#include <string.h>

#include "sass/blocks.h"
#include "sass/trace_parts.h"

#define CODE_ALIGN 8u /* instructions */
#define DETOUR 20u /* instructions of a detour besides its pieces */
#define PIECE_COST 2u
#define PREDICATE (15ull << 23) /* a second guard, of control flow */
#define NO_PREDICATE (7ull << 23)
#define EXIT 0x94du

uint32_t trace_kinds(unsigned architecture)
{
	uint32_t kinds = 0;

	for (unsigned k = TT_TRACE_OPCODE; architecture == 90 && k < TT_TRACE_END; k++)
		if (trace_template(k))
			kinds |= 1u << k;
	return kinds;
}

/* Inserted code begins here. */
static void replace(struct writer *w, size_t at, struct instruction by)
{
	w->out[at] = by;
	if (at)
		w->out[at - 1] = code_without_reuse(w->out[at - 1]);
}

static struct instruction branch_from(const struct writer *w, size_t from, size_t to)
{
	return code_branch(w->kernel->architecture, from * SASS_BYTES, to * SASS_BYTES);
}

/* Puts a record that is complete before the instruction. */
static void put_record(struct writer *w, size_t from, unsigned kind, uint32_t slot)
{
	const struct layout *l = w->layout;
	struct instruction i = w->kernel->code[from];
	struct inputs in = {.outputs = 1};

	if (kind == TT_TRACE_REGISTERS) {
		trace_put_registers(w, i, (uint32_t)from);
		return;
	}
	if (kind == TT_TRACE_TMA) {
		trace_put_copy(w, i, (uint32_t)from);
		return;
	}
	in.of[SOURCE_ZERO] = (struct input){true, 0};
	in.of[SOURCE_MASK].value = l->mask;
	in.of[SOURCE_ADDRESS_LOW].value = l->pair;
	in.of[SOURCE_ADDRESS_HIGH].value = l->pair + 1;
	in.of[SOURCE_INSTRUCTION] = (struct input){true, kind == TT_TRACE_COUNT ? slot - 1 : (uint32_t)from};
	trace_put_piece(w, kind, &in);
}

/* Returns where the instruction is now; 0: it must follow. */
static size_t put_recording(struct writer *w, size_t from, uint32_t kinds, uint32_t slot)
{
	struct instruction i = w->kernel->code[from];

	if (kinds & 1u << TT_TRACE_COUNT && w->layout->counting.quickly) {
		trace_put_count(w, i, slot - 1);
		kinds &= ~(1u << TT_TRACE_COUNT);
	}
	if (!kinds)
		return 0;
	trace_put_wait(w);
	trace_put_save(w);
	trace_put_mask(w, i);
	for (unsigned kind = TT_TRACE_OPCODE; kind < TT_TRACE_END; kind++) {
		if (1u << kind & kinds & ACCESSES)
			trace_put_address(w, i, trace_memory(i, false));
		if (1u << kind & kinds & ~(1u << TT_TRACE_VALUES))
			put_record(w, from, kind, slot);
	}
	if (kinds & 1u << TT_TRACE_VALUES && kinds != 1u << TT_TRACE_VALUES)
		trace_put_restore(w); /* the instruction itself is executed where values are recorded */
	size_t moved = kinds & 1u << TT_TRACE_VALUES ? trace_put_values(w, i, (uint32_t)from) : 0;
	trace_put_restore(w);
	return moved;
}

static size_t put_detour(struct writer *w, size_t from, uint32_t kinds, uint32_t slot)
{
	const struct layout *l = w->layout;

	const struct levels *levels = w->kernel->levels;
	struct layout there = levels ? trace_layout_at(l, trace_levels_at(levels, from)->base) : *l;
	bool saves = trace_spill_layout(w->kernel, l, from, kinds, &there);

	w->layout = &there;
	if (saves)
		trace_put_spill(w, from);
	size_t moved = put_recording(w, from, kinds, slot);
	if (saves)
		trace_put_fill(w);
	w->layout = l;
	return moved;
}

static enum beat_point point_of(const struct writer *w, size_t at)
{
	if (w->layout->counting.pairs && (w->kernel->code[at].low & 0xfff) == EXIT)
		return BEAT_AT_EXIT;
	return trace_beat_point(w->kernel, at);
}

/* What lanes do that exit. Returns where the instruction is now. */
static size_t put_exit(struct writer *w, struct instruction i)
{
	if (w->layout->counting.pairs) {
		trace_put_wait(w);
		trace_put_last_counts(w);
	}
	if (w->kernel->wish.beats)
		trace_put_exit(w);
	i.low = (i.low & ~GUARD) | UNGUARDED;
	i.high = (i.high & ~PREDICATE) | NO_PREDICATE;
	w->out[w->count] = i;
	return w->count++;
}

/* For the lanes that exit. */
static struct instruction exit_branch(const struct writer *w, struct instruction i, size_t from, size_t to)
{
	struct instruction branch = branch_from(w, from, to);

	branch.low = (branch.low & ~GUARD) | (i.low & GUARD);
	branch.high = (branch.high & ~PREDICATE) | (i.high & (PREDICATE | WAITS_FOR_ALL << SCHEDULE));
	return branch;
}

/* The instruction itself, and a branch back. Returns where it is now. */
static size_t put_moved(struct writer *w, size_t from)
{
	struct instruction i = w->kernel->code[from];
	enum beat_point point = point_of(w, from);
	size_t at = w->count;
	int64_t branch;

	if (point == BEAT_AT_EXIT) {
		w->out[at] = exit_branch(w, i, at, at + 2);
		w->count++;
		trace_put_branch(w, from + 1);
		return put_exit(w, i);
	}
	if (point == BEAT_AT_BARRIER)
		at = trace_put_barrier(w, i, (uint32_t)from);
	else if (code_branch_target(i, from, &branch))
		w->out[w->count++] = code_retarget(w->kernel->architecture, i, at * SASS_BYTES, (size_t)branch * SASS_BYTES);
	else
		w->out[w->count++] = code_without_reuse(i);
	trace_put_branch(w, from + 1);
	return at;
}

/* What an instruction without recording code has for heartbeats. Returns where it is now; 0: in its place. */
static size_t put_beat(struct writer *w, size_t from)
{
	struct instruction i = w->kernel->code[from], branch;

	switch (point_of(w, from)) {
	case BEAT_AT_EXIT:
		replace(w, from, exit_branch(w, i, from, w->count));
		return put_exit(w, i);
	case BEAT_AT_BARRIER:
		branch = branch_from(w, from, w->count);
		branch.high |= i.high & WAITS_FOR_ALL << SCHEDULE;
		replace(w, from, branch);
		return put_moved(w, from);
	case BEAT_AT_LOOP:
		trace_put_pass(w, from);
		return 0;
	default:
		return 0;
	}
}

static size_t room_for(const struct trace_kernel *k, const struct layout *l, const uint32_t *kinds)
{
	size_t room = k->count + CODE_ALIGN + trace_beat_room(k) + 2 * DETOUR;

	for (size_t i = 0; i < k->count; i++) {
		room += kinds[i] ? DETOUR + SPILL_COST(l) : 0;
		room += (k->code[i].low & 0xfff) == EXIT ? LAST_COUNTS_COST : 0;
		for (unsigned kind = TT_TRACE_OPCODE; kind < TT_TRACE_END; kind++)
			if (kinds[i] & 1u << kind)
				room += trace_template(kind)->count + PIECE_COST + COUNT_COST;
		if (kinds[i] & 1u << TT_TRACE_VALUES)
			room += trace_template(VALUES_END)->count + VALUES_COST;
		if (kinds[i] & 1u << TT_TRACE_REGISTERS)
			room += trace_registers_room(k->code[i]);
		if (kinds[i] & 1u << TT_TRACE_TMA)
			room += trace_copy_room();
	}
	return room;
}

static void put_all(struct writer *w, const uint32_t *kinds, struct traced_code *out)
{
	for (size_t i = 0; i < w->kernel->count; i++) {
		bool enters = !i && (w->kernel->wish.beats || w->layout->counting.pairs);
		size_t moved = 0;
		if (kinds[i] || enters) {
			replace(w, i, branch_from(w, i, w->count));
			if (enters)
				trace_put_enter(w);
			if (kinds[i])
				moved = put_detour(w, i, kinds[i], out->slots[i]);
			if (moved)
				trace_put_branch(w, i + 1);
			else
				moved = put_moved(w, i);
		} else {
			moved = put_beat(w, i);
		}
		out->moved[i] = (uint32_t)(moved * SASS_BYTES);
		out->points += kinds[i] != 0;
	}
	for (size_t i = 0; i < w->kernel->count; i++)
		if (kinds[i] & 1u << TT_TRACE_COUNT)
			trace_put_count_of_part(w, w->kernel->code[i], out->slots[i] - 1);
	/* execution must not continue past the end */
	trace_put_branch(w, w->count);
	for (; w->count % CODE_ALIGN; w->count++)
		w->out[w->count] = code_nop();
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
	struct layout l = {.counting = {.stride = out->stride, .copies = out->copies}};
	const char *wrong;

	l.counting.quickly = !k->wish.some_blocks;
	if ((wrong = trace_plan(k, kinds, out->slot_count, &l)))
		return wrong;
	if (!(out->code = malloc(room_for(k, &l, kinds) * sizeof(*out->code))))
		return "no host memory";
	memcpy(out->code, k->code, k->count * sizeof(*k->code));
	struct writer w = {.kernel = k, .layout = &l, .out = out->code, .count = k->count};
	put_all(&w, kinds, out);
	if (k->levels)
		trace_levels_raise(k, k->levels, out->code);
	out->of_threads = k->levels;
	out->count = w.count;
	out->registers = l.registers;
	out->stack = trace_spill_bytes(&l);
	return NULL;
}

/* Why none of the instructions has recording code, or NULL. */
static const char *none_chosen(const struct trace_kernel *k, const struct trace_point *points, const uint32_t *kinds)
{
	const char *why = NULL;

	for (size_t i = 0; i < k->count; i++) {
		if (kinds[i])
			return NULL;
		why = why ? why : points[i].refused;
	}
	return why ? why : "no instruction is to be traced";
}

/* What trace_insert does, but for what it frees. */
static const char *choose_and_insert(const struct trace_kernel *k, struct trace_point *points, struct traced_code *out)
{
	uint32_t *kinds = calloc(2 * k->count + 1, sizeof(*kinds));
	const char *wrong = "no host memory";

	out->moved = calloc(k->count + 1, sizeof(*out->moved));
	out->slots = calloc(k->count + 1, sizeof(*out->slots));
	if (kinds && out->moved && out->slots) {
		trace_choose(k, points, kinds, out);
		trace_count_layout(out->slot_count, &out->stride, &out->copies);
		wrong = k->wish.beats ? NULL : none_chosen(k, points, kinds);
		wrong = wrong ? wrong : insert(k, kinds, out);
	}
	free(kinds);
	return wrong;
}

const char *trace_insert(const struct trace_kernel *k, struct trace_point *points, struct traced_code *out)
{
	struct levels levels = {0};
	struct trace_kernel with_levels = *k;
	const char *wrong = NULL;

	*out = (struct traced_code){0};
	if (!trace_kinds(k->architecture))
		return "no recording code for this architecture";
	if (k->used.refused)
		return k->used.refused;
	if (k->used.levels) {
		wrong = trace_levels_find(k, &levels);
		with_levels.levels = &levels;
	}
	if (!wrong)
		wrong = choose_and_insert(&with_levels, points, out);
	free(levels.of);
	if (wrong)
		traced_code_free(out);
	return wrong;
}
