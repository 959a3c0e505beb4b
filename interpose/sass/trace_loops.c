/*
 * Finds loops that end, whatever memory has: what decides about another pass counts to a fixed end. They need no heartbeat.
 *
 * What decides is followed back from the branch. A loop only adds, moves and compares, in each pass, what it has added or
 * what is fixed while it runs. So a number that comes from memory, a condition on the way, or one that no addition moves make
 * a loop one that may wait. An addition of zero is not seen.
 */
#include <string.h>

#include "sass/blocks.h"
#include "sass/trace_parts.h"

#define RZ 255u
#define URZ 63u
#define PT 7u
#define LONGEST 4096u /* instructions of a loop that is looked at */
#define DEEPEST 200u  /* steps back */
#define SOURCES 5u

/* What an instruction reads or writes: registers, predicates, uniform registers. */
enum { PREDICATE_0 = 256, UNIFORM_0 = 264 };

/* What of the forms of an opcode tells where its second operand is. */
enum { OF_REGISTERS = 0x200, OF_NUMBER = 0x800, OF_CONSTANT = 0xa00, OF_UNIFORM = 0xc00, FORMS = 0xe00 };

#define TWO_OPERANDS 0x36u /* VIADD */

enum operation { OTHER, ADDS, MULTIPLIES, MOVES, COMPARES, READS_CONSTANT, UNIFORMLY = 8 };

enum comparison { LESS = 1, LESS_OR = 3, GREATER = 4, NOT = 5, GREATER_OR = 6 };

struct search {
	const struct trace_kernel *k;
	size_t begin, end;
	bool straight;           /* all instructions run in each pass, in their order */
	bool counts;             /* something that decides is added to itself */
	unsigned depth;
	uint8_t state[LONGEST];  /* of what an instruction writes */
};

enum { NEW, OPEN, DONE };

static enum operation operation_of(struct instruction i)
{
	switch (i.low & 0xfff & ~(uint64_t)FORMS) {
	case 0x010:
	case TWO_OPERANDS:
		return ADDS;
	case 0x024:
		return MULTIPLIES;
	case 0x002:
		return MOVES;
	case 0x00c:
		return COMPARES;
	case 0x090:
		return ADDS | UNIFORMLY;
	case 0x08c:
		return COMPARES | UNIFORMLY;
	case 0x082:
		return MOVES | UNIFORMLY;
	case 0x0b9:
		return (i.low & FORMS) == OF_CONSTANT ? READS_CONSTANT | UNIFORMLY : OTHER;
	default:
		return OTHER;
	}
}

static unsigned field(struct instruction i, unsigned bit, unsigned mask)
{
	return (unsigned)(bit < 64 ? i.low >> bit : i.high >> (bit - 64)) & mask;
}

static void add_register(unsigned *to, unsigned *count, unsigned number, bool uniform)
{
	if (uniform ? number != URZ : number != RZ)
		to[(*count)++] = uniform ? UNIFORM_0 + number : number;
}

static void add_predicate(unsigned *to, unsigned *count, unsigned number)
{
	if (number != PT)
		to[(*count)++] = PREDICATE_0 + number;
}

/* What a known operation reads. false: it has a form that is not known. */
static bool sources(struct instruction i, enum operation what, unsigned to[SOURCES + 2], unsigned *count)
{
	bool uniform = what & UNIFORMLY, one = (what & ~UNIFORMLY) == MOVES;
	unsigned mask = uniform ? URZ : RZ, form = i.low & FORMS;

	*count = 0;
	if ((what & ~UNIFORMLY) == READS_CONSTANT)
		return true;
	if (form != OF_REGISTERS && form != OF_NUMBER && form != OF_CONSTANT && form != OF_UNIFORM)
		return false;
	if (!one)
		add_register(to, count, field(i, 24, mask), uniform);
	if (form == OF_REGISTERS)
		add_register(to, count, field(i, 32, mask), uniform);
	else if (form == OF_UNIFORM)
		add_register(to, count, field(i, 32, URZ), true);
	if (one)
		return true;
	if ((what & ~UNIFORMLY) == COMPARES) {
		add_predicate(to, count, field(i, 87, 7));
		add_predicate(to, count, field(i, 68, 7));
		return true;
	}
	if ((i.low & 0xff) == TWO_OPERANDS)
		return true;
	add_register(to, count, field(i, 64, mask), uniform);
	add_predicate(to, count, field(i, 87, 7)); /* what is carried */
	if ((what & ~UNIFORMLY) == ADDS)
		add_predicate(to, count, field(i, 77, 7));
	return true;
}

