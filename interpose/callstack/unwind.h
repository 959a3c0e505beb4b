/*
 * Finds the native frames of the calling thread, as the exception unwinder does, with rules that are kept by address.
 *
 * Invariant: frames are those that the unwinder finds, or none: what is not plain is left to it. Takes no lock, except
 * where the unwinder does: when an address is seen for the first time.
 */
#ifndef TT_CALLSTACK_UNWIND_H
#define TT_CALLSTACK_UNWIND_H

#include <stdbool.h>
#include <stdint.h>

/* library: the loaded libgcc_s. */
void unwind_open(void *library);
/*
 * Visits frames from the caller's outwards until visit returns false: where each goes on (0: the end), and the low end
 * of its part of the stack. False: it has a frame that only the unwinder can undo; the visits so far do not count.
 */
bool unwind_frames(bool (*visit)(void *to, uintptr_t pc, uintptr_t stack), void *to);

#endif
