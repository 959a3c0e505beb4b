/*
 * Categories of instructions, for the toolkit. See opcodes.h.
 */
#include "load/opcodes.h"

#include "options/categories.h"
#include "util/compiler.h"

EXPORT unsigned tt_category(int machine, const char *opcode)
{
	return category_of(machine ? LANGUAGE_SASS : LANGUAGE_PTX, opcode);
}
