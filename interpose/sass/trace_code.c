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
#define REGISTERS_MAX 255u
#define UNIFORM_MAX 63u
#define NEVER 0xf000ull /* the guard @!PT */
#define CONTROL 0x40u /* the low byte of opcodes of control flow */
#define CONTROL_END 0x60u
#define ACCESSES (1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_VALUES)
/* what is stored between two pieces */
#define ENDED (1u << TT_TRACE_VALUES | 1u << TT_TRACE_REGISTERS | 1u << TT_TRACE_TMA)
#define ENTER_REGISTERS 12u /* where a kernel begins, so many of its own are used */
#define DETOUR 16u /* instructions of a detour besides its pieces */
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

void trace_use(unsigned architecture, struct instruction i, struct trace_used *used)
{
	const char *mnemonic = code_mnemonic(architecture, i);

	code_uniforms(architecture, i, &used->uniforms);
	/* where instructions that write predicates have them */
	used->predicates |= 1u << (i.high >> 17 & 7) | 1u << (i.high >> 20 & 7);
	if (!mnemonic && (i.low & 0xff) >= CONTROL && (i.low & 0xff) < CONTROL_END)
		used->refused = "unknown opcode";
	else if (!mnemonic)
		return;
	else if (!strcmp(mnemonic, "R2P"))
		used->predicates = UINT32_MAX;
	else if (!strcmp(mnemonic, "EXIT"))
		used->exits++;
	else if (!strcmp(mnemonic, "BSSY") || !strcmp(mnemonic, "BSYNC") || !strcmp(mnemonic, "BREAK"))
		used->barriers |= 1u << (i.low >> 16 & 15);
	else if (!strcmp(mnemonic, "BMOV"))
		used->refused = "it saves convergence barriers";
	else if (!strcmp(mnemonic, "USETMAXREG"))
		used->refused = "its warps change their number of registers";
}

static const char *point_refused(const struct trace_kernel *k, size_t at, uint32_t kinds)
{
	struct instruction i = k->code[at];

	if (at + 1 >= k->count)
		return "nothing follows it";
	const char *pinned = code_pinned(k->architecture, i);
	if (pinned)
		return pinned;
	if (k->fixed && k->fixed[at])
		return "the instruction has a relocation, or is part of a collective operation";
	if (kinds & ~trace_kinds(k->architecture))
		return "no code records this kind";
	if (kinds & 1u << TT_TRACE_COUNT && code_is_uniform(k->architecture, i) && (i.low & GUARD) != UNGUARDED)
		return "its guard is a uniform predicate";
	if (kinds & ACCESSES && !trace_memory(i, false))
		return "it has no address, or one of an unknown form";
	if (kinds & 1u << TT_TRACE_VALUES && !trace_has_values(k, i))
		return "the size of its values is unknown";
	if (kinds & 1u << TT_TRACE_TMA && !trace_copies(i))
		return "it is no copy";
	return NULL;
}

/* The pieces that code for these kinds needs, as bits. */
static uint32_t pieces_of(const struct trace_kernel *k, const struct layout *l, uint32_t kinds)
{
	uint32_t pieces = k->wish.beats ? 1u << BEAT_ENTER | 1u << BEAT_EXIT : 0;

	for (unsigned kind = TT_TRACE_OPCODE; kind < TT_TRACE_END; kind++)
		if (kinds & 1u << kind && !(kind == TT_TRACE_COUNT && l->counting.quickly))
			pieces |= 1u << kind;
	if (kinds & ENDED)
		pieces |= 1u << VALUES_END;
	return pieces;
}

static const char *plan_barriers(const struct trace_kernel *k, unsigned barriers, struct layout *l)
{
	unsigned found = 0;

	for (unsigned b = BARRIERS; b-- && found <= barriers;)
		if (!(k->used.barriers & 1u << b))
			l->barrier[found++] = b;
	return found > barriers ? NULL : "no free convergence barriers";
}

/* Registers above the kernel's own: `used` by pieces or counts. */
static void plan_registers(const struct trace_kernel *k, bool pieces, unsigned used, struct layout *l)
{
	unsigned own = k->wish.beats && k->registers < ENTER_REGISTERS ? ENTER_REGISTERS : k->registers;

	l->base = (own + 3) & ~3u;
	if (!pieces) { /* only counts */
		l->saved = l->base + used;
		l->one = l->saved + 1;
	} else if (k->wish.beats && !used) { /* the pieces of heartbeats use the kernel's own */
		l->pair = l->base + 2;
		l->saved = l->base + 4;
		l->state = l->base + 5;
		l->one = l->base + 8;
	} else {
		l->pair = l->base + ((used + 1) & ~1u);
		l->tag = l->pair + 2;
		l->saved = l->pair + 3;
		l->mask = l->pair + 4;
		l->one = l->pair + 5;
		l->state = l->pair + 7;
	}
	l->beat = l->state + 1; /* two, from an even one on */
	l->registers = l->one + 1;
	if (k->wish.beats && l->beat + 2 > l->registers)
		l->registers = l->beat + 2;
	l->registers += SPARE;
}

