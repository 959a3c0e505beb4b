/*
 * Call stacks of the program's calls. Each is stored once.
 *
 * Invariant: stacks_here allocates nothing for a known stack, takes no lock of the recorder and makes no system call. The
 * frames of a stack are in the files before its number is used.
 */
#ifndef TT_CALLSTACK_STACKS_H
#define TT_CALLSTACK_STACKS_H

#include <stdbool.h>
#include <stdint.h>

/* Call before the first stack is taken. False: no memory. */
bool stacks_open(void);
/* The number of the calling thread's stack, without the recorder's frames; 0: none. */
uint32_t stacks_here(void);
/* The same from PyTorch, 0 if it can't say: see torch_frames.h for when it may be called. */
uint32_t stacks_from_torch(void);
void stacks_forget(void); /* in a forked child */

#endif
