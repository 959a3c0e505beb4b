/*
 * What the files of trace_code.h share.
 *
 * trace_choose.c chooses instructions, trace_plan.c registers, trace_code.c puts them together. trace_pieces.c writes the code
 * that nvcc compiled, and trace_beats.c keeps heartbeats.
 */
#ifndef TT_SASS_TRACE_PARTS_H
#define TT_SASS_TRACE_PARTS_H

#include "format.h"
#include "sass/trace_code.h"

#define SASS_BYTES sizeof(struct instruction)
#define SCHEDULE 41 /* bit of the high word, see code.c */
#define SETTLED 0x7edull
#define QUICK 0x7e5ull   /* stalls for the latency of arithmetic */
#define AT_ONCE 0x7e2ull /* where nothing needs the result soon */
/* A store that is not waited for keeps its operands until scoreboard 5 says that it has read them. */
#define STORES 0x5e2ull
#define AFTER_STORE (1ull << (11 + 5))
#define BRANCHES 0x7f5ull
#define WAITS_FOR_ALL (0x3full << 11)
#define BARRIERS 16u
#define REGISTERS_MAX 255u
#define SPARE 2u /* registers that kernels of sm_90 have besides those that they name */

/* What an instruction of a piece reads in place of a special register, in the order of build_trace_code.py. */
enum source {
	SOURCE_NONE,
	SOURCE_INSTRUCTION,
	SOURCE_MASK,
	SOURCE_ADDRESS_LOW,
	SOURCE_ADDRESS_HIGH,
	SOURCE_ZERO,
	SOURCE_BYTES,
	SOURCE_TAG,
	SOURCE_OUTPUT, /* it writes a register that is kept */
};

/* Pieces by enum tt_trace_kind. Others are behind them. */
#define VALUES_END (TT_TRACE_END + 0)
#define BEAT_ENTER (TT_TRACE_END + 1)
#define BEAT_ENTER_FLAT (TT_TRACE_END + 2)

struct template
{
	const struct piece *pieces;
	size_t count;
	unsigned registers, uniforms, barriers; /* one more than the highest that is used */
};

#define LANES 32u
#define OF_PIECES 4u /* the lowest uniform register that pieces use */
#define UNIFORMS_MAX 6u
#define COUNTS_IN_REGISTERS (4u * LANES)

/* How executions are counted, if not by a piece. */
struct counting {
	bool quickly; /* without a piece */
	uint32_t stride, copies; /* as in traced_code */
	unsigned predicate;      /* that is free */
	unsigned part, any;      /* uniform ones */
	unsigned pairs, first;   /* of registers with counts of lanes, and the first one */
	unsigned bit;            /* the register with 1 << lane */
};

/* Where inserted code has its registers. */
struct layout {
	unsigned base, pair, tag, saved, mask, one, registers; /* tag is behind the pair */
	unsigned saves; /* registers from base on are the kernel's, which are saved; 0: they are above its own */
	uint64_t busy[4]; /* registers that other instructions may use meanwhile, as bits */
	bool no_stack;  /* the kernel has none, and no stack pointer */
	uint8_t uniform[UNIFORMS_MAX]; /* what pieces use: two for the descriptor of memory, and others */
	unsigned barrier[BARRIERS];
	/* kept while the kernel runs: the heartbeat's address, in two registers, and its state; and how many barriers the
	 * warp has come to, where that tells what they wait for, else 0 */
	unsigned beat, state, barriers;
	struct counting counting;
	/* kept as well: two uniform registers, one, and a uniform predicate */
	unsigned descriptor, passes, due;
};

/* A number, or the register that has it. */
struct input {
	bool number;
	uint32_t value;
};

struct inputs {
	struct input of[SOURCE_OUTPUT];
	unsigned output, outputs; /* the first register that is kept, and how many there are */
};

struct writer {
	const struct trace_kernel *kernel;
	const struct layout *layout;
	struct instruction *out;
	size_t count;
	size_t parts[COUNTS_IN_REGISTERS]; /* by slot: a branch that still needs its target; 0: none */
};

#define ACCESSES (1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_VALUES)

/* ---- trace_choose.c ---- */