/* Registers that have counts while the kernel runs. */
static void plan_counts(const struct trace_kernel *k, uint32_t slots, uint64_t uniforms, struct layout *l)
{
	struct counting *c = &l->counting;

	trace_count_plan(k, slots, l->registers, c);
	c->first = (l->registers - SPARE + 1) & ~1u;
	c->bit = c->first + 2 * c->pairs;
	if (c->pairs && trace_kept_plan(k, l, uniforms))
		c->pairs = 0;
	if (c->pairs)
		l->registers = c->bit + 1 + SPARE;
}

static const char *plan(const struct trace_kernel *k, uint32_t kinds, uint32_t slots, struct layout *l)
{
	bool counts = kinds & 1u << TT_TRACE_COUNT && l->counting.quickly;
	unsigned registers = counts ? COUNT_REGISTERS : 0, uniforms = counts ? COUNT_UNIFORMS : 0;
	unsigned first = counts ? 0 : UNIFORM_MAX, barriers = 0;
	uint32_t pieces = pieces_of(k, l, kinds);
	const char *wrong;

	for (unsigned which = 0; pieces >> which; which++) {
		const struct template *t = trace_template(which);
		if (!(pieces & 1u << which))
			continue;
		barriers = t->barriers > barriers ? t->barriers : barriers;
		if (which >= BEAT_ENTER) /* has registers of the kernel, or what is kept */
			continue;
		registers = t->registers > registers ? t->registers : registers;
		uniforms = t->uniforms > uniforms ? t->uniforms : uniforms;
		first = t->first_uniform < first ? t->first_uniform & ~1u : first;
	}
	plan_registers(k, pieces, registers, l);
	/* starts from the highest, because compilers use the lowest first */
	unsigned at = (UNIFORM_MAX - uniforms) & ~1u; /* added to their numbers */
	const uint64_t wanted = uniforms ? ((1ull << (uniforms - first)) - 1) << first : 0;
	while (k->used.uniforms.registers & wanted << at)
		if ((at -= 2) > UNIFORM_MAX)
			return "no free uniform registers";
	l->uniforms = at;
	if (counts)
		plan_counts(k, slots, wanted << at, l);
	if (k->wish.beats && (wrong = trace_kept_plan(k, l, wanted << at)))
		return wrong;
	if (l->registers > REGISTERS_MAX && (wrong = trace_spill_plan(k, l)))
		return wrong;
	return plan_barriers(k, barriers, l);
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
	size_t moved = kinds & 1u << TT_TRACE_VALUES ? trace_put_values(w, i, (uint32_t)from) : 0;
	trace_put_restore(w);
	return moved;
}

