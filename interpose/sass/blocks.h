/*
 * How machine code flows. Basic blocks are instructions that a warp executes one after the other, with the same threads.
 */
#ifndef TT_SASS_BLOCKS_H
#define TT_SASS_BLOCKS_H

#include "sass/code.h"

/*
 * Sets first[i] to the number of the first instruction of the block that has instruction i. Where branches may go
 * anywhere, or the architecture is unknown, each instruction is a block.
 */
void code_blocks(unsigned architecture, const struct instruction *code, size_t count, uint32_t *first);

/* Whether it is a branch to a place in its section; then sets the number of that instruction, which may be outside. */
bool code_branch_target(struct instruction i, size_t at, int64_t *target);

/* Whether that branch may be at another place, with the same target. */
bool code_branch_moves(struct instruction i);

/* As code_branch_target, for all instructions with a target, such as BSSY. */
bool code_target(struct instruction i, size_t at, int64_t *target);

/* Whether it is known to continue at other places than these and the next instruction. */
bool code_goes_elsewhere(unsigned architecture, struct instruction i);

/*
 * Marks the instructions that all threads of a warp execute together after WARPSYNC.COLLECTIVE: a branch among them is
 * illegal.
 */
void code_collective(unsigned architecture, const struct instruction *code, size_t count, bool *fixed);

#endif
