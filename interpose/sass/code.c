/*
 * Decodes and encodes machine code. See code.h for the invariant.
 *
 * An instruction has its opcode in the low 12 bits, a guard in the next four, and up to three
 * operands from bits 16, 24, 32 (or an immediate there) and 64 on. The schedule begins at bit 105:
 * four bits for the cycles until the next instruction, one to stay with this warp, the scoreboards
 * that it sets when its result is ready and when its operands were read (7: none), six bits of
 * scoreboards to wait for, and three that keep operands for the next instruction.
 *
 * A delay is a loop on the clock. It does not sleep, because NANOSLEEP lets other threads of the
 * warp run on, even past where they should wait for sleeping ones. Code is compiled for threads
 * that stay together, and for uniform registers, of which a warp has one set, that keep their
 * values. So all threads of a warp that come together are delayed by the same time. A delay uses
 * only uniform registers and a predicate that the kernel never uses.
 */
#include "sass/code.h"

#include <string.h>

#include "sass/encodings.h"
#include "util/vector.h"

#define SCHEDULE 41 /* bit of the high word */
#define REUSE ((uint64_t)15 << 58)
#define SCOREBOARD 5u
#define EXCHANGE 0x5b2u /* SYNCS.EXCH */
/* After arithmetic: the delay that nvcc uses before a dependent branch, longer than any fixed latency. */
#define SETTLED 0x7edu
#define BRANCHES 0x7f5u
#define SETS_SCOREBOARD (2u | 1u << 4 | SCOREBOARD << 5 | 7u << 8)
#define AFTER_SCOREBOARD (1u << (11 + SCOREBOARD))
#define UNIFORM_REGISTERS 63u
#define UNIFORM_PREDICATES 7u
#define MOST_WRITTEN 8u /* uniform registers that one instruction writes */

static const struct opcode {
	uint16_t opcode, architectures; /* bits of enum generation */
	bool pinned;
	char mnemonic[16];
} opcodes[] = {
#define OPCODE(opcode, mnemonic, architectures, pinned) {opcode, architectures, pinned, mnemonic},
#include "sass/opcodes.h"
#undef OPCODE
};

/* Highest clock rates: at a lower rate a delay is longer. */
static const struct {
	uint8_t architecture;
	uint16_t mhz;
} known[] = {{80, 1410}, {86, 1860}, {89, 2550}, {90, 1980}, {100, 1965}, {120, 2620}};

static unsigned architecture_bit(unsigned architecture)
{
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].architecture == architecture)
			return 1u << i;
	return 0;
}

static uint32_t cycles(unsigned architecture, uint32_t ns)
{
	uint64_t mhz = 0;

	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].architecture == architecture)
			mhz = known[i].mhz;
	return (uint32_t)(ns * mhz / 1000);
}

bool code_known(unsigned architecture)
{
	return architecture_bit(architecture);
}

static const struct opcode *opcode_find(unsigned architecture, struct instruction i)
{
	const size_t count = sizeof(opcodes) / sizeof(opcodes[0]);
	uint16_t wanted = i.low & 0xfff;

	for (size_t at = lower_bound(count, o, opcodes[o].opcode < wanted); at < count && opcodes[at].opcode == wanted; at++)
		if (opcodes[at].architectures & architecture_bit(architecture))
			return &opcodes[at];
	return NULL;
}

const char *code_mnemonic(unsigned architecture, struct instruction i)
{
	const struct opcode *o = opcode_find(architecture, i);

	return o ? o->mnemonic : NULL;
}

const char *code_pinned(unsigned architecture, struct instruction i)
{
	const struct opcode *o = opcode_find(architecture, i);

	if (!o)
		return "unknown opcode";
	return o->pinned ? "control flow" : NULL;
}

struct instruction code_without_reuse(struct instruction i)
{
	i.high &= ~REUSE;
	return i;
}

static struct instruction scheduled(struct instruction i, uint64_t schedule)
{
	i.high |= schedule << SCHEDULE;
	return i;
}

/* Positions are counted in instructions. */
static struct instruction branch(unsigned architecture, struct instruction i, size_t at, size_t to)
{
	int64_t words = ((int64_t)to - (int64_t)(at + 1)) * 4;

	if (architecture >= 90) {
		i.low |= ((uint64_t)words & 0xff) << 16;
		words >>= 8;
	}
	i.low |= (uint64_t)words << 34;
	i.high |= (uint64_t)(words >> 30) & 0x3ffff;
	return i;
}

struct instruction code_branch(unsigned architecture, size_t at, size_t to)
{
	return scheduled(branch(architecture, encoding_branch, at / 16, to / 16), BRANCHES);
}