static size_t put_detour(struct writer *w, size_t from, uint32_t kinds, uint32_t slot)
{
	const struct layout *l = w->layout;

	if (!l->saves)
		return put_recording(w, from, kinds, slot);
	struct layout saved = trace_spill_layout(w->kernel, l, w->kernel->code[from]);
	w->layout = &saved;
	trace_put_spill(w, from);
	size_t moved = put_recording(w, from, kinds, slot);
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
	trace_put_wait(w);
	if (w->layout->counting.pairs)
		trace_put_last_counts(w);
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

	if (point == BEAT_AT_EXIT) {
		w->out[at] = exit_branch(w, i, at, at + 2);
		w->count++;
		trace_put_branch(w, from + 1);
		return put_exit(w, i);
	}
	if (point == BEAT_AT_BARRIER)
		at = trace_put_barrier(w, i, (uint32_t)from);
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

/* ---- counts ---- */

static bool is_guarded(struct instruction i)
{
	return (i.low & GUARD) != UNGUARDED;
}

/* Whether it may write the predicate of a guard: where instructions that write predicates have them. */
static bool writes_guard(const struct trace_kernel *k, struct instruction i, uint64_t guard)
{
	const char *mnemonic = code_mnemonic(k->architecture, i);
	unsigned predicate = guard >> 12 & 7;

	return !mnemonic || !strcmp(mnemonic, "R2P") || (i.high >> 17 & 7) == predicate || (i.high >> 20 & 7) == predicate;
}

/*
 * Gives those that are to be counted, from the guarded one at `first` to the end of its block, and have its guard with the
 * same value, one slot.
 */
static void share_guarded(const struct trace_kernel *k, const struct trace_point *points, size_t first, size_t end,
			  uint32_t *kinds, struct traced_code *out)
{
	const uint64_t guard = k->code[first].low & GUARD;

	kinds[first] |= 1u << TT_TRACE_COUNT;
	out->slots[first] = ++out->slot_count;
	for (size_t i = first; i + 1 < end && !writes_guard(k, k->code[i], guard); i++)
		if ((k->code[i + 1].low & GUARD) == guard && points[i + 1].kinds & 1u << TT_TRACE_COUNT)
			out->slots[i + 1] = out->slots[first];
}

/*
 * Gives each instruction that is to be counted a slot. All of a block without a guard have the slot of the first of them
 * that can have recording code, and so have those with the same guard.
 */
static void share_counts(const struct trace_kernel *k, struct trace_point *points, const uint32_t *block, uint32_t *kinds,
			 struct traced_code *out)
{
	const uint32_t count = 1u << TT_TRACE_COUNT;

	for (size_t begin = 0, end; begin < k->count; begin = end) {
		uint32_t shared = 0;
		size_t first = k->count;
		bool any = false;
		for (end = begin; end < k->count && block[end] == block[begin]; end++) {
			bool guarded = is_guarded(k->code[end]), possible = !point_refused(k, end, count);
			any |= points[end].kinds & count && !guarded;
			first = first == k->count && possible && !guarded ? end : first;
		}
		for (size_t i = begin; i < end; i++)
			if (points[i].kinds & count && is_guarded(k->code[i]) && (k->code[i].low & GUARD) != NEVER &&
			    !out->slots[i] && !point_refused(k, i, count))
				share_guarded(k, points, i, end, kinds, out);
		if (any && first < k->count) {
			kinds[first] |= count;
			shared = ++out->slot_count;
		}
		for (size_t i = begin; shared && i < end; i++)
			if (i == first || (points[i].kinds & count && !is_guarded(k->code[i])))
				out->slots[i] = shared;
	}
}

/* Fills in which kinds of recording code each instruction gets. */
static void choose(const struct trace_kernel *k, struct trace_point *points, uint32_t *kinds, struct traced_code *out)
{
	uint32_t *block = kinds + k->count;

	for (size_t i = 0; i < k->count; i++) {
		const char *refused = NULL;
		for (unsigned kind = TT_TRACE_OPCODE; kind < TT_TRACE_END; kind++) {
			const char *wrong = points[i].kinds & 1u << kind ? point_refused(k, i, 1u << kind) : NULL;
			kinds[i] |= points[i].kinds & 1u << kind && !wrong ? 1u << kind : 0;
			refused = wrong ? wrong : refused;
		}
		points[i].refused = kinds[i] ? NULL : refused;
		kinds[i] &= ~(1u << TT_TRACE_COUNT);
	}
	code_blocks(k->architecture, k->code, k->count, block);
	share_counts(k, points, block, kinds, out);
	for (size_t i = 0; i < k->count; i++)
		if (kinds[i] || (out->slots[i] && points[i].kinds == 1u << TT_TRACE_COUNT))
			points[i].refused = NULL;
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
	uint32_t all = 0;

	l.counting.quickly = !k->wish.some_blocks;
	for (size_t i = 0; i < k->count; i++)
		all |= kinds[i];
	if (!all && !k->wish.beats)
		return "no instruction that can be traced";
	if ((wrong = plan(k, all, out->slot_count, &l)))
		return wrong;
	if (!(out->code = malloc(room_for(k, &l, kinds) * sizeof(*out->code))))
		return "no host memory";
	memcpy(out->code, k->code, k->count * sizeof(*k->code));
	struct writer w = {.kernel = k, .layout = &l, .out = out->code, .count = k->count};
	put_all(&w, kinds, out);
	out->count = w.count;
	out->registers = l.registers;
	out->stack = trace_spill_bytes(&l);
	return NULL;
}

const char *trace_insert(const struct trace_kernel *k, struct trace_point *points, struct traced_code *out)
{
	const char *wrong = "no host memory";

	*out = (struct traced_code){0};
	if (!trace_kinds(k->architecture))
		return "no recording code for this architecture";
	if (k->used.refused)
		return k->used.refused;
	uint32_t *kinds = calloc(2 * k->count + 1, sizeof(*kinds));
	out->moved = calloc(k->count + 1, sizeof(*out->moved));
	out->slots = calloc(k->count + 1, sizeof(*out->slots));
	if (kinds && out->moved && out->slots) {
		choose(k, points, kinds, out);
		trace_count_layout(out->slot_count, &out->stride, &out->copies);
		wrong = insert(k, kinds, out);
	}
	free(kinds);
	if (wrong)
		traced_code_free(out);
	return wrong;
}
