/*
 * The Python functions of the calling thread, if there is an interpreter.
 *
 * They are read from the thread's own frames, which do not change during a call of the recorder. So reading needs
 * neither the interpreter's lock nor its API, and waits for nothing. Only versions with known structures are read.
 */
#ifndef TT_CALLSTACK_PYTHON_H
#define TT_CALLSTACK_PYTHON_H

#include <stddef.h>
#include <stdint.h>

#include "callstack/frames.h"

/*
 * Looks for an interpreter. Returns why it can't be read, or NULL. *inside becomes an address in its code if it can
 * be read.
 */
const char *python_find(const void **inside);
/*
 * The frames of the calling thread, innermost first; 0: none. evaluations, if not NULL, gets for each an address on
 * the thread's stack inside the native frame that runs it: equal for functions of one native frame, NULL if
 * unknown.
 */
int python_frames(struct frame *frames, const char **evaluations, int most);
/* Describes a frame that is still running; cuts texts that are too long. */
void python_describe(const struct frame *f, char *function, char *file, size_t size, uint32_t *line);

#endif
