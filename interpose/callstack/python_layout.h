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

/* Offsets in bytes; NOWHERE where this version has no such member. */
struct python_layout {
	uint16_t frame;         /* of the innermost frame in a thread's state */
	uint16_t indirect;      /* or of it in a structure that is pointed to there */
	uint16_t evaluation;    /* of the record of the innermost evaluation in a thread's state */
	uint16_t outer;         /* of the next one in that */
	uint16_t code, previous, place, owner; /* in a frame */
	uint16_t entry;         /* in a frame: whether it is the outermost of its evaluation */
	uint16_t bytecode;      /* in a frame: which copy of the instructions it runs */
	uint16_t first_line, file, name, lines, bytes; /* in a code object; bytes: the instructions */
	uint16_t copies;        /* in a code object: the copies of the instructions, where threads have their own */
	uint16_t type;          /* in every object */
	uint16_t text_length, text; /* in a string; text: the characters, of one that is ASCII */
	uint16_t bytes_length, bytes_held; /* in an object of bytes */
};

/* The layout of Python 3.`minor` as it runs in this process; false where it is not known. */
bool python_layout_find(int minor, struct python_layout *layout);

#endif
