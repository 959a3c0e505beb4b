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

enum delay_mode {
	DELAY_NONE, /* there and back */
	DELAY_FIXED,
	DELAY_RANDOM, /* for each warp another, each time */
	DELAY_CLUSTER, /* one block of each cluster is delayed */
};

struct delay {
	enum delay_mode mode;
	uint32_t ns, min_ns; /* min_ns: of DELAY_RANDOM */
	uint32_t seed;
};

#define DELAY_MAX_NS 100000000u
#define DELAY_REGISTERS 4u /* uniform ones that delays use */

/* Uniform registers and predicates that may be written, by bit. */
struct uniforms {
	uint64_t registers;
	uint8_t predicates;
};

/* What a delay may use: DELAY_REGISTERS from `base` on. */
struct spare {
	unsigned base, predicate;
};

bool code_known(unsigned architecture);
/* Its name without what follows the first '.', or NULL where the opcode is not known. */
const char *code_mnemonic(unsigned architecture, struct instruction i);
/* Why it may not be executed at another place, or NULL. */
const char *code_pinned(unsigned architecture, struct instruction i);
/* Without the marks that let operands be taken over from the instruction before. */
struct instruction code_without_reuse(struct instruction i);
/* A branch at one place in a section to another. */
struct instruction code_branch(unsigned architecture, size_t at, size_t to);
struct instruction code_nop(void);
/* Adds what an instruction may write, known or not: all have what they write at the same places. */
void code_uniforms(unsigned architecture, struct instruction i, struct uniforms *written);
bool code_spare(const struct uniforms *written, struct spare *out);
/* Writes what delays, or returns only how many instructions it takes. */
size_t code_delay(unsigned architecture, const struct delay *d, struct spare spare, struct instruction *out);

#endif
