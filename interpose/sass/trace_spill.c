/*
 * Saves registers of kernels that have no others left. See trace_code.h for the invariant.
 *
 * Recording code then uses registers of the kernel that the instruction does not need meanwhile. Their values are in local
 * memory, below all that the stack pointer R1 says to be used. That the kernel has more of it is said by trace_image.c.
 * The first instruction loads R1. A kernel that never loads the stack pointer has no stack, and may use R1 as any other
 * register. Then a uniform register has the pointer while values are stored and loaded.
 */
#include <string.h>

#include "sass/trace_parts.h"

#define STACK_POINTER 1u
#define FIRST 4u /* register that may be saved */
#define OPERANDS 4u /* registers that an operand has at most */
#define FIELDS 4u   /* that may name registers */
#define RZ 255u
#define LOAD_STACK_POINTER 0xb82u /* LDC d, c[0x0][0x28] */
#define POINTER_PLACE 0x28u       /* in constant bank 0 */
#define ADD 0x810u                /* IADD3 d, a, imm, c */
#define ADD_TWO 0x836u            /* VIADD d, a, imm */
#define BYTES 4u
#define STACK_ALIGN 16u
#define NO_SCOREBOARD 0x5e2ull /* stores have read their operands when scoreboard 5 says so */
#define SCOREBOARD 0x702ull

/* STL.64 [a], b; LDL.64 d, [a]; the same with UR as address; ULDC d, c[0x0][0x28] */
static const struct instruction encoding_store = {0x0000000000007387, 0x00100a00};
static const struct instruction encoding_load = {0x0000000000007983, 0x00100a00};
static const struct instruction encoding_store_uniform = {0x00000000ff007987, 0x08100a00};
static const struct instruction encoding_load_uniform = {0x00000000ff007983, 0x08100a00};
static const struct instruction encoding_pointer = {0x00000a0000007ab9, 0x0800};

static bool loads_pointer(struct instruction i)
{
	return (i.low & 0xfff) == LOAD_STACK_POINTER && (i.low >> 16 & 0xff) == STACK_POINTER;
}

/* Whether it may load the stack pointer into any register. */
static bool reads_pointer(struct instruction i)
{
	unsigned form = i.low >> 8 & 0xf;

	return form != 4 && form != 8 && (i.low >> 40 & 0x3fff) * 4 == POINTER_PLACE && !(i.low >> 54 & 0x1f);
}

/* Whether it may give R1 another meaning than that of the stack pointer. */
static bool spoils_pointer(const struct trace_kernel *k, struct instruction i)
{
	unsigned first, count = trace_writes(k->architecture, i, &first), opcode = i.low & 0xfff;
	const char *mnemonic = code_mnemonic(k->architecture, i);
	bool adds = (opcode == ADD || opcode == ADD_TWO) && (i.low >> 24 & 0xff) == STACK_POINTER;

	if (count && first == STACK_POINTER)
		return !loads_pointer(i) && !adds;
	return first < STACK_POINTER && count > STACK_POINTER && mnemonic && !strncmp(mnemonic, "LD", 2);
}

static bool names(struct instruction i, unsigned from, unsigned count)
{
	const unsigned fields[FIELDS] = {i.low >> 16 & 0xff, i.low >> 24 & 0xff, i.low >> 32 & 0xff, i.high & 0xff};

	for (unsigned f = 0; f < FIELDS; f++)
		if (fields[f] != RZ && fields[f] < from + count && from < fields[f] + OPERANDS)
			return true;
	return false;
}

static bool is_busy(const struct layout *l, unsigned from)
{
	for (unsigned r = from; r < from + l->saves; r++)
		if (l->busy[r / 64] >> r % 64 & 1)
			return true;
	return false;
}

/*
 * The first of registers that the instruction does not need while it is recorded; 0: there are none. What one piece records
 * are lanes and addresses, which are in the registers behind the piece's own when it begins.
 */
static unsigned find_base(const struct layout *l, unsigned registers, struct instruction i, uint32_t kinds)
{
	bool early = !(kinds & (kinds - 1)) && !(kinds & (1u << TT_TRACE_VALUES | 1u << TT_TRACE_REGISTERS));
	unsigned skipped = early ? l->pair - l->base : 0;

	for (unsigned base = registers < SPARE + l->saves ? 0 : (registers - SPARE - l->saves) & ~3u; base >= FIRST; base -= 4)
		if (!names(i, base + skipped, l->saves - skipped) && !is_busy(l, base))
			return base;
	return 0;
}

