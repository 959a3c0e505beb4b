/*
 * Call stacks of the program's calls. Each is stored once.
 *
 * Invariant: taking a known stack allocates nothing, takes no lock of ours and makes no system
 * call. The frames of a stack are in the files before its number is used.
 */
#ifndef TT_CALLSTACK_STACKS_H
#define TT_CALLSTACK_STACKS_H

#include <stdbool.h>
#include <stdint.h>

/* Before the first stack is taken. False: no memory. */
bool stacks_open(void);
/* The number of the calling thread's stack, without our own frames; 0 where there is none. */
uint32_t stacks_here(void);
void stacks_forget(void); /* in a fork's child */

#endif
