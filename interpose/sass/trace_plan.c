/*
 * Finds registers and barriers for recording code. See trace_code.h for the invariant.
 *
 * General registers are above the kernel's own. If there are too few, trace_spill.c saves some. Uniform registers and
 * convergence barriers are those that the kernel never uses.
 */
#include <string.h>

#include "sass/trace_parts.h"

#define REGISTERS_OF_BLOCK 65536u
#define REGISTERS_TOGETHER 8u /* that a thread gets */
#define WARP 32u
#define CONTROL 0x40u /* the low byte of opcodes of control flow */
#define CONTROL_END 0x60u
#define SAVES_BARRIER 0x355u /* BMOV to a register */
#define LOADS_BARRIER 0x356u
/* what is stored between two pieces */
#define ENDED (1u << TT_TRACE_VALUES | 1u << TT_TRACE_REGISTERS | 1u << TT_TRACE_TMA)

/* Those that an instruction may write; exactly those of its text, where that is known. */
static void note_uniforms(unsigned architecture, struct instruction i, struct uniforms *used)
{
	struct uniforms written = {0};
	struct registers r;

	code_uniforms(architecture, i, &written);
	if (written.registers) {
		trace_registers_of(i, &r);
		written.registers = r.known ? 0 : written.registers;
		for (unsigned u = 0; u < r.uniforms; u++)
			written.registers |= 1ull << r.uniform[u];
	}
	used->registers |= written.registers;
	used->predicates |= written.predicates;
}

void trace_use(unsigned architecture, struct instruction i, struct trace_used *used)
{
	const char *mnemonic = code_mnemonic(architecture, i);
	unsigned opcode = i.low & 0xfff;

	note_uniforms(architecture, i, &used->uniforms);
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
	else if (opcode == SAVES_BARRIER || opcode == LOADS_BARRIER)
		used->barriers |= 1u << (i.low >> (opcode == SAVES_BARRIER ? 24 : 16) & 15);
	else if (!strcmp(mnemonic, "BMOV"))
		used->refused = "it saves convergence barriers";
	else if (!strcmp(mnemonic, "USETMAXREG"))
		used->levels = true;
}