/* Those that an instruction has, if some are saved; else 0. */
static unsigned registers_at(const struct trace_kernel *k, const struct layout *l, size_t at)
{
	const struct level *level = k->levels ? trace_levels_at(k->levels, at) : NULL;

	if (!k->levels)
		return l->registers;
	return level && level->saves ? level->registers : 0;
}

/* Notes the registers of a tensor-core instruction that runs beside others. Whether they are known. */
static bool note_busy(struct instruction i, struct layout *l)
{
	struct registers r;

	trace_registers_of(i, &r);
	for (unsigned n = 0; n < r.generals; n++)
		l->busy[r.general[n] / 64] |= 1ull << r.general[n] % 64;
	return r.known;
}

const char *trace_spill_plan(const struct trace_kernel *k, const uint32_t *kinds, unsigned registers, struct layout *l)
{
	unsigned used = (l->one + 1 - l->base + 1) & ~1u;

	if (k->wish.beats)
		return "it leaves too few registers free";
	l->no_stack = !loads_pointer(k->code[0]);
	for (size_t i = 0; i < k->count; i++) {
		const char *mnemonic = code_mnemonic(k->architecture, k->code[i]);
		if (mnemonic && strstr(mnemonic, "GMMA") && !note_busy(k->code[i], l))
			return "it leaves too few registers free, and its tensor-core instructions run beside others";
		if (l->no_stack ? reads_pointer(k->code[i]) : spoils_pointer(k, k->code[i]))
			return "it leaves too few registers free, and has no stack pointer";
	}
	l->saves = used;
	if (!k->levels)
		l->registers = registers < REGISTERS_MAX && registers > k->registers ? registers : k->registers;
	for (size_t i = 0; i < k->count; i++)
		if (kinds[i] && registers_at(k, l, i) && !find_base(l, registers_at(k, l, i), k->code[i], kinds[i])) {
			l->saves = 0;
			return "it leaves too few registers free";
		}
	return NULL;
}

unsigned trace_spill_bytes(const struct layout *l)
{
	return (l->saves * BYTES + STACK_ALIGN - 1) & ~(STACK_ALIGN - 1);
}

struct layout trace_layout_at(const struct layout *l, unsigned base)
{
	struct layout moved = *l;

	moved.base = base;
	moved.pair += base - l->base;
	moved.tag += base - l->base;
	moved.saved += base - l->base;
	moved.mask += base - l->base;
	moved.one += base - l->base;
	return moved;
}

bool trace_spill_layout(const struct trace_kernel *k, const struct layout *l, size_t at, uint32_t kinds, struct layout *out)
{
	unsigned registers = l->saves ? registers_at(k, l, at) : 0;

	if (registers) /* a base is found, because trace_spill_plan made sure of it */
		*out = trace_layout_at(l, find_base(l, registers, k->code[at], kinds));
	return registers;
}

/* Adds the place of two registers in local memory. */
static struct instruction at_place(struct instruction i, unsigned n)
{
	i.low |= (uint64_t)(uint32_t)(-(int32_t)((n + 2) * BYTES)) << 40;
	return i;
}

static void put_pointer(struct writer *w)
{
	trace_put(w, trace_with(encoding_pointer, w->layout->uniform[2], 0, 0, 0), SETTLED);
}

void trace_put_spill(struct writer *w, size_t from)
{
	const struct layout *l = w->layout;
	struct instruction pointer = w->kernel->code[0];

	if (l->no_stack) {
		put_pointer(w);
	} else if (!from) { /* the kernel has not loaded it yet */
		pointer.high &= (1ull << SCHEDULE) - 1;
		trace_put(w, pointer, SCOREBOARD);
	}
	trace_put_wait(w);
	for (unsigned n = 0; n < l->saves; n += 2) {
		struct instruction store = l->no_stack ? trace_with(encoding_store_uniform, 0, 0, l->base + n, l->uniform[2])
						       : trace_with(encoding_store, 0, STACK_POINTER, l->base + n, 0);
		trace_put(w, at_place(store, n), NO_SCOREBOARD);
	}
	trace_put_wait(w);
}

void trace_put_fill(struct writer *w)
{
	const struct layout *l = w->layout;

	trace_put_wait(w); /* what was used is free */
	if (l->no_stack)
		put_pointer(w);
	for (unsigned n = 0; n < l->saves; n += 2) {
		struct instruction load = l->no_stack ? trace_with(encoding_load_uniform, l->base + n, 0, l->uniform[2], 0)
						      : trace_with(encoding_load, l->base + n, STACK_POINTER, 0, 0);
		trace_put(w, at_place(load, n), SCOREBOARD);
	}
	trace_put_wait(w);
}
