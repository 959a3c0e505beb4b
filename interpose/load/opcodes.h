/*
 * Categories of instructions, for the toolkit.
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_OPCODES_H
#define TT_LOAD_OPCODES_H

/* The number of the category in the words of TT_INSTRUMENT_CATEGORY. machine: 1: machine code, 0: PTX. */
unsigned tt_category(int machine, const char *opcode);

#endif
