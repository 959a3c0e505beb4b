/*
 * Submitting an epoch: digest, gather, and what becomes of it where the ring is full.
 */
#ifndef TT_CAPTURE_CUT_H
#define TT_CAPTURE_CUT_H

#include "capture/capture.h"

/*
 * Within the gate and the capture lock. True: it was captured, or will be, and streams of the program have
 * something to wait for. q becomes another epoch where a snapshot is taken in place of it.
 */
bool capture_cut(struct thread *t, struct capture *p, struct pending *q, bool full);

#endif
