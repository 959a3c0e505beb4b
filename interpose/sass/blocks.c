/*
 * Finds basic blocks. See blocks.h.
 *
 * A block ends behind each instruction that may change which threads run on, and before each target of one. Functions
 * begin behind such an instruction, so that calls need no targets.
 */
#include "sass/blocks.h"

#include <string.h>

#define BRANCH 0x947u
#define BRANCH_OPERANDS 0x3ff000000ull /* of BRA.DIV and the like */
#define BRANCH_BY_WARP (1ull << 27)     /* in the high word */
#define BRANCH_UNIFORM 0x547u /* BRA.U */
#define WARPSYNC 0x348u     /* of a mask */
#define WARPSYNC_ALL 0x948u /* of all threads */
#define COLLECTIVE (1u << 22) /* in the high word: WARPSYNC.COLLECTIVE, which has a target */
#define DIVERGE 0x945u    /* BSSY */
#define CALL 0x944u       /* CALL.REL */

static bool ends_block(unsigned architecture, struct instruction i)
{
	static const char *const names[] = {"EXIT", "KILL", "YIELD", "NANOSLEEP"};
	const char *mnemonic = code_mnemonic(architecture, i);

	for (size_t n = 0; mnemonic && n < sizeof(names) / sizeof(*names); n++)
		if (!strcmp(mnemonic, names[n]))
			return true;
	return code_pinned(architecture, i);
}

static int64_t relative_target(struct instruction i, size_t at)
{
	uint64_t words = (i.low >> 16 & 0xff) | i.low >> 34 << 8 | (i.high & 0x3ffff) << 38;

	return (int64_t)at + 1 + ((int64_t)(words << 8) >> 8) / 4;
}

bool code_branch_target(struct instruction i, size_t at, int64_t *target)
{
	unsigned opcode = i.low & 0xfff;

	*target = relative_target(i, at);
	return opcode == BRANCH || opcode == BRANCH_UNIFORM;
}

bool code_branch_moves(struct instruction i)
{
	return (i.low & 0xfff) == BRANCH && !(i.low & BRANCH_OPERANDS) && !(i.high & BRANCH_BY_WARP);
}

static bool is_collective(struct instruction i)
{
	unsigned opcode = i.low & 0xfff;

	return (opcode == WARPSYNC || opcode == WARPSYNC_ALL) && i.high & COLLECTIVE;
}

bool code_target(struct instruction i, size_t at, int64_t *target)
{
	unsigned opcode = i.low & 0xfff;

	if (code_branch_target(i, at, target) || opcode == CALL)
		return true;
	if (opcode == DIVERGE)
		*target = (int64_t)at + 1 + (int32_t)(i.low >> 32) / (int64_t)sizeof(i);
	return opcode == DIVERGE || is_collective(i);
}

static bool goes_anywhere(unsigned architecture, struct instruction i)
{
	const char *mnemonic = code_mnemonic(architecture, i);

	return !mnemonic || !strncmp(mnemonic, "BRX", 3) || !strncmp(mnemonic, "JM", 2);
}

bool code_goes_elsewhere(unsigned architecture, struct instruction i)
{
	const char *mnemonic = code_mnemonic(architecture, i);

	return mnemonic && (goes_anywhere(architecture, i) || !strcmp(mnemonic, "CALL") || !strcmp(mnemonic, "RET"));
}

static void each_its_own(size_t count, uint32_t *first)
{
	for (size_t i = 0; i < count; i++)
		first[i] = (uint32_t)i;
}

void code_blocks(unsigned architecture, const struct instruction *code, size_t count, uint32_t *first)
{
	int64_t target;

	memset(first, 0, count * sizeof(*first)); /* at first: whether a block begins there */
	for (size_t i = 0; i < count; i++) {
		if (architecture != 90 || goes_anywhere(architecture, code[i])) {
			each_its_own(count, first);
			return;
		}
		if (code_target(code[i], i, &target) && target >= 0 && (size_t)target < count)
			first[target] = 1;
		if (i + 1 < count && ends_block(architecture, code[i]))
			first[i + 1] = 1;
	}
	for (size_t i = 0, block = 0; i < count; i++) {
		block = first[i] ? i : block;
		first[i] = (uint32_t)block;
	}
}

void code_collective(unsigned architecture, const struct instruction *code, size_t count, bool *fixed)
{
	int64_t target;

	for (size_t i = 0; architecture >= 90 && i < count; i++)
		if (is_collective(code[i]) && code_target(code[i], i, &target))
			for (size_t k = i + 1; (int64_t)k < target && k < count; k++)
				fixed[k] = true;
}
