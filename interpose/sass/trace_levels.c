/*
 * Recording code for kernels whose warps change their number of registers (setmaxnreg). See trace_code.h for the invariant.
 *
 * Each number that warps may have is a level. The branches of the kernel say which levels each instruction may have. Above
 * a level is room for recording code, because warps then ask for more registers: the number in the instruction is larger.
 * At the first level, registers that no instruction of it names have no values. A block has registers for that if one group
 * of its warps takes the smallest number, and all others the largest one.
 */
#include <stdlib.h>
#include <string.h>

#include "sass/blocks.h"
#include "sass/trace_parts.h"

#define BRANCH 0x947u
#define EXIT 0x94du
#define RETURN 0x950u
#define CALL 0x944u /* within the section */
#define CHANGES 0x9c8u /* USETMAXREG; its number is the third operand */
#define TAKES 6u       /* in bits 8 to 11 of the high word; may fail, and is repeated then */
#define GIVES 5u
#define PREDICATE (15ull << 23) /* a second guard */
#define NO_PREDICATE (7ull << 23)
#define FIELDS 4u
#define OPERANDS 4u /* registers that an operand has at most */
#define RZ 255u
#define RETRY 8u /* instructions from one that takes registers to the branch that repeats it */
#define UNIT 8u  /* registers that warps get together */
#define GROUP 128u /* threads that change their number together */
#define FILE_SIZE 65536u /* registers of a multiprocessor */
#define MOST 248u

static const char *const unclear = "its warps change their number of registers in an unknown way";
static const char *const too_few = "its warps change their number of registers, and there are too few for code that records";

static unsigned number_of(struct instruction i)
{
	return i.low >> 32 & 0xff;
}

static bool changes(struct instruction i)
{
	return (i.low & 0xfff) == CHANGES;
}

static bool takes(struct instruction i)
{
	return changes(i) && (i.high >> 8 & 15) == TAKES;
}

/* The level of an instruction that changes the number. */
static unsigned level_of(const struct levels *l, struct instruction i)
{
	unsigned level = 1;

	while (level < l->count && l->level[level].registers != number_of(i))
		level++;
	return level;
}

static const char *find_levels(const struct trace_kernel *k, struct levels *l)
{
	int64_t functions = (int64_t)k->count, target; /* which are behind the kernel */

	l->count = 1;
	l->level[0].registers = k->registers;
	for (size_t i = 0; i < k->count; i++)
		if ((k->code[i].low & 0xfff) == CALL && code_target(k->code[i], i, &target) && target < functions)
			functions = target;
	for (size_t i = 0; i < k->count; i++) {
		if (!changes(k->code[i]))
			continue;
		if ((int64_t)i >= functions)
			return unclear;
		unsigned way = k->code[i].high >> 8 & 15, level = level_of(l, k->code[i]);
		bool known = level < l->count, given = way == GIVES;
		if ((way != TAKES && !given) || level == LEVELS_MAX || number_of(k->code[i]) % UNIT ||
		    (known && l->level[level].given != given))
			return unclear;
		l->level[level].registers = number_of(k->code[i]);
		l->level[level].given = given;
		l->count += !known;
	}
	return NULL;
}

/* Adds levels to those that an instruction may have; returns whether they are new. */
static bool reach(const struct trace_kernel *k, struct levels *l, int64_t at, uint8_t levels)
{
	if (at < 0 || at >= (int64_t)k->count || !(levels & ~l->of[at]))
		return false;
	l->of[at] |= levels;
	return true;
}

static bool always(struct instruction i)
{
	return (i.low & GUARD) == UNGUARDED && (i.high & PREDICATE) == NO_PREDICATE;
}

/* One pass over the code. */
static bool spread_once(const struct trace_kernel *k, struct levels *l, const char **wrong)
{
	bool more = false;
	int64_t target;

	for (size_t i = 0; i < k->count && !*wrong; i++) {
		struct instruction code = k->code[i];
		unsigned opcode = code.low & 0xfff;
		uint8_t after = changes(code) ? (uint8_t)(1u << level_of(l, code)) : l->of[i];
		if (!l->of[i])
			continue;
		bool leaves = opcode == EXIT || opcode == RETURN;
		if (opcode == CALL && k->fixed && k->fixed[i])
			*wrong = unclear; /* it is linked to another section */
		else if (code_target(code, i, &target))
			more |= reach(k, l, target, after);
		else if (!leaves && code_goes_elsewhere(k->architecture, code))
			*wrong = unclear;
		if (!(always(code) && (leaves || opcode == BRANCH)))
			more |= reach(k, l, (int64_t)i + 1, after);
	}
	return more;
}