/* Fills in which kinds of recording code each instruction gets; kinds[k->count] and more is room for its own use. */
void trace_choose(const struct trace_kernel *k, struct trace_point *points, uint32_t *kinds, struct traced_code *out);

/* ---- trace_plan.c ---- */

#define NO_UNIFORM 63u

/* Takes a uniform register, or two from an even one on; NO_UNIFORM: none is free. */
unsigned trace_take_uniforms(uint64_t *used, unsigned count);
/* NULL, or why the kernel has not what the code of these kinds, by instruction, needs. */
const char *trace_plan(const struct trace_kernel *k, const uint32_t *kinds, uint32_t slots, struct layout *l);

/* ---- trace_pieces.c ---- */

/* NULL: there is none. */
const struct template *trace_template(unsigned which);
/* Adds operands: a destination, two sources and a third. */
struct instruction trace_with(struct instruction i, unsigned to, unsigned a, uint32_t b, unsigned c);
void trace_put(struct writer *w, struct instruction i, uint64_t schedule);
/* A branch to an instruction. */
void trace_put_branch(struct writer *w, size_t to);
void trace_put_number(struct writer *w, unsigned to, uint32_t number);
/* Waits for all scoreboards. */
void trace_put_wait(struct writer *w);
/* The mask of the lanes for which this guard of an instruction holds. */
void trace_put_mask(struct writer *w, struct instruction guarded);
void trace_put_save(struct writer *w);
void trace_put_restore(struct writer *w);
/* One without branches, up to its end. */
void trace_put_straight(struct writer *w, unsigned which, const struct inputs *in);
/* The piece, which all lanes leave together. */
void trace_put_piece(struct writer *w, unsigned which, const struct inputs *in);

struct memory;
/* How it addresses memory; NULL: not at all, or in an unknown form. waits: operations on mbarriers count as well. */
const struct memory *trace_memory(struct instruction i, bool waits);
/* Puts the addresses of the lanes into the pair of registers. */
void trace_put_address(struct writer *w, struct instruction i, const struct memory *m);
/* Whether the registers of its address are these general ones. */
bool trace_address_uses(struct instruction i, const struct memory *m, unsigned from, unsigned count);

/* ---- trace_spill.c ---- */

#define SPILL_COST(l) ((l)->saves + 7)

/* Has code use registers that are saved, of `registers` for each thread or those of levels. NULL, or why it can't. */
const char *trace_spill_plan(const struct trace_kernel *k, const uint32_t *kinds, unsigned registers, struct layout *l);
unsigned trace_spill_bytes(const struct layout *l);
/* Whether an instruction has some saved, and the layout with those of which it needs none while these kinds are recorded. */
bool trace_spill_layout(const struct trace_kernel *k, const struct layout *l, size_t at, uint32_t kinds, struct layout *out);
/* Saves them before this instruction, and brings them back. */
void trace_put_spill(struct writer *w, size_t from);
void trace_put_fill(struct writer *w);

/* The same with its registers from `base` on. */
struct layout trace_layout_at(const struct layout *l, unsigned base);

/* ---- trace_levels.c ---- */

#define LEVELS_MAX 8u

/* Numbers of registers that warps of a kernel may have. */
struct levels {
	unsigned count;
	struct level {
		unsigned registers, now; /* of the kernel, and with recording code */
		unsigned base;           /* from this on, its registers have no values */
		bool given;              /* warps get there by giving registers away */
		bool saves;              /* it has no more than before, so recording code saves some */
	} level[LEVELS_MAX];
	uint8_t *of; /* by instruction: its levels, as bits; 0: unknown */
};

/* The first level is that of a launch. NULL, or why they are unknown. `of` is freed by who calls it. */
const char *trace_levels_find(const struct trace_kernel *k, struct levels *l);
/* The levels that get no more registers. */
enum level_saves { NO_LEVELS, LEVELS_TAKEN, LEVELS_CHANGED };
/* Gives the other levels so many registers above their base, and says how many a launch needs. NULL, or why it can't. */
const char *trace_levels_plan(const struct trace_kernel *k, struct levels *l, unsigned needed, enum level_saves saves,
			      unsigned *registers);