/* The pieces that code for these kinds needs, as bits. */
static uint32_t pieces_of(const struct trace_kernel *k, const struct layout *l, uint32_t kinds)
{
	uint32_t pieces = k->wish.beats ? 1u << trace_enter_piece(k) : 0;

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

/* The most registers that each thread of so many in a block can have. */
static unsigned registers_of_threads(unsigned threads)
{
	unsigned warps = (threads + WARP - 1) / WARP;
	unsigned most = warps ? REGISTERS_OF_BLOCK / (warps * WARP) / REGISTERS_TOGETHER * REGISTERS_TOGETHER : REGISTERS_MAX;

	return most < REGISTERS_MAX ? most : REGISTERS_MAX;
}

/* Registers above the kernel's own: `used` by pieces or counts. */
static void plan_registers(const struct trace_kernel *k, bool pieces, unsigned used, struct layout *l)
{
	unsigned own = k->registers, entered = trace_template(BEAT_ENTER)->registers + 1;

	if (k->wish.beats && own < entered) /* where a kernel begins, so many of its own are used */
		own = entered;

	l->base = (own + 3) & ~3u;
	if (!pieces) { /* only counts */
		l->saved = l->pair = l->base + used;
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
	if (k->wish.beats && trace_counts_barriers(k) && l->registers + SPARE < registers_of_threads(k->wish.threads))
		l->barriers = l->registers++;
	l->registers += SPARE;
}

unsigned trace_take_uniforms(uint64_t *used, unsigned count)
{
	const uint64_t wanted = (1ull << count) - 1;

	/* starts from the highest, because compilers use the lowest first */
	for (unsigned at = NO_UNIFORM - 1; at < NO_UNIFORM; at -= count)
		if (at + count <= NO_UNIFORM && !(*used & wanted << at)) {
			*used |= wanted << at;
			return at;
		}
	return NO_UNIFORM;
}

/* Uniform registers: what is kept, and those of pieces or counts, `count` of them. */
static const char *plan_uniforms(const struct trace_kernel *k, unsigned count, bool counts, struct layout *l)
{
	uint64_t used = k->used.uniforms.registers;
	bool keeps = k->wish.beats || l->counting.pairs;
	const char *wrong = keeps ? trace_kept_plan(k, l, &used) : NULL;

	if (wrong || !count)
		return wrong;
	/* pieces write what the descriptor that is kept has anyway; counts do not */
	unsigned at = keeps && !counts ? l->descriptor : trace_take_uniforms(&used, 2);
	for (unsigned u = 0; u < count && at < NO_UNIFORM; u++) {
		if (u >= 2)
			at = trace_take_uniforms(&used, 1);
		l->uniform[u] = (uint8_t)(u == 1 ? at + 1 : at);
	}
	return at < NO_UNIFORM ? NULL : "no free uniform registers";
}

/* Registers that have counts while the kernel runs, if there are enough. */
static const char *plan_counts(const struct trace_kernel *k, uint32_t slots, unsigned uniforms, unsigned most, struct layout *l)
{
	struct counting *c = &l->counting;

	trace_count_plan(k, slots, l->registers, most, c);
	c->first = (l->registers - SPARE + 1) & ~1u;
	c->bit = c->first + 2 * c->pairs;
	const char *wrong = plan_uniforms(k, uniforms, true, l);
	if (wrong && c->pairs) {
		c->pairs = 0;
		wrong = plan_uniforms(k, uniforms, true, l);
	}
	if (c->pairs)
		l->registers = c->bit + 1 + SPARE;
	return wrong;
}

/* Warps that take registers are the first to have no more, because they have others to save. */
static const char *plan_levels(const struct trace_kernel *k, const uint32_t *kinds, struct layout *l)
{
	unsigned needed = l->registers - l->base;
	const char *wrong = trace_levels_plan(k, k->levels, needed, NO_LEVELS, &l->registers);

	for (enum level_saves saves = LEVELS_TAKEN; wrong && saves <= LEVELS_CHANGED; saves++)
		if (!trace_levels_plan(k, k->levels, needed, saves, &l->registers) && !trace_spill_plan(k, kinds, 0, l))
			wrong = NULL;
	return wrong;
}

const char *trace_plan(const struct trace_kernel *k, const uint32_t *kinds, uint32_t slots, struct layout *l)
{
	unsigned most = registers_of_threads(k->wish.threads);
	uint32_t all = 0;

	for (size_t i = 0; i < k->count; i++)
		all |= kinds[i];
	bool counts = all & 1u << TT_TRACE_COUNT && l->counting.quickly;
	unsigned registers = counts ? COUNT_REGISTERS : 0, uniforms = counts ? COUNT_UNIFORMS : 0, barriers = 0;
	uint32_t pieces = pieces_of(k, l, all);
	const char *wrong;

	for (unsigned which = 0; pieces >> which; which++) {
		const struct template *t = trace_template(which);
		if (!(pieces & 1u << which))
			continue;
		barriers = t->barriers > barriers ? t->barriers : barriers;
		if (which >= BEAT_ENTER) /* has registers of the kernel, or what is kept */
			continue;
		registers = t->registers > registers ? t->registers : registers;
		uniforms = t->uniforms - OF_PIECES > uniforms ? t->uniforms - OF_PIECES : uniforms;
	}
	plan_registers(k, pieces, registers, l);
	wrong = counts ? plan_counts(k, slots, uniforms, most, l) : plan_uniforms(k, uniforms, false, l);
	if (!wrong && k->levels)
		wrong = plan_levels(k, kinds, l);
	else if (!wrong && l->registers > most)
		wrong = trace_spill_plan(k, kinds, most, l);
	if (wrong)
		return wrong;
	return plan_barriers(k, barriers, l);
}
