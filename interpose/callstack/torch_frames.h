/*
 * The Python functions of the calling thread, as PyTorch's CapturedTraceback gives them.
 *
 * Invariant: an exception of the program is neither lost nor raised elsewhere. Python code runs, which may wait for
 * other threads and make driver calls: call it without a lock and outside the gate.
 */
#ifndef TT_CALLSTACK_TORCH_FRAMES_H
#define TT_CALLSTACK_TORCH_FRAMES_H

#include "format.h"

/* Call when an interpreter may be there. */
void torch_frames_open(void);
/*
 * Kind, flags, function, file and line, innermost first. Returns their number; 0: the thread lacks the interpreter's
 * lock, the program has not imported PyTorch, or PyTorch fails.
 */
int torch_frames(struct tt_frame *frames, int most);

#endif