struct instruction code_retarget(unsigned architecture, struct instruction i, size_t at, size_t to)
{
	uint64_t words = (uint64_t)0x3fffffff << 34 | (architecture >= 90 ? (uint64_t)0xff << 16 : 0);

	i.low &= ~words;
	i.high &= ~(uint64_t)0x3ffff;
	return branch(architecture, i, at / 16, to / 16);
}

struct instruction code_nop(void)
{
	return encoding_nop;
}

/* Instructions of the uniform datapath have their own names, except those that move values into it. */
static bool writes_uniforms(const char *mnemonic)
{
	static const char *const others[] = {"S2UR", "CS2UR", "R2UR", "REDUX", "CREDUX", "VOTEU", "LDCU", "ELECT"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(mnemonic, others[i]))
			return true;
	return *mnemonic == 'U';
}

bool code_is_uniform(unsigned architecture, struct instruction i)
{
	const char *mnemonic = code_mnemonic(architecture, i);

	return mnemonic && writes_uniforms(mnemonic);
}

bool code_has_uniform_guard(unsigned architecture, struct instruction i)
{
	static const char *const others[] = {"R2UR", "REDUX", "CREDUX", "VOTEU", "ELECT"}; /* read what lanes have */
	const char *mnemonic = code_mnemonic(architecture, i);

	if (!mnemonic || (i.low & GUARD) == UNGUARDED)
		return false;
	if ((i.low & 0xfff) == EXCHANGE)
		return true;
	if (!writes_uniforms(mnemonic))
		return false;
	for (size_t n = 0; n < sizeof(others) / sizeof(others[0]); n++)
		if (!strcmp(mnemonic, others[n]))
			return false;
	return true;
}

void code_uniforms(unsigned architecture, struct instruction i, struct uniforms *written)
{
	const char *mnemonic = code_mnemonic(architecture, i);
	unsigned first = i.low >> 16 & (architecture < 100 ? 0x3f : 0xff);

	if (mnemonic && !writes_uniforms(mnemonic))
		return;
	bool only_predicates = mnemonic && (!strcmp(mnemonic, "UISETP") || !strcmp(mnemonic, "UPLOP3"));
	for (unsigned r = only_predicates ? UNIFORM_REGISTERS : first; r < first + MOST_WRITTEN && r < UNIFORM_REGISTERS; r++)
		written->registers |= 1ull << r;
	written->predicates |= (uint8_t)(1u << (i.high >> 17 & 7) | 1u << (i.high >> 20 & 7));
}

bool code_spare(const struct uniforms *written, struct spare *out)
{
	uint64_t wanted = (1u << DELAY_REGISTERS) - 1;
	unsigned base = UNIFORM_REGISTERS / DELAY_REGISTERS * DELAY_REGISTERS, predicate = UNIFORM_PREDICATES;

	/* starts from the highest, because compilers use the lowest first */
	do
		base -= DELAY_REGISTERS;
	while (base && written->registers & wanted << base);
	do
		predicate--;
	while (predicate && written->predicates & 1u << predicate);
	*out = (struct spare){base, predicate};
	return !(written->registers & wanted << base) && !(written->predicates & 1u << predicate);
}

/* The generated code: operands are uniform registers, or an immediate as the second operand. */
struct writer {
	struct instruction *out;
	size_t count;
	unsigned architecture;
};

/* Register 255 means none; with fewer registers it has another number. */
static struct instruction with_none(struct writer *w, struct instruction i)
{
	uint64_t upper = 0xc0;

	if (w->architecture < 100 && (i.high & 0xff) == 0xff)
		i.high &= ~upper;
	if (w->architecture < 100 && (i.low >> 24 & 0xff) == 0xff)
		i.low &= ~(upper << 24);
	return i;
}

static void put_as_is(struct writer *w, struct instruction i, unsigned schedule)
{
	if (w->out)
		w->out[w->count] = scheduled(i, schedule);
	w->count++;
}

static void put(struct writer *w, struct instruction i, unsigned schedule)
{
	put_as_is(w, with_none(w, i), schedule);
}

static struct instruction with(struct instruction i, unsigned to, unsigned a, uint32_t b, unsigned c)
{
	i.low |= (uint64_t)to << 16 | (uint64_t)a << 24 | (uint64_t)b << 32;
	i.high |= c;
	return i;
}

