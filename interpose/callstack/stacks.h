/*
 * Call stacks of the program's calls. Each is stored once.
 *
 * Invariant: taking a known stack allocates nothing, takes no lock of the recorder and makes no system call. The
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
void stacks_forget(void); /* in a forked child */

#endif
