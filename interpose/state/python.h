/*
 * The Python functions that the calling thread is in, where there is an interpreter.
 *
 * They are read from the thread's own frames, which nobody changes while it is in a call of ours:
 * neither the interpreter's lock is needed nor anything of its API that needs it, so that there is
 * nothing to wait for. Only versions whose structures are known are read.
 */
#ifndef TT_STATE_PYTHON_H
#define TT_STATE_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What tells one place in a program from another: a code object, where in it, and its names. */
struct python_frame {
	const char *code;
	uint64_t place; /* bytes into the instructions */
	const void *file, *name;
};

/* Looks for an interpreter. A reason where there is one that can't be read, else NULL. */
const char *python_find(void);
/* The frames of the calling thread, innermost first; 0 where there are none. */
int python_frames(struct python_frame *frames, int most);
/* What is known of a frame that is still running; texts are cut off where they don't fit. */
void python_describe(const struct python_frame *f, char *function, char *file, size_t size, uint32_t *line);

#endif
