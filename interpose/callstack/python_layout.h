/*
 * The offsets of members of CPython's structures that are needed to read frames.
 *
 * Invariant: a layout is returned only for known versions, after all checks that need no frame.
 */
#ifndef TT_CALLSTACK_PYTHON_LAYOUT_H
#define TT_CALLSTACK_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#define NOWHERE UINT16_MAX

/* Offsets in bytes; NOWHERE: this version has no such member. */
struct python_layout {
	uint16_t frame;         /* of the innermost frame in a thread's state */
	uint16_t indirect;      /* or of that frame in a structure to which the state points */
	uint16_t evaluation;    /* of the innermost evaluation's record in a thread's state */
	uint16_t outer;         /* of the next record in a record */
	uint16_t code, previous, instruction, owner; /* in a frame */
	uint16_t entry;         /* in a frame: whether it is the outermost of its evaluation */
	uint16_t bytecode;      /* in a frame: index of its copy of the instructions */
	uint16_t first_line, file, name, lines, bytes; /* in a code object; bytes: the instructions */
	uint16_t copies;        /* in a code object: the copies of the instructions, in free-threaded builds */
	uint16_t type;          /* in each object */
	uint16_t text_length, text; /* in a string; text: the characters of an ASCII string */
	uint16_t bytes_length, bytes_held; /* in a bytes object */
};

/* The layout of Python 3.`minor` in this process; false: unknown. */
bool python_layout_find(int minor, struct python_layout *layout);

#endif