/* Puts the cycles to wait into the register: a hash of warp, clock and seed. Uses a register pair. */
static void put_random(struct writer *w, const struct delay *d, unsigned pair, unsigned b, unsigned to)
{
	uint32_t least = cycles(w->architecture, d->min_ns), range = cycles(w->architecture, d->ns) - least + 1;

	put(w, with(encoding_warp, pair, 0, 0, 0), SETS_SCOREBOARD);
	put(w, with(encoding_clock, b, 0, 0, 0), SETS_SCOREBOARD);
	put(w, with(encoding_multiply, pair, pair, 0x9e3779b9u, 0), SETTLED | AFTER_SCOREBOARD);
	put(w, with(encoding_xor3, b, pair, d->seed, b), SETTLED);
	put(w, with(encoding_multiply, b, b, 0x7feb352du, 0), SETTLED);
	put(w, with(encoding_shift, pair, 0, 15, b), SETTLED);
	put(w, with(encoding_xor, b, pair, b, 0), SETTLED);
	put(w, with(encoding_multiply, b, b, 0x846ca68bu, 0), SETTLED);
	put(w, with(encoding_multiply_wide, pair, b, range, 0), SETTLED);
	put(w, with(encoding_add, to, pair + 1, least, 0), SETTLED);
}

static void put_fixed(struct writer *w, const struct delay *d, unsigned to)
{
	put(w, with(encoding_move, to, 0, cycles(w->architecture, d->ns), 0), SETTLED);
}

/* Puts a rank in the cluster, chosen by the seed, into the second register of the pair. */
static void put_chosen_rank(struct writer *w, const struct delay *d, unsigned pair, unsigned b)
{
	if (w->architecture >= 100) {
		put(w, with(encoding_cluster_shape, b, 0, 0, 0), SETS_SCOREBOARD);
		put(w, with(encoding_multiply, b, b, 0xffffff60u, 0), SETTLED | AFTER_SCOREBOARD);
		put(w, with(encoding_cluster_size_100, b, b, 0, 0), SETS_SCOREBOARD);
	} else {
		put(w, with(encoding_cluster_size_90, b, 0, 0, 0), SETTLED);
	}
	put(w, with(encoding_multiply_wide, pair, b, d->seed, 0), SETTLED | AFTER_SCOREBOARD);
}

/* Sets the register to 0 unless the block is the delayed one of its cluster. */
static void put_only_in_block(struct writer *w, const struct delay *d, unsigned pair, unsigned b, unsigned to)
{
	if (!d->block)
		put_chosen_rank(w, d, pair, b);
	put(w, with(encoding_rank, b, 0, 0, 0), SETS_SCOREBOARD);
	if (d->block)
		put(w, with(encoding_xor3, b, b, d->block - 1, 255), SETTLED | AFTER_SCOREBOARD);
	else
		put(w, with(encoding_xor, b, b, pair + 1, 0), SETTLED | AFTER_SCOREBOARD);
	put(w, with(encoding_add, b, b, UINT32_MAX, 0), SETTLED);
	put(w, with(encoding_shift_signed, b, 0, 31, b), SETTLED);
	put(w, with(encoding_and, to, to, b, 0), SETTLED);
}

static struct instruction with_predicate(struct instruction i, unsigned predicate)
{
	i.high |= (uint64_t)predicate << 17;
	return i;
}

/* Waits until the number of cycles in the register has passed. */
static void put_wait(struct writer *w, unsigned began, unsigned now, unsigned limit, unsigned predicate)
{
	put(w, with(encoding_clock, began, 0, 0, 0), SETS_SCOREBOARD);
	size_t loop = w->count;
	put(w, with(encoding_clock, now, 0, 0, 0), SETS_SCOREBOARD | AFTER_SCOREBOARD);
	put(w, with(encoding_less, now, began, now, 0), SETTLED | AFTER_SCOREBOARD);
	put(w, with_predicate(with(encoding_if_below, 0, now, limit, 0), predicate), SETTLED);
	put(w, encoding_nop, SETTLED);
	put_as_is(w, branch(w->architecture, with(encoding_branch_if, 0, predicate, 0, 0), w->count, loop), BRANCHES);
}

size_t code_delay(unsigned architecture, const struct delay *d, struct spare spare, struct instruction *out)
{
	struct writer w = {.out = out, .architecture = architecture};
	unsigned pair = spare.base, b = pair + 2, limit = pair + 3;

	if (d->mode == DELAY_FIXED || d->mode == DELAY_CLUSTER_FIXED)
		put_fixed(&w, d, limit);
	else if (d->mode != DELAY_NONE)
		put_random(&w, d, pair, b, limit);
	if (code_needs_clusters(d->mode))
		put_only_in_block(&w, d, pair, b, limit);
	if (d->mode != DELAY_NONE)
		put_wait(&w, pair, b, limit, spare.predicate);
	return w.count;
}
