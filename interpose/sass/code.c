/*
 * Machine code. See code.h for the invariant.
 *
 * An instruction has its opcode in the low 12 bits, a guard in the next four, up to three operands
 * from bits 16, 24, 32 (here an immediate as well) and 64 on. From bit 105 on it says how it is
 * scheduled: four bits of cycles until the next, one to stay with this warp, the scoreboards that it
 * sets when its result is there and when its operands are read (7: none), six bits of scoreboards to
 * wait for, and three that keep an operand for the next instruction.
 */
#include "code.h"

#include <stdlib.h>
#include <string.h>

#include "encodings.h"

#define SCHEDULE 41 /* of the high word */
#define REUSE ((uint64_t)15 << 58)
#define SCOREBOARD 5u
/* After arithmetic: as long as nvcc waits before a dependent branch, more than any fixed latency. */
#define SETTLED 0x7edu
#define BRANCHES 0x7f5u
#define SETS_SCOREBOARD (2u | 1u << 4 | SCOREBOARD << 5 | 7u << 8)
#define AFTER_SCOREBOARD (1u << (11 + SCOREBOARD))
#define SLEEP_MAX_NS 1000000u /* of one instruction */

static const struct opcode {
	uint16_t opcode, architectures; /* bits: enum generation */
	bool pinned;
	char mnemonic[14];
} opcodes[] = {
#define OPCODE(opcode, mnemonic, architectures, pinned) {opcode, architectures, pinned, mnemonic},
#include "opcodes.h"
#undef OPCODE
};

static unsigned architecture_bit(unsigned architecture)
{
	static const uint8_t known[] = {80, 86, 89, 90, 100, 120};

	for (unsigned i = 0; i < sizeof(known); i++)
		if (known[i] == architecture)
			return 1u << i;
	return 0;
}

bool code_known(unsigned architecture)
{
	return architecture_bit(architecture);
}

static const struct opcode *opcode_find(unsigned architecture, struct instruction i)
{
	size_t low = 0, high = sizeof(opcodes) / sizeof(opcodes[0]);
	uint16_t wanted = i.low & 0xfff;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (opcodes[middle].opcode < wanted)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < sizeof(opcodes) / sizeof(opcodes[0]) && opcodes[low].opcode == wanted; low++)
		if (opcodes[low].architectures & architecture_bit(architecture))
			return &opcodes[low];
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
		return "an opcode that is not known";
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

struct instruction code_branch(unsigned architecture, size_t at, size_t to)
{
	int64_t words = ((int64_t)to - (int64_t)(at + 16)) / 4;
	struct instruction i = scheduled(encoding_branch, BRANCHES);

	if (architecture >= 90) {
		i.low |= ((uint64_t)words & 0xff) << 16;
		words >>= 8;
	}
	i.low |= (uint64_t)words << 34;
	i.high |= (uint64_t)(words >> 30) & 0x3ffff;
	return i;
}

struct instruction code_nop(void)
{
	return encoding_nop;
}

/* What is put together: operands are registers, or an immediate in the second's place. */
struct writer {
	struct instruction *out;
	size_t count;
};

static void put(struct writer *w, struct instruction i, unsigned schedule)
{
	if (w->out)
		w->out[w->count] = scheduled(i, schedule);
	w->count++;
}

static struct instruction with(struct instruction i, unsigned to, unsigned a, uint32_t b, unsigned c)
{
	i.low |= (uint64_t)to << 16 | (uint64_t)a << 24 | (uint64_t)b << 32;
	i.high |= c;
	return i;
}

static void put_sleeps(struct writer *w, struct instruction sleep, uint32_t times)
{
	while (times--)
		put(w, sleep, BRANCHES);
}

/* The register has a number for each thread: of its name, the clock and the seed. */
static void put_random(struct writer *w, const struct delay *d, unsigned a, unsigned b)
{
	uint32_t sleeps = d->ns / SLEEP_MAX_NS + 1, least = d->min_ns / sleeps;
	uint32_t range = d->ns / sleeps - least + 1;

	put(w, with(encoding_thread, a, 0, 0, 0), SETS_SCOREBOARD);
	put(w, with(encoding_clock, b, 0, 0, 0), SETTLED);
	put(w, with(encoding_multiply, a, a, 0x9e3779b9u, 0), SETTLED | AFTER_SCOREBOARD);
	put(w, with(encoding_xor3, b, a, d->seed, b), SETTLED);
	put(w, with(encoding_multiply, b, b, 0x7feb352du, 0), SETTLED);
	put(w, with(encoding_shift, a, 0, 15, b), SETTLED);
	put(w, with(encoding_xor, b, a, b, 0), SETTLED);
	put(w, with(encoding_multiply, b, b, 0x846ca68bu, 0), SETTLED);
	put(w, with(encoding_multiply_high, b, b, range, 0), SETTLED);
	put(w, with(encoding_add, b, b, least, 0), SETTLED);
	put_sleeps(w, with(encoding_sleep_register, 0, 0, b, 0), sleeps);
}

/* The delay where the block's rank in its cluster is the one that the seed chooses among them, else 0. */
static void put_cluster(struct writer *w, unsigned architecture, const struct delay *d, unsigned a, unsigned b)
{
	uint32_t sleeps = d->ns / SLEEP_MAX_NS + 1;

	if (architecture >= 100) {
		put(w, with(encoding_cluster_shape, b, 0, 0, 0), SETTLED);
		put(w, with(encoding_multiply, b, b, 0xffffff60u, 0), SETTLED);
		put(w, with(encoding_cluster_size_100, b, b, 0, 0), SETS_SCOREBOARD);
	} else {
		put(w, with(encoding_cluster_size_90, b, 0, 0, 0), SETS_SCOREBOARD);
	}
	put(w, with(encoding_rank, a, 0, 0, 0), SETS_SCOREBOARD);
	put(w, with(encoding_multiply_high, b, b, d->seed, 0), SETTLED | AFTER_SCOREBOARD);
	put(w, with(encoding_xor, b, a, b, 0), SETTLED);
	put(w, with(encoding_add, b, b, UINT32_MAX, 0), SETTLED);
	put(w, with(encoding_shift_signed, b, 0, 31, b), SETTLED);
	put(w, with(encoding_and, b, b, d->ns / sleeps, 0), SETTLED);
	put_sleeps(w, with(encoding_sleep_register, 0, 0, b, 0), sleeps);
}

size_t code_delay(unsigned architecture, const struct delay *d, unsigned registers, struct instruction *out)
{
	struct writer w = {.out = out};
	uint32_t sleeps = d->ns / SLEEP_MAX_NS + 1;

	if (d->mode == DELAY_FIXED)
		put_sleeps(&w, with(encoding_sleep, 0, 0, d->ns / sleeps, 0), sleeps);
	else if (d->mode == DELAY_RANDOM)
		put_random(&w, d, registers, registers + 1);
	else if (d->mode == DELAY_CLUSTER)
		put_cluster(&w, architecture, d, registers, registers + 1);
	return w.count;
}
