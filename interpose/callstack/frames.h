/*
 * The frames of the calling thread: Python's, native ones, or both in one order.
 *
 * Invariant: taking them allocates nothing, takes no lock of ours and makes no system call.
 * Python's frames are complete even if the native ones cannot be followed.
 */
#ifndef TT_CALLSTACK_FRAMES_H
#define TT_CALLSTACK_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#define FRAMES_MOST 128

/* What tells one place in a program from another. */
struct frame {
	const char *code; /* a code object of Python's; NULL: a native frame */
	uint64_t place;   /* bytes into its instructions; native: where the call returns to */
	const void *file, *name; /* strings of Python's */
};

/* Before the first are taken. A warning, or NULL. */
const char *frames_open(void);
/* Innermost first and without our own, into room for FRAMES_MOST. How many. */
int frames_take(struct frame *frames);

#endif
