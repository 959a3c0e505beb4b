/*
 * Submits an epoch: digest, gather, and the overwrite policy if the ring is full.
 */
#ifndef TT_CAPTURE_CUT_H
#define TT_CAPTURE_CUT_H

#include "capture/capture.h"

/*
 * Caller has closed the gate and has the capture lock. True: captured or pending, and the program's streams must
 * wait for it. If a snapshot replaces the epoch, q becomes that one.
 */
bool capture_cut(struct thread *t, struct capture *p, struct pending *q, bool full);

#endif
