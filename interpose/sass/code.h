/*
 * Machine code: instructions, and the instructions that are inserted before one.
 *
 * Invariant: an instruction is moved only if it is known to be movable.
 */
#ifndef TT_SASS_CODE_H
#define TT_SASS_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct instruction {
	uint64_t low, high;
};

/* In the low word: its predicate, and that of one that has none. */
#define GUARD 0xf000ull
#define UNGUARDED 0x7000ull

enum delay_mode {
	DELAY_NONE, /* an empty detour */
	DELAY_FIXED,
	DELAY_RANDOM, /* a random time, for each warp and execution */
	DELAY_CLUSTER,       /* as random, in one block of each cluster */
	DELAY_CLUSTER_FIXED, /* as fixed, there */
};

struct delay {
	enum delay_mode mode;
	uint32_t ns, min_ns; /* min_ns: for random delays */
	uint32_t seed;
	uint32_t block; /* the rank of the delayed block in its cluster, counted from 1; 0: chosen by the seed */
};

static inline bool code_needs_clusters(enum delay_mode mode)
{
	return mode >= DELAY_CLUSTER;
}

#define DELAY_MAX_NS 100000000u
#define DELAY_REGISTERS 4u /* uniform registers that a delay uses */

/* Uniform registers and predicates that code may write, as bits. */
struct uniforms {
	uint64_t registers;
	uint8_t predicates;
};

/* Registers for a delay: DELAY_REGISTERS from `base` on. */
struct spare {
	unsigned base, predicate;
};

bool code_known(unsigned architecture);
/* Its name up to the first '.', or NULL: unknown opcode. */
const char *code_mnemonic(unsigned architecture, struct instruction i);
/* Why it may not run at another position, or NULL. */
const char *code_pinned(unsigned architecture, struct instruction i);
/* Without the flags that reuse operands of the instruction before. */
struct instruction code_without_reuse(struct instruction i);
/* A branch from one position in a section to another. */
struct instruction code_branch(unsigned architecture, size_t at, size_t to);
/* The branch i at a position with another target. */
struct instruction code_retarget(unsigned architecture, struct instruction i, size_t at, size_t to);
struct instruction code_nop(void);
/*
 * Adds what an instruction may write. Works for unknown ones too, because all have their destinations at the same
 * bits.
 */
void code_uniforms(unsigned architecture, struct instruction i, struct uniforms *written);
/* Whether it writes uniform registers, or runs on the uniform datapath. */
bool code_is_uniform(unsigned architecture, struct instruction i);
/* Whether it has a guard that is a uniform predicate. */
bool code_has_uniform_guard(unsigned architecture, struct instruction i);
bool code_spare(const struct uniforms *written, struct spare *out);
/* Writes the delay; without `out`, only returns its number of instructions. */
size_t code_delay(unsigned architecture, const struct delay *d, struct spare spare, struct instruction *out);

#endif
