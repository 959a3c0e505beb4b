/*
 * The frames of the calling thread: Python's, native ones, or both in one order.
 *
 * Invariant: taking them allocates nothing, takes no lock of the recorder and makes no system call. Python's frames
 * are complete even if the native ones cannot be followed.
 */
#ifndef TT_CALLSTACK_FRAMES_H
#define TT_CALLSTACK_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#define FRAMES_MOST 128

/* Identifies a position in the program. */
struct frame {
	const char *code; /* a Python code object; NULL: a native frame */
	uint64_t pc;   /* byte offset in its instructions; native: return address */
	const void *file, *name; /* Python strings */
};

/* Call before the first stack is taken. Returns a warning, or NULL. */
const char *frames_open(void);
/* Innermost first, without the recorder's, into room for FRAMES_MOST. Returns their number. */
int frames_take(struct frame *frames);

#endif
