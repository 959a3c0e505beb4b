/*
 * Finds registers and barriers for recording code. See trace_code.h for the invariant.
 *
 * General registers are above the kernel's own. If there are too few, trace_spill.c saves some. Uniform registers and
 * convergence barriers are those that the kernel never uses.
 */
#include <string.h>

#include "sass/trace_parts.h"

#define REGISTERS_MAX 255u
#define UNIFORM_MAX 63u
#define CONTROL 0x40u /* the low byte of opcodes of control flow */
#define CONTROL_END 0x60u
/* what is stored between two pieces */
#define ENDED (1u << TT_TRACE_VALUES | 1u << TT_TRACE_REGISTERS | 1u << TT_TRACE_TMA)
#define ENTER_REGISTERS 12u /* where a kernel begins, so many of its own are used */

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

const char *trace_plan(const struct trace_kernel *k, uint32_t kinds, uint32_t slots, struct layout *l)
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