/* The only level that an instruction has; NULL: it has none, or several. */
const struct level *trace_levels_at(const struct levels *l, size_t at);
/* Has warps ask for the new numbers. */
void trace_levels_raise(const struct trace_kernel *k, const struct levels *l, struct instruction *code);

/* ---- trace_values.c ---- */

#define VALUES_COST 16u

/* Whether it is known which registers have the values of an access. */
bool trace_has_values(const struct trace_kernel *k, struct instruction i);
/*
 * Records them, with the addresses that are in the pair. Returns where the instruction is now, if it brings them; else 0, and
 * it must follow.
 */
size_t trace_put_values(struct writer *w, struct instruction i, uint32_t number);

/* ---- trace_registers.c ---- */

#define REGISTERS_COST 16u
#define COPY_COST 40u

/* Those of the operands of an instruction, each once, in the order of its text. */
struct registers {
	bool known;
	unsigned generals, uniforms; /* how many */
	uint8_t general[256], uniform[64];
};

void trace_registers_of(struct instruction i, struct registers *r);
/* As trace_writes, but only as many as the instruction names. */
void trace_written(unsigned architecture, struct instruction i, unsigned *first, unsigned *count);
void trace_put_registers(struct writer *w, struct instruction i, uint32_t number);
size_t trace_registers_room(struct instruction i);
/* Whether it is a bulk copy, or a prefetch by a tensor map. */
bool trace_copies(struct instruction i);
void trace_put_copy(struct writer *w, struct instruction i, uint32_t number);
size_t trace_copy_room(void);

/* ---- trace_counts.c ---- */

#define COUNT_REGISTERS 4u
#define COUNT_UNIFORMS 4u
#define COUNT_COST 40u
#define LAST_COUNTS_COST 24u

/* Copies of the counts, a power of two, and how many counts each has room for. */
void trace_count_layout(uint32_t slots, uint32_t *stride, uint32_t *copies);
/* Finds predicates, and how many pairs of registers, up to `most`, a kernel can have besides its own and those of other code. */
void trace_count_plan(const struct trace_kernel *k, uint32_t slots, unsigned registers, unsigned most, struct counting *c);
void trace_put_count(struct writer *w, struct instruction i, uint32_t slot);
/* What that branches to, if it does: it is not beside it, so that what mostly runs is close together. */
void trace_put_count_of_part(struct writer *w, struct instruction i, uint32_t slot);
/* Where the kernel begins, and where lanes exit. */
void trace_put_first_counts(struct writer *w);
void trace_put_last_counts(struct writer *w);

/* ---- trace_loops.c ---- */

/* Whether the loop from `begin` to the branch back at `end` ends, whatever memory has. */
bool trace_loop_ends(const struct trace_kernel *k, size_t begin, size_t end);

/* ---- trace_beats.c ---- */

/* What of an instruction changes with heartbeats. */
enum beat_point { BEAT_NONE, BEAT_AT_EXIT, BEAT_AT_BARRIER, BEAT_AT_LOOP };

/* The general registers that it may write: the first and how many. Many are assumed where that is not known. */
unsigned trace_writes(unsigned architecture, struct instruction i, unsigned *first);
enum beat_point trace_beat_point(const struct trace_kernel *k, size_t at);
/* The piece that begins a kernel with heartbeats. */
unsigned trace_enter_piece(const struct trace_kernel *k);
/*
 * Whether all its barriers are of the whole block and have one number, and no loop has heartbeats, so that counts tell
 * which warps wait.
 */
bool trace_counts_barriers(const struct trace_kernel *k);
/* Finds what is kept while the kernel runs, for counts as well, and adds it to `used`. NULL, or why there is nothing. */
const char *trace_kept_plan(const struct trace_kernel *k, struct layout *l, uint64_t *used);
/* How many instructions it adds there at most. */
size_t trace_beat_room(const struct trace_kernel *k);
void trace_put_enter(struct writer *w);
/* Before lanes exit. */
void trace_put_exit(struct writer *w);
/* In place of the instruction. Returns where it is now. */
size_t trace_put_barrier(struct writer *w, struct instruction i, uint32_t number);
/* The branch back at `at`, and what it branches to instead. */
void trace_put_pass(struct writer *w, size_t at);

#endif
