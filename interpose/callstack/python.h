/*
 * The Python functions of the calling thread, if there is an interpreter.
 *
 * They are read from the thread's own frames, which nobody changes during a call of ours. So
 * reading needs neither the interpreter's lock nor its API, and waits for nothing. Only versions
 * with known structures are read.
 */
#ifndef TT_CALLSTACK_PYTHON_H
#define TT_CALLSTACK_PYTHON_H

#include <stddef.h>
#include <stdint.h>

#include "callstack/frames.h"

/*
 * Looks for an interpreter. A reason where there is one that can't be read, else NULL; `inside` is
 * set to an address in its code where there is one that can.
 */
const char *python_find(const void **inside);
/*
 * The frames of the calling thread, innermost first; 0 where there are none. Where `evaluations`
 * is given, for each an address on the thread's stack, within the native frame that runs it: the
 * same for functions that the same native frame runs, NULL where it is not known.
 */
int python_frames(struct frame *frames, const char **evaluations, int most);
/* What is known of a frame that is still running; texts are cut off where they don't fit. */
void python_describe(const struct frame *f, char *function, char *file, size_t size, uint32_t *line);

#endif