static bool writes_predicate(unsigned architecture, struct instruction i, unsigned predicate)
{
	static const char *const none[] = {
		"FFMA", "FADD", "FMUL", "FMNMX", "FSEL",   "MUFU",   "MOV",   "SEL",   "PRMT", "SHF", "ST",
		"RED",  "BAR",  "BRA",  "BS",    "NOP",    "LD",     "S2R",   "CS2R",  "I2",   "F2",  "HADD",
		"HFMA", "HMUL", "HMMA", "HGMMA", "IMMA",   "DFMA",   "DADD",  "DMUL",  "POPC", "FLO", "BREV",
		"U",    "R2UR", "WARP", "VIADD", "DEPBAR", "MEMBAR", "FENCE", "YIELD",
	};
	const char *mnemonic = code_mnemonic(architecture, i);
	bool multiplies = mnemonic && !strcmp(mnemonic, "IMAD");

	for (size_t n = 0; mnemonic && n < sizeof(none) / sizeof(*none); n++)
		if (!strncmp(mnemonic, none[n], strlen(none[n])))
			return false;
	return field(i, 81, 7) == predicate || (!multiplies && field(i, 84, 7) == predicate);
}

static bool writes(const struct search *s, size_t at, unsigned thing)
{
	struct instruction i = s->k->code[at];
	enum operation what = operation_of(i);
	struct uniforms uniforms = {0};
	unsigned first, count;

	if (thing >= UNIFORM_0) {
		if (what & UNIFORMLY && (what & ~UNIFORMLY) != READS_CONSTANT && (what & ~UNIFORMLY) != COMPARES)
			return field(i, 16, URZ) == thing - UNIFORM_0;
		code_uniforms(s->k->architecture, i, &uniforms);
		return uniforms.registers >> (thing - UNIFORM_0) & 1;
	}
	if (thing >= PREDICATE_0)
		return writes_predicate(s->k->architecture, i, thing - PREDICATE_0);
	if (what == ADDS || what == MULTIPLIES || what == MOVES)
		return field(i, 16, RZ) == thing;
	if (what == COMPARES || what & UNIFORMLY)
		return false;
	trace_written(s->k->architecture, i, &first, &count);
	return thing >= first && thing < first + count;
}

static bool is_written(const struct search *s, unsigned thing)
{
	for (size_t at = s->begin; at <= s->end; at++)
		if (writes(s, at, thing))
			return true;
	return false;
}

/* Whether no branch of the loop leads past the instruction, to another one of the loop. */
static bool is_in_each_pass(const struct search *s, size_t at)
{
	int64_t target;

	for (size_t i = s->begin; i < at; i++)
		if (code_branch_target(s->k->code[i], i, &target) && target > (int64_t)at && target <= (int64_t)s->end)
			return false;
	return true;
}

/* A product may have only one operand that changes: then it is not part of what is counted, or it is a sum. */
static bool is_sum(const struct search *s, struct instruction i)
{
	unsigned a = field(i, 24, RZ), b = field(i, 32, RZ);

	switch (i.low & FORMS) {
	case OF_NUMBER:
		return field(i, 32, UINT32_MAX) == 1 || a == RZ || !is_written(s, a);
	case OF_REGISTERS:
		return a == RZ || b == RZ || !(is_written(s, a) || is_written(s, b));
	default:
		return a == RZ || !is_written(s, a);
	}
}

/* The last one before `at` that writes this, in this pass or the one before; or end + 1: none. */
static size_t writer_before(const struct search *s, size_t at, unsigned thing)
{
	size_t length = s->end - s->begin + 1;

	for (size_t back = 1; back <= length; back++) {
		size_t from = s->begin + (at - s->begin + length - back) % length;
		if (writes(s, from, thing))
			return from;
	}
	return s->end + 1;
}

/* Whether it changes by 1 in each pass, so that it comes to any number. */
static bool is_stepped(const struct search *s, size_t at, unsigned thing)
{
	size_t from = writer_before(s, at, thing);

	if (!s->straight || from > s->end)
		return false;
	struct instruction i = s->k->code[from];
	unsigned by = field(i, 32, UINT32_MAX), other = field(i, 64, thing < UNIFORM_0 ? RZ : URZ);
	bool third = (i.low & 0xff) != TWO_OPERANDS && other != (thing < UNIFORM_0 ? RZ : URZ);
	return operation_of(i) == (ADDS | (thing < UNIFORM_0 ? 0u : UNIFORMLY)) && (i.low & FORMS) == OF_NUMBER && !third &&
	       field(i, 24, thing < UNIFORM_0 ? RZ : URZ) == (thing < UNIFORM_0 ? thing : thing - UNIFORM_0) &&
	       writer_before(s, from, thing) == from && (by == 1 || by == UINT32_MAX);
}