/* Until it is known that a warp has the registers that it takes, nothing is certain. */
static const char *leave_out(const struct trace_kernel *k, struct levels *l)
{
	int64_t target;

	for (size_t i = 0; i < k->count; i++) {
		size_t end = i;
		if (!changes(k->code[i]))
			continue;
		l->of[i] = 0;
		while (takes(k->code[i]) && !(code_branch_target(k->code[end], end, &target) && target <= (int64_t)i))
			if (++end == k->count || end > i + RETRY)
				return unclear;
		for (size_t n = i; n <= end; n++)
			l->of[n] = 0;
	}
	return NULL;
}

/* One more than the highest register that it may name. */
static unsigned names_up_to(struct instruction i)
{
	const unsigned fields[FIELDS] = {i.low >> 16 & 0xff, i.low >> 24 & 0xff, i.low >> 32 & 0xff, i.high & 0xff};
	unsigned most = 0;
	struct registers r;

	trace_registers_of(i, &r);
	for (unsigned n = 0; n < r.generals; n++)
		most = r.general[n] + 1u > most ? r.general[n] + 1u : most;
	for (unsigned f = 0; f < FIELDS && !r.known; f++)
		if (fields[f] != RZ && fields[f] + OPERANDS > most)
			most = fields[f] + OPERANDS;
	return most;
}

static void find_bases(const struct trace_kernel *k, struct levels *l)
{
	unsigned taken = 0;

	for (size_t i = 0; i < k->count; i++)
		for (unsigned level = 0; level < l->count; level++) {
			struct level *one = &l->level[level];
			unsigned most = l->of[i] >> level & 1 && !code_pinned(k->architecture, k->code[i])
						? names_up_to(k->code[i])
						: 0;
			one->base = most > one->base ? most : one->base;
		}
	taken = l->level[0].base;
	for (unsigned level = 0; level < l->count; level++) {
		struct level *one = &l->level[level];
		/* where registers are given away, others have no values */
		one->base = one->given ? one->registers : one->base;
		if (level && !one->given && one->base > taken)
			taken = one->base;
	}
	for (unsigned level = 0; level < l->count; level++) {
		struct level *one = &l->level[level];
		/* values of the other levels may still be needed */
		one->base = level && !one->given ? taken : one->base;
		one->base = (one->base + 3) & ~3u;
	}
}

const char *trace_levels_find(const struct trace_kernel *k, struct levels *l)
{
	const char *wrong = find_levels(k, l);

	if (!wrong && !(l->of = calloc(k->count, sizeof(*l->of))))
		wrong = "no host memory";
	if (wrong)
		return wrong;
	l->of[0] = 1;
	while (spread_once(k, l, &wrong))
		continue;
	wrong = wrong ? wrong : leave_out(k, l);
	if (!wrong)
		find_bases(k, l);
	return wrong;
}

static unsigned in_units(unsigned registers)
{
	return (registers + UNIT - 1) / UNIT * UNIT;
}

const char *trace_levels_plan(const struct trace_kernel *k, struct levels *l, unsigned needed, enum level_saves saves,
			      unsigned *registers)
{
	unsigned groups = k->wish.threads / GROUP, least = 0, most = 0, first = in_units(k->registers);

	if (k->wish.beats)
		return "its warps change their number of registers";
	if (!groups || k->wish.threads % GROUP)
		return too_few;
	for (unsigned level = 0; level < l->count; level++) {
		struct level *one = &l->level[level];
		unsigned *of = !level ? &first : one->given ? &least : &most;
		one->saves = level && saves >= (one->given ? LEVELS_CHANGED : LEVELS_TAKEN);
		one->now = one->saves ? one->registers : in_units(one->base + needed);
		*of = one->now > *of ? one->now : *of;
	}
	most = first > most ? first : most; /* who takes registers has no fewer */
	unsigned share = in_units(((groups - 1) * most + (least ? least : most) + groups - 1) / groups);
	first = share > first ? share : first;
	most = first > most ? first : most;
	if (most > MOST || least > first || first * k->wish.threads > FILE_SIZE)
		return too_few;
	for (unsigned level = 0; level < l->count; level++)
		if (!l->level[level].given)
			l->level[level].now = level ? most : first;
	*registers = first;
	return NULL;
}

const struct level *trace_levels_at(const struct levels *l, size_t at)
{
	for (unsigned level = 0; level < l->count; level++)
		if (l->of[at] == 1u << level)
			return &l->level[level];
	return NULL;
}

void trace_levels_raise(const struct trace_kernel *k, const struct levels *l, struct instruction *code)
{
	for (size_t i = 0; i < k->count; i++)
		if (changes(k->code[i])) {
			code[i].low &= ~(0xffull << 32);
			code[i].low |= (uint64_t)l->level[level_of(l, k->code[i])].now << 32;
		}
}