/* Whether it compares a number that changes with one that does not, so that a count comes to an end. */
static bool ends(const struct search *s, size_t at)
{
	struct instruction i = s->k->code[at];
	bool uniform = operation_of(i) & UNIFORMLY;
	unsigned mask = uniform ? URZ : RZ, form = i.low & FORMS, how = field(i, 76, 7);
	bool uniform_b = uniform || form == OF_UNIFORM, of_b = form == OF_REGISTERS || form == OF_UNIFORM;
	unsigned a = field(i, 24, mask), b = field(i, 32, uniform_b ? URZ : RZ);
	unsigned thing_a = a + (uniform ? UNIFORM_0 : 0), thing_b = b + (uniform_b ? UNIFORM_0 : 0);
	bool a_changes = a != mask && is_written(s, thing_a);
	bool b_changes = of_b && b != (uniform_b ? URZ : RZ) && is_written(s, thing_b);

	if (a_changes == b_changes)
		return false;
	if (how == NOT && field(i, 68, 7) == PT)
		return is_stepped(s, at, a_changes ? thing_a : thing_b);
	return how == LESS || how == LESS_OR || how == GREATER || how == GREATER_OR;
}

static bool follow(struct search *s, size_t at, unsigned thing);

/* Whether what it writes is counted, or fixed. */
static bool is_counted(struct search *s, size_t at)
{
	struct instruction i = s->k->code[at];
	enum operation what = operation_of(i);
	unsigned from[SOURCES + 2], count;
	uint8_t *state = &s->state[at - s->begin];

	if (*state != NEW) {
		s->counts |= *state == OPEN;
		return true;
	}
	if (what == OTHER || (i.low & GUARD) != UNGUARDED || !sources(i, what, from, &count) || !is_in_each_pass(s, at))
		return false;
	if ((what == MULTIPLIES && !is_sum(s, i)) || ((what & ~UNIFORMLY) == COMPARES && !ends(s, at)))
		return false;
	*state = OPEN;
	for (unsigned n = 0; n < count; n++)
		if (!follow(s, at, from[n]))
			return false;
	*state = DONE;
	return true;
}

static bool adds_to_itself(struct instruction i)
{
	unsigned to = field(i, 16, RZ);

	return operation_of(i) == ADDS && (field(i, 24, RZ) == to || field(i, 64, RZ) == to ||
					   ((i.low & FORMS) == OF_REGISTERS && field(i, 32, RZ) == to));
}

/* Where instructions have no fixed order, one of several writers may begin to count again. */
static bool all_are_counted(struct search *s, unsigned thing)
{
	unsigned writers = 0, additions = 0;

	for (size_t at = s->begin; at <= s->end; at++) {
		if (!writes(s, at, thing))
			continue;
		if (!is_counted(s, at))
			return false;
		writers++;
		additions += adds_to_itself(s->k->code[at]);
	}
	return writers < 2 || additions == writers;
}

/* The same of all that may have been written when this instruction reads it. */
static bool follow(struct search *s, size_t at, unsigned thing)
{
	size_t from = s->straight ? writer_before(s, at, thing) : 0;
	bool all = ++s->depth < DEEPEST;

	if (all && s->straight)
		all = from > s->end || is_counted(s, from);
	else if (all)
		all = all_are_counted(s, thing);
	s->depth--;
	return all;
}

bool trace_loop_ends(const struct trace_kernel *k, size_t begin, size_t end)
{
	struct search s = {.k = k, .begin = begin, .end = end, .straight = true};
	unsigned guard = field(k->code[end], 12, 7), second = field(k->code[end], 87, 15);
	int64_t target;

	if (end - begin >= LONGEST || guard == PT || second != PT || code_has_uniform_guard(k->architecture, k->code[end]))
		return false;
	for (size_t at = 0; at < k->count; at++) {
		bool inside = at >= begin && at <= end, jumps = code_branch_target(k->code[at], at, &target);
		if (inside &&
		    (code_goes_elsewhere(k->architecture, k->code[at]) || !code_mnemonic(k->architecture, k->code[at])))
			return false;
		if (jumps && at != end && target >= (int64_t)begin + !inside && target <= (int64_t)end)
			s.straight = false;
	}
	return follow(&s, end, PREDICATE_0 + guard) && s.counts;
}
